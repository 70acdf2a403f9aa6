/* SPDX-License-Identifier: Apache-2.0 */
/* How the host's threads wait: its clock, and work that one of them does for all. */
#ifndef SLR_BASE_WAIT_H
#define SLR_BASE_WAIT_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* Of CLOCK_MONOTONIC. */
static inline uint64_t slr_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline uint64_t slr_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Or less, when a signal comes. */
static inline void slr_sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* Without the application's signals, which go to the application's threads. 0, or an errno value. */
static inline int slr_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* a new thread inherits the mask */
    const int r = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0)
        pthread_setname_np(*thread, name);
    return r;
}

/* One-time work that survives a fork: pthread_once hangs in a child whose parent forked while another thread was at
 * the work. Here the word names the process at work, so the child sees that nobody in its own is, and takes over. */
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
