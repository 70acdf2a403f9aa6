/* SPDX-License-Identifier: Apache-2.0 */
/* The regions that a thread has open. */
#include "plugin/util/region.h"

#include <errno.h>
#include <stdint.h>
#include "plugin/slipring.h"

/* The open regions, one bit of each word for each: bit 0 is the innermost. Twenty bytes only: the
 * initial-exec model takes them from static thread-local space, of which a library that is loaded
 * late finds little. */
static _Thread_local struct {
    uint64_t gathers, gemms;
    unsigned depth;
} regions __attribute__((tls_model("initial-exec")));

#define DEEPEST 64
_Static_assert(SLIPRING_REGION_DEPTH == DEEPEST, "as many as a word has bits");

bool slr_region_gathers(void)
{
    return regions.gathers != 0;
}

bool slr_region_gemms(void)
{
    return regions.gemms != 0;
}

int slipring_region_begin(unsigned flags)
{
    /* A flag of a later version would be a promise that is not kept. */
    if (flags & ~(SLIPRING_REGION_GATHERS | SLIPRING_REGION_GEMMS))
        return -EINVAL;
    if (regions.depth == DEEPEST)
        return -ENOSPC;
    regions.gathers = regions.gathers << 1 | !!(flags & SLIPRING_REGION_GATHERS);
    regions.gemms = regions.gemms << 1 | !!(flags & SLIPRING_REGION_GEMMS);
    regions.depth++;
    return 0;
}

int slipring_region_end(void)
{
    if (regions.depth == 0)
        return -EPERM;
    regions.gathers >>= 1;
    regions.gemms >>= 1;
    regions.depth--;
    return 0;
}
