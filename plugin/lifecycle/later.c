/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement of communicators that are not blocking: what a blocking call does behind NCCL's part, on a thread. */
#include "plugin/lifecycle/init.h"
#include "plugin/lifecycle/lifecycle_impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include "base/log.h"
#include "base/real.h"
#include "base/wait.h"
#include "plugin/util/process.h"

#define STOP_WAIT_MS 1000

/* Threads that call CUDA or NCCL. At exit none does any more. */
static _Atomic int at_work;
static _Atomic bool stopped;

/* Under the list's lock. */
static ncclResult_t ask_nccl(struct slr_init *init)
{
    struct slr_making *m = &init->making;
    ncclResult_t now = ncclInternalError;
    if (m->ended || slr_real.ncclCommGetAsyncError(m->parent ? m->parent : m->comm, &now) != ncclSuccess)
        return ncclInternalError;
    if (now != ncclSuccess)
        return now;
    m->comm = m->parent ? *init->out : m->comm;
    m->agrees = slr_init_know(init, m->comm);
    return m->agrees ? ncclSuccess : ncclInternalError;
}

/* False: NCCL is at work. It has not been made: nothing is known of it, and the program is told by NCCL. */
static bool look(struct slr_init *init)
{
    slr_making_lock();
    const ncclResult_t now = init->making.agrees ? ncclSuccess : ask_nccl(init);
    if (now != ncclSuccess && now != ncclInProgress)
        slr_making_remove(&init->making);
    slr_making_unlock();
    return now != ncclInProgress;
}

/* All are asked at each look: those of a group end together. */
static bool look_at_all(struct slr_init *list)
{
    bool all = true;
    for (struct slr_init *init = list; init; init = init->next)
        all = look(init) && all;
    return all;
}

static bool work(struct slr_init *list, bool (*what)(struct slr_init *list))
{
    atomic_fetch_add(&at_work, 1); /* before it is asked */
    const bool done = stopped || what(list);
    atomic_fetch_sub(&at_work, 1);
    return done;
}

static bool finish(struct slr_init *list)
{
    slr_inits_agree(list);
    slr_hosts_agree(list);
    slr_inits_enlist(list);
    return true;
}

/* NCCL needs some hundred milliseconds. */
static void *go_on(void *arg)
{
    struct slr_init *list = arg;
    slr_guard++; /* whatever this thread calls is slipring's own */
    for (unsigned spin = 0; !work(list, look_at_all); spin++)
        nanosleep(&(struct timespec){.tv_nsec = spin < 100 ? 100000 : 1000000}, NULL);
    work(list, finish);
    slr_inits_free(list);
    return NULL;
}

void slr_inits_later(struct slr_init *list)
{
    pthread_t thread;
    for (struct slr_init *init = list; init; init = init->next) {
        slr_tune_returned(init);
        init->making.comm = init->making.parent ? NULL : *init->out;
        slr_making_add(&init->making);
    }
    const int r = slr_thread_start(&thread, "slipring-init", go_on, list);
    if (r == 0) {
        pthread_detach(thread);
        return;
    }
    slr_log(SLR_LOG_WARN, "no_meeting", "errno=%d msg=%s", r, "no thread for the agreement of a communicator");
    slr_inits_free(list);
}

void slr_inits_stop(void)
{
    stopped = true;
    for (int ms = 0; ms < STOP_WAIT_MS && atomic_load(&at_work) > 0; ms++)
        slr_sleep_ms(1);
}
