/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the process's communicators, and of each its lock and its error. */
#include "plugin/comm/comm.h"

#include <string.h>
#include <time.h>
#include "base/wait.h"
#include "base/log.h"
#include "plugin/comm/control.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/making.h"
#include "plugin/comm/call.h"
#include <pthread.h>

/* A list: processes have a handful of communicators, rarely a hundred. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct slr_comm *comms;

static struct slr_comm *on_list(ncclComm_t nccl)
{
    pthread_rwlock_rdlock(&lock);
    struct slr_comm *c = nccl ? comms : NULL; /* orphans have none */
    while (c && c->nccl != nccl)
        c = c->next;
    /* Counted before the lock is given up: whoever removes it afterwards waits for this use. */
    if (c)
        slr_comm_hold(c);
    pthread_rwlock_unlock(&lock);
    return c;
}

struct slr_comm *slr_comm_find(ncclComm_t nccl)
{
    struct slr_comm *c = on_list(nccl);
    if (c || !nccl)
        return c;
    slr_making_await(nccl);
    return on_list(nccl); /* also when it has just got there */
}

struct slr_comm *slr_comm_find_id(const struct slr_label *id, int rank)
{
    pthread_rwlock_rdlock(&lock);
    struct slr_comm *c = comms;
    while (c && (c->rank != rank || memcmp(&c->id, id, sizeof *id)))
        c = c->next;
    if (c)
        slr_comm_hold(c);
    pthread_rwlock_unlock(&lock);
    return c;
}

void slr_comm_hold(struct slr_comm *c)
{
    atomic_fetch_add(&c->users, 1);
}

void slr_comm_put(struct slr_comm *c)
{
    if (c)
        atomic_fetch_sub(&c->users, 1);
}

void slr_lane_put(struct slr_lane *lane)
{
    if (lane)
        slr_comm_put(lane->comm);
}

/* Polls: an end is rare, and a call must not pay for waking somebody. */
bool slr_comm_last_user(struct slr_comm *c, int most_ms)
{
    for (int ms = 0; ms < most_ms && atomic_load(&c->users) > 1; ms++)
        slr_sleep_ms(1);
    return atomic_load(&c->users) <= 1;
}

void slr_comm_add(struct slr_comm *c)
{
    pthread_rwlock_wrlock(&lock);
    c->next = comms;
    comms = c;
    pthread_rwlock_unlock(&lock);
}

void slr_comm_remove(struct slr_comm *c)
{
    pthread_rwlock_wrlock(&lock);
    struct slr_comm **at = &comms;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pthread_rwlock_unlock(&lock);
}

/* So that the caller can work on each without the lock: that work may wait for the driver. */
int slr_comm_hold_all(struct slr_comm **list, int max)
{
    int n = 0;
    pthread_rwlock_rdlock(&lock);
    for (struct slr_comm *c = comms; c && n < max; c = c->next) {
        slr_comm_hold(c);
        list[n++] = c;
    }
    pthread_rwlock_unlock(&lock);
    return n;
}

void slr_comm_each(void (*visit)(struct slr_comm *c, void *ctx), void *ctx)
{
    pthread_rwlock_rdlock(&lock);
    for (struct slr_comm *c = comms; c; c = c->next)
        visit(c, ctx);
    pthread_rwlock_unlock(&lock);
}

/* Off the list, so that nobody else disposes of it; the caller puts back what it is not done
 * with. */
struct slr_comm *slr_comm_take_orphan(void)
{
    struct slr_comm **last = NULL, *taken = NULL;
    pthread_rwlock_wrlock(&lock);
    for (struct slr_comm **at = &comms; *at; at = &(*at)->next)
        if ((*at)->orphan)
            last = at;
    if (last) {
        taken = *last;
        *last = taken->next;
    }
    pthread_rwlock_unlock(&lock);
    return taken;
}

/* ---- decision and error ---- */

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
bool slr_lane_lock_soon(struct slr_lane *lane)
{
    enum { MOMENT_NS = 20000000, SECOND_NS = 1000000000 };
    struct timespec end;
    if (slr_lane_trylock(lane))
        return true;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + MOMENT_NS) / SECOND_NS;
    end.tv_nsec = (end.tv_nsec + MOMENT_NS) % SECOND_NS;
    return pthread_mutex_timedlock(&lane->lock, &end) == 0;
}

void slr_comm_fail(struct slr_comm *c, enum slr_status status, int peer, const char *what)
{
    int none = ncclSuccess;
    /* The first error is the cause; those that follow from it must not hide it. */
    if (!atomic_compare_exchange_strong(&c->error, &none, (int)nccl_result(status)))
        return;
    /* `failed` as well as the state: a rank that leaves overwrites the state, and a peer that looks
     * late must still learn that calls were broken. */
    atomic_store(&c->shared.control->post[c->rank].failed, 1);
    atomic_store(&c->shared.control->post[c->rank].state, SLR_RANK_FAILED);
    slr_log(SLR_LOG_ERROR, "communicator_failed", "comm=%s crank=%d peer=%d call=%llu piece=%u status=%s msg=%s",
            c->name, c->rank, peer, (unsigned long long)c->substituted, atomic_load(&c->lane->ring.issued),
            slr_status_name(status), what);
}

ncclResult_t slr_comm_answer(struct slr_comm *c)
{
    ncclResult_t r = (ncclResult_t)atomic_load(&c->error);
    if (r != ncclSuccess)
        atomic_store(&c->app_informed, true); /* from here on its streams may be released: watchdog.c */
    return r;
}

void slr_comm_passes(struct slr_comm *c, enum slr_reason why, int peer)
{
    c->pass = why;
    /* One of one rank, or over hosts that are not laid out for it, is no finding; everything else a user may want to act
     * upon. */
    const bool fine = why == SLR_R_ONE_RANK || why == SLR_R_HOSTS_NCCL;
    enum slr_log_level level = fine ? SLR_LOG_INFO : SLR_LOG_WARN;
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
            slr_ring_release(&c->lane->ring, r);
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

/* ---- who watches their calls ---- */

const struct slr_watcher *slr_watcher[SLR_WATCHERS + 1];

void slr_watch(const struct slr_watcher *watcher)
{
    static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
    const struct slr_watcher **at = slr_watcher;
    pthread_mutex_lock(&watching);
    while (*at && *at != watcher)
        at++;
    if (!*at && at < slr_watcher + SLR_WATCHERS) /* others may be telling those that are there */
        *at = watcher;
    pthread_mutex_unlock(&watching);
}

/* ---- the key of one that it is to grow to ---- */

static void offer(struct slr_key_offer *to, const struct slr_key *key, uint64_t number)
{
    to->key = *key;
    atomic_store(&to->number, number);
}

void slr_comm_offer_key(struct slr_comm *c, const struct slr_key *key, uint64_t number)
{
    offer(&c->grown, key, number);
    if (c->shared.control)
        offer(&c->shared.control->post[c->rank].grown, key, number);
}

static bool offered(const struct slr_key_offer *by, uint64_t number, struct slr_key *key)
{
    if (atomic_load(&by->number) != number)
        return false;
    *key = by->key;
    return true;
}

bool slr_comm_offered_key(const struct slr_comm *c, uint64_t number, struct slr_key *key)
{
    bool found = offered(&c->grown, number, key);
    for (int r = 0; c->shared.control && r < c->nranks && !found; r++)
        found = offered(&c->shared.control->post[r].grown, number, key);
    return found;
}
