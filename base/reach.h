/* SPDX-License-Identifier: Apache-2.0 */
/* Whether everything that is loaded into the process calls CUDA, NCCL and cuBLAS through slipring.
 *
 * A gather may stay pending only while every way to notice is hooked (design rule R5). An object whose
 * calls are bound to the vendors' functions themselves *bypasses* slipring: it was opened with
 * RTLD_DEEPBIND, into a namespace of its own, or before slipring was there. interpose/reach.h finds it, before
 * any of its code can come behind a gather that is pending. From then on, for as long as the process
 * lives, this rank
 *
 *   - joins each gather at once, and computes no GEMM in parts ahead of a reduce-scatter
 *   - names none of its memory to peers, takes back what it has exported, and keeps no block in the cache.
 *     Peers close what they have mapped when they have come to their last call that named it, which nobody
 *     waits for: memory that the program got through slipring, and such an object frees before, is freed while
 *     others have it mapped, which CUDA leaves undefined
 *   - orders the operations of a communicator by events recorded with them: streams may end unseen
 *   - asks the driver of each stream whether it captures
 *   - takes no calls into graphs of communicators that are not connected yet
 *
 * All of it is this rank's own business; what is substituted is decided as before (R1). The last point is
 * agreed by all ranks (plugin/connect/abilities.c).
 */
#ifndef SLR_BASE_REACH_H
#define SLR_BASE_REACH_H

#include <stdatomic.h>
#include <stdbool.h>

/* 0: as far as is known, all calls come through slipring. */
#define SLR_REACH_PAST 0x80000000u /* something bypasses it */
extern _Atomic unsigned slr_reach_word;

/* Of interpose/, when NCCL is first used. NULL: nobody looks. */
extern void (*_Atomic slr_reach_looks)(void);

/* Something bypasses slipring. It stays so. */
static inline bool slr_reach_past(void)
{
    return (atomic_load(&slr_reach_word) & SLR_REACH_PAST) != 0;
}

/* That, or a thread is opening what may. To be asked when a gather has become pending: who opens something says so
 * first, and then joins what is pending, so one of the two sees the other. */
static inline bool slr_reach_doubtful(void)
{
    return atomic_load(&slr_reach_word) != 0;
}

/* Looks at what has been loaded since the last time: what it finds shows in the word. For each call that the
 * ring gets, without locks, as what is pending is joined when something is found. */
static inline void slr_reach_look(void)
{
    void (*look)(void) = atomic_load_explicit(&slr_reach_looks, memory_order_acquire);
    if (look && !slr_reach_past())
        look();
}

#endif
