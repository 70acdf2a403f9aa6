/* SPDX-License-Identifier: Apache-2.0 */
/* Whether slipring is on in this process. */
#include "plugin/util/process.h"

#include <stdatomic.h>
#include "base/settings.h"

static _Atomic bool forked;

bool slr_process_off(void)
{
    /* Relaxed: it is asked at every call, and set before the child has a second thread. */
    return atomic_load_explicit(&forked, memory_order_relaxed) || !slr_get(SLR_S_ENABLE);
}

void slr_process_forked(void)
{
    atomic_store(&forked, true);
}
