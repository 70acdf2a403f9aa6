/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's decision and error. */
#include <time.h>
#include "base/log.h"
#include "plugin/comm/comm.h"

static ncclResult_t nccl_result(enum slr_status s)
{
    static const ncclResult_t table[] = {
#define X(id, name, nccl) [SLR_##id] = nccl,
        SLR_STATUSES(X)
#undef X
    };
    return table[s];
}

/* Those that hold it for a moment only are waited for, so that it is not chance what becomes of a call. */
bool slr_comm_lock_soon(struct slr_comm *c)
{
    enum { MOMENT_NS = 20000000, SECOND_NS = 1000000000 };
    struct timespec end;
    if (slr_comm_trylock(c))
        return true;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + MOMENT_NS) / SECOND_NS;
    end.tv_nsec = (end.tv_nsec + MOMENT_NS) % SECOND_NS;
    return pthread_mutex_timedlock(&c->lock, &end) == 0;
}

void slr_comm_fail(struct slr_comm *c, enum slr_status status, int peer, const char *what)
{
    int none = ncclSuccess;
    /* The first error is the cause; those that follow from it must not hide it. */
    if (!atomic_compare_exchange_strong(&c->error, &none, (int)nccl_result(status)))
        return;
    if (c->records) { /* the capture has failed, nothing else has */
        slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank,
                slr_status_name(status), what);
        return;
    }
    /* `failed` as well as the state: a rank that leaves overwrites the state, and a peer that looks
     * late must still learn that calls were broken. */
    atomic_store(&c->shared.control->post[c->rank].failed, 1);
    atomic_store(&c->shared.control->post[c->rank].state, SLR_RANK_FAILED);
    slr_log(SLR_LOG_ERROR, "communicator_failed", "comm=%s crank=%d peer=%d call=%llu piece=%u status=%s msg=%s",
            c->name, c->rank, peer, (unsigned long long)c->substituted, atomic_load(&c->ring.issued),
            slr_status_name(status), what);
}

ncclResult_t slr_comm_answer(struct slr_comm *c)
{
    ncclResult_t r = (ncclResult_t)atomic_load(&c->error);
    if (r != ncclSuccess)
        atomic_store(&c->app_informed, true); /* from here on its streams may be released: watchdog.h */
    return r;
}

void slr_comm_passes(struct slr_comm *c, enum slr_reason why, int peer)
{
    c->pass = why;
    /* A communicator of one rank is no finding; everything else a user may want to act upon. */
    enum slr_log_level level = why == SLR_R_ONE_RANK ? SLR_LOG_INFO : SLR_LOG_WARN;
    if (peer < 0 || peer >= c->nranks)
        slr_log(level, "communicator", "comm=%s crank=%d nranks=%d decision=pass reason=%s msg=%s", c->name, c->rank,
                c->nranks, slr_reason_name(why), slr_reason_doc(why));
    else
        slr_log(level, "communicator", "comm=%s crank=%d nranks=%d decision=pass reason=%s peer=%d msg=%s", c->name,
                c->rank, c->nranks, slr_reason_name(why), peer, slr_reason_doc(why));
}

/* Ends the waits for every peer: the words go so far ahead that no wait is left. */
void slr_comm_release(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            slr_ring_release(&c->ring, r);
}

/* `failed`, not the state: a peer that failed and then left is LEFT, and its calls were broken all
 * the same. */
bool slr_comm_peer_failed(struct slr_comm *c, int peer)
{
    if (!atomic_load(&c->shared.control->post[peer].failed))
        return false;
    slr_comm_fail(c, SLR_PEER, peer, "the peer's communicator failed or was aborted");
    return true;
}

void slr_comm_look_failed(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks && c->pass == SLR_R_RING; r++)
        if (r != c->rank && slr_comm_peer_failed(c, r))
            return;
}
