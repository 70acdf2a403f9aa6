/* SPDX-License-Identifier: Apache-2.0 */
/* Whether slipring is on: in the process, in which instance of it, and for what a thread does now. */
#ifndef SLR_PLUGIN_UTIL_PROCESS_H
#define SLR_PLUGIN_UTIL_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* True when every call goes to the vendor untouched: SLIPRING_ENABLE=off, or a child after fork, which
 * is as that (CUDA does not survive it either). */
bool slr_process_off(void);

/* Several instances of this library may be in one process: one is preloaded, say, and NCCL_TUNER_PLUGIN names another
 * file. They would have a state and a log each. The instance that was loaded first is the one that works; the plugin
 * interfaces of the others hand every call on to it. The same file under two names is one instance: the dynamic linker
 * knows it by its device and inode. */

/* The name by which NCCL lists the plugin and by which instances know each other: first field of
 * every plugin struct. */
#define SLR_PLUGIN_NAME "slipring"

/* The struct `symbol` (e.g. "ncclTunerPlugin_v5") of the instance that was loaded first, or `own`
 * when that is this one. NULL: the first one is of another version, and does not have the symbol;
 * this instance then does nothing (said once, by its log). Looked for once: the order of loading does not change. */
struct slr_first {
    _Atomic uintptr_t found; /* 0: not looked for yet; two threads that look find the same. 1: it lacks it */
};
const void *slr_first_look(struct slr_first *first, const char *symbol, const void *own);

static inline const void *slr_first_instance(struct slr_first *first, const char *symbol, const void *own)
{
    const uintptr_t found = atomic_load_explicit(&first->found, memory_order_acquire);
    return __builtin_expect(found <= 1, 0) ? slr_first_look(first, symbol, own) : (const void *)found;
}

/* Regions of a thread in which the program asked for less: slipring.h, whose functions are process.c's. */

/* Whether this thread's all-gathers go to NCCL now. */
bool slr_region_gathers(void);

/* Whether this thread's GEMMs stay whole now. */
bool slr_region_gemms(void);

#endif
