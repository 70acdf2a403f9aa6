/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/form.h"
#include <inttypes.h>
#include <stdio.h>

/* Three digits that count: 1.23, 12.3, 123. */
static void put_digits(char *buf, double x, const char *unit)
{
    int digits = x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    snprintf(buf, FORM_ROOM, "%.*f %s", digits, x, unit);
}

const char *form_bytes(char *buf, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned u = 0;
    for (; bytes >= 1024 && u < 6; u++)
        bytes /= 1024;
    if (bytes == (double)(uint64_t)bytes && bytes < 1e6)
        snprintf(buf, FORM_ROOM, "%.0f %s", bytes, units[u]);
    else
        put_digits(buf, bytes, units[u]);
    return buf;
}

const char *form_time(char *buf, double ns)
{
    if (ns < 999.5)
        snprintf(buf, FORM_ROOM, "%.0f ns", ns);
    else if (ns < 999.5e3)
        put_digits(buf, ns / 1e3, "µs");
    else if (ns < 999.5e6)
        put_digits(buf, ns / 1e6, "ms");
    else
        put_digits(buf, ns / 1e9, "s");
    return buf;
}

const char *form_count(char *buf, uint64_t n)
{
    snprintf(buf, FORM_ROOM, "%" PRIu64, n);
    return buf;
}

const char *form_share(char *buf, double share)
{
    if (share < 0)
        snprintf(buf, FORM_ROOM, "-");
    else
        snprintf(buf, FORM_ROOM, "%.0f%%", share * 100);
    return buf;
}
