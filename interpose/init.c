/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "interpose/hook.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/wait.h"
#include "interpose/gate_table.h"
#include "interpose/reach.h"
#include "interpose/resolve.h"
#include "plugin/lifecycle/lifecycle.h"

static void in_child(void)
{
    /* The log first: the plugin may write a line. */
    slr_log_after_fork();
    slr_plugin_after_fork_child();
    slr_gate_after_fork();
}

/* Not from a constructor: nothing happens in a process that does not use NCCL, but in the one that
 * `slipring run` starts (plugin/lifecycle/launched.c). atexit and not a destructor: what is registered last
 * runs first, so slipring ends before CUDA's libraries, which registered theirs when they were loaded. */
bool slr_hook_nccl_ready(void)
{
    static struct slr_once once;
    if (slr_once_begin(&once)) {
        if (pthread_atfork(NULL, NULL, in_child) != 0 || atexit(slr_plugin_at_exit) != 0)
            slr_log(SLR_LOG_WARN, "init", "msg=%s", "handlers for fork and exit could not be registered");
        slr_once_end(&once);
    }
    if (!slr_resolve(SLR_LIB_NCCL) || !slr_resolve_cuda_load())
        return false;
    slr_reach_install();
    return true;
}

void slr_hook_missing(const char *library, const char *function)
{
    uint64_t key = slr_mix((uint64_t)(uintptr_t)library, (uint64_t)(uintptr_t)function);
    if (slr_log_first(key))
        slr_log(SLR_LOG_ERROR, "call", "library=%s symbol=%s msg=%s", library, function,
                "called, but the library is not loaded or does not have it");
}
