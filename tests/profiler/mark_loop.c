/* For callgrind: N ranges while no tool is attached. */
#include <stdlib.h>
#include "base/mark.h"

int main(void)
{
    slr_mark_open();
    for (long n = atol(getenv("COST_OPERATIONS")); n > 0; n--) {
        bool marked = slr_mark_begin("all-gather", "ring", (uint64_t)n);
        slr_mark_end(marked);
    }
    return 0;
}
