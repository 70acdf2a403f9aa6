/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access and what lies between the devices. */
#include <string.h>
#include "tools/doctor/doctor.h"

static bool any_pair(const struct doctor_devices *v, bool (*is)(const struct doctor_link *), int *from, int *to)
{
    for (*from = 0; *from < doctor_known_devices(v); ++*from)
        for (*to = 0; *to < doctor_known_devices(v); ++*to)
            if (*from != *to && is(&v->link[*from][*to]))
                return true;
    return false;
}

static bool no_access(const struct doctor_link *l)
{
    return !l->access;
}

static bool access_by_pcie(const struct doctor_link *l)
{
    return l->access && !l->nvlinks && l->path != DOCTOR_PATH_UNKNOWN;
}

static bool access_unknown(const struct doctor_link *l)
{
    return l->access && !l->nvlinks && l->path == DOCTOR_PATH_UNKNOWN;
}

static unsigned pairs_without(const struct doctor_devices *v)
{
    unsigned n = 0;
    for (int i = 0; i < doctor_known_devices(v); i++)
        for (int j = i + 1; j < doctor_known_devices(v); j++)
            n += !v->link[i][j].access || !v->link[j][i].access;
    return n;
}

static void check_access(struct doctor *d, const struct doctor_devices *v)
{
    int from, to, n = doctor_known_devices(v);
    if (any_pair(v, no_access, &from, &to))
        doctor_add(d, DOCTOR_PEER_ACCESS, DOCTOR_FAIL,
                   "%u of %d pairs can not reach each other, e.g. device %d device %d", pairs_without(v),
                   n * (n - 1) / 2, from, to);
    else
        doctor_add(d, DOCTOR_PEER_ACCESS, DOCTOR_OK, "all %d devices reach each other", n);
}

static void check_ways(struct doctor *d, const struct doctor_devices *v)
{
    int from, to;
    if (v->softgpu)
        doctor_add(d, DOCTOR_LINKS, DOCTOR_OK, "softgpu: shared memory of the host stands in for links");
    else if (any_pair(v, access_by_pcie, &from, &to))
        doctor_add(d, DOCTOR_LINKS, DOCTOR_WARN, "PCIe between device %d and device %d, and perhaps others", from, to);
    else if (any_pair(v, access_unknown, &from, &to))
        doctor_add(d, DOCTOR_LINKS, DOCTOR_UNKNOWN, "NVML %s: not known whether NVLink or PCIe",
                   v->nvml ? "does not say" : "(libnvidia-ml.so.1) is not there");
    else if (pairs_without(v) == 0)
        doctor_add(d, DOCTOR_LINKS, DOCTOR_OK, "NVLink between all devices");
    else
        doctor_add(d, DOCTOR_LINKS, DOCTOR_UNKNOWN, "not all devices reach each other");
}

void doctor_check_links(struct doctor *d)
{
    const struct doctor_devices *v = d->devices;
    if (v->count == 1)
        doctor_add(d, DOCTOR_PEER_ACCESS, DOCTOR_OK, "one device: nothing to reach");
    if (v->count == 1)
        doctor_add(d, DOCTOR_LINKS, DOCTOR_OK, "one device");
    if (v->count < 2)
        return;
    check_access(d, v);
    check_ways(d, v);
}
