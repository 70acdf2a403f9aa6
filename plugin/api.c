/* SPDX-License-Identifier: Apache-2.0 */
/* slipring.h: version and counters. Regions are in util/process.c. */
#include "plugin/slipring.h"

#include <errno.h>
#include <string.h>
#include "base/counters.h"

/* The public struct has all of base/counters.def, and what earlier versions counted: it only grows. */
#define X(name, value, doc) +1
enum {
    COUNTED = 0
#include "base/counters.def"
};
#undef X
enum { NO_MORE = 3 }; /* sites, sites_symmetric, sites_broken */
_Static_assert(sizeof(struct slipring_counters) == sizeof(size_t) + (COUNTED + NO_MORE) * sizeof(uint64_t), "all");

/* More than any version will have. What is above has not been set. */
#define LARGEST 65536

int slipring_version(void)
{
    return SLIPRING_VERSION_NUMBER;
}

const char *slipring_version_string(void)
{
    return SLIPRING_VERSION;
}

int slipring_counters_read(struct slipring_counters *counters)
{
    struct slipring_counters all = {0};
    struct slr_totals now;
    if (!counters || counters->size < offsetof(struct slipring_counters, bytes) || counters->size > LARGEST)
        return -EINVAL;
    slr_counters_total(&now);
#define X(name, value, doc) all.name = now.name;
#include "base/counters.def"
#undef X
    const size_t head = offsetof(struct slipring_counters, calls), room = counters->size - head,
                 known = sizeof all - head;
    memset(&counters->calls, 0, room);
    memcpy(&counters->calls, &all.calls, room < known ? room : known);
    return 0;
}
