/* SPDX-License-Identifier: Apache-2.0 */
/* slipring.h: version and counters. Regions are in region.c. */
#include "plugin/slipring.h"

#include <errno.h>
#include <string.h>
#include "base/counters.h"

/* The public struct is `size` and then base/counters.def, in its order. */
#define X(name, value, doc)                                                                                            \
    _Static_assert(offsetof(struct slipring_counters, name) == sizeof(size_t) + offsetof(struct slr_totals, name),     \
                   "slipring_counters has " #name " where counters.def has it");
#include "base/counters.def"
#undef X
_Static_assert(sizeof(struct slipring_counters) == sizeof(size_t) + sizeof(struct slr_totals), "and no more");

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
    struct slr_totals now;
    if (!counters || counters->size < offsetof(struct slipring_counters, bytes) || counters->size > LARGEST)
        return -EINVAL;
    size_t room = counters->size - offsetof(struct slipring_counters, calls);
    slr_counters_total(&now);
    memset(&counters->calls, 0, room);
    memcpy(&counters->calls, &now, room < sizeof now ? room : sizeof now);
    return 0;
}
