/* SPDX-License-Identifier: Apache-2.0 */
/* For callgrind: N ranges while no tool is attached. */
#include <stdlib.h>
#include "base/nvtx.h"

int main(void)
{
    slr_nvtx_open();
    for (long n = atol(getenv("COST_OPERATIONS")); n > 0; n--) {
        bool marked = slr_nvtx_begin("all-gather", "ring", (uint64_t)n);
        slr_nvtx_end(marked);
    }
    return 0;
}
