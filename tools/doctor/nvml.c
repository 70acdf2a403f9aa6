/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, when it is there: what lies between the devices. Its functions and constants are a stable
 * ABI; only these are used, and any may be missing. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "tools/doctor/devices.h"

#define P2P_NVLINK 2 /* index of the capability that nvmlDeviceGetP2PStatus is asked for */
#define REMOTE_GPU 0 /* what is at the other end of an NVLink */
#define LINKS 18     /* most NVLinks of a device */
#define ON 1u

struct pci { /* nvmlPciInfo_t; larger than any version of it */
    char legacy[16];
    unsigned domain, bus, device;
    char rest[256];
};

static int (*init)(void), (*finish)(void);
static int (*by_pci)(const char *id, void **device);
static int (*p2p_status)(void *a, void *b, int index, int *status);
static int (*ancestor)(void *a, void *b, int *level);
static int (*link_state)(void *device, unsigned link, unsigned *active);
static int (*remote_type)(void *device, unsigned link, int *type);
static int (*remote_pci)(void *device, unsigned link, struct pci *pci);

static void find(void *handle, const char *name, void *slot)
{
    void *found = dlsym(handle, name);
    memcpy(slot, &found, sizeof found);
}

static bool load(void)
{
    void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return false;
    find(h, "nvmlInit_v2", &init);
    find(h, "nvmlShutdown", &finish);
    find(h, "nvmlDeviceGetHandleByPciBusId_v2", &by_pci);
    find(h, "nvmlDeviceGetP2PStatus", &p2p_status);
    find(h, "nvmlDeviceGetTopologyCommonAncestor", &ancestor);
    find(h, "nvmlDeviceGetNvLinkState", &link_state);
    find(h, "nvmlDeviceGetNvLinkRemoteDeviceType", &remote_type);
    find(h, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &remote_pci);
    return init && by_pci && init() == 0;
}

static bool leads_to(void *device, unsigned link, const char *pci)
{
    int type = -1;
    struct pci at = {.domain = 0};
    unsigned domain = 0, bus = 0, number = 0;
    if (!remote_type || remote_type(device, link, &type) != 0 || type != REMOTE_GPU)
        return true; /* a switch leads everywhere */
    return remote_pci && remote_pci(device, link, &at) == 0 && sscanf(pci, "%x:%x:%x", &domain, &bus, &number) == 3 &&
           at.domain == domain && at.bus == bus && at.device == number;
}

static unsigned nvlinks(void *a, void *b, const char *pci_b)
{
    int status = -1;
    unsigned n = 0;
    if (!p2p_status || !link_state || p2p_status(a, b, P2P_NVLINK, &status) != 0 || status != 0)
        return 0;
    for (unsigned link = 0; link < LINKS; link++) {
        unsigned active = 0;
        if (link_state(a, link, &active) == 0 && active == ON && leads_to(a, link, pci_b))
            n++;
    }
    return n;
}

static enum doctor_path path(void *a, void *b)
{
    static const int levels[] = {0,  10, 20,
                                 30, 40, 50}; /* internal, single switch, several, host bridge, node, system */
    int level = -1;
    if (!ancestor || ancestor(a, b, &level) != 0)
        return DOCTOR_PATH_UNKNOWN;
    for (int i = 0; i < 6; i++)
        if (levels[i] == level)
            return (enum doctor_path)(DOCTOR_PATH_BOARD + i);
    return DOCTOR_PATH_UNKNOWN;
}

void doctor_ask_nvml(struct doctor_devices *v)
{
    void *handle[DOCTOR_MAX_DEVICES];
    int n = doctor_known_devices(v);
    v->nvml = load();
    for (int i = 0; i < n && v->nvml; i++)
        if (!*v->device[i].pci || by_pci(v->device[i].pci, &handle[i]) != 0)
            handle[i] = NULL;
    for (int i = 0; i < n && v->nvml; i++)
        for (int j = 0; j < n; j++) {
            if (i == j || !handle[i] || !handle[j])
                continue;
            v->link[i][j].nvlinks = (uint8_t)nvlinks(handle[i], handle[j], v->device[j].pci);
            v->link[i][j].path = (uint8_t)path(handle[i], handle[j]);
        }
    if (v->nvml && finish)
        finish();
}
