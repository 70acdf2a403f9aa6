/* SPDX-License-Identifier: Apache-2.0 */
/* One-time work that survives a fork: pthread_once hangs in a child whose parent forked while
 * another thread was at the work. Here the word holds the pid of the process that works on it, so
 * the child sees that nobody in its own process does, and takes over. */
#ifndef SLR_BASE_ONCE_H
#define SLR_BASE_ONCE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define SLR_ONCE_DONE (-1)

struct slr_once {
    _Atomic int word; /* 0: to do; a pid: at work; SLR_ONCE_DONE */
};

static inline bool slr_once_done(struct slr_once *once)
{
    return atomic_load_explicit(&once->word, memory_order_acquire) == SLR_ONCE_DONE;
}

/* True: the caller does the work and then calls slr_once_end. False: it is done. */
static inline bool slr_once_begin(struct slr_once *once)
{
    if (slr_once_done(once)) /* without a call of the system */
        return false;
    int self = getpid();
    for (;;) {
        int seen = atomic_load_explicit(&once->word, memory_order_acquire);
        if (seen == SLR_ONCE_DONE)
            return false;
        if (seen == self)
            sched_yield();
        else if (atomic_compare_exchange_strong(&once->word, &seen, self))
            return true;
    }
}

static inline void slr_once_end(struct slr_once *once)
{
    atomic_store_explicit(&once->word, SLR_ONCE_DONE, memory_order_release);
}

#endif
