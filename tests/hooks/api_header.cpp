/* SPDX-License-Identifier: Apache-2.0 */
// The header in C++, in both forms.
#ifdef WEAK
#define SLIPRING_WEAK
#endif
#include "slipring.h"

int main()
{
    slipring_counters counters = {};
    counters.size = sizeof counters;
#ifdef WEAK
    if (!slipring_loaded())
        return slipring_try_region_begin(SLIPRING_REGION_GEMMS) + slipring_try_region_end();
#endif
    return slipring_counters_read(&counters) == 0 && slipring_version() == SLIPRING_VERSION_NUMBER ? 0 : 1;
}
