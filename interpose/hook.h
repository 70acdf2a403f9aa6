/* What the NCCL and cuBLAS hooks have in common. */
#ifndef SLR_INTERPOSE_HOOK_H
#define SLR_INTERPOSE_HOOK_H

#include <stdbool.h>
#include "base/real.h"
#include "base/settings.h"

/* False: the call goes straight to the real function: slipring is switched off, or the call comes from inside slipring or from a vendor
 * function that slipring called. */
static inline bool slr_hooks_on(void)
{
    return slr_guard == 0 && slr_get(SLR_S_ENABLE) != 0;
}

/* One error line for each function: it was called, and the library that should have it does not. */
void slr_hook_missing(const char *library, const char *function);

/* Before the first communicator: slipring's end of the process and of a fork are arranged. A process that makes no communicator registers
 * nothing. Also loads the driver, as NCCL is about to. False when slipring can not work here. */
bool slr_hook_first_communicator(void);

#endif
