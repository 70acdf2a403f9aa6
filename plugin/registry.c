#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/cu.h"
#include "base/log.h"
#include "plugin/comm.h"
#include "plugin/pending_impl.h"
#include "plugin/retire.h"
#include "plugin/symmetry.h"
#include "plugin/trace.h"
#include "plugin/tuner.h"
#include "plugin/watchdog.h"

#define RELEASED_MS 400 /* released waits end within this, if anything lets them begin */

/* A list: processes have a handful of communicators, rarely a hundred. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct slr_comm *comms;

struct slr_comm *slr_comm_find(ncclComm_t nccl)
{
    pthread_rwlock_rdlock(&lock);
    struct slr_comm *c = nccl ? comms : NULL; /* orphans have none */
    while (c && c->nccl != nccl)
        c = c->next;
    if (c)
        slr_comm_hold(c);
    pthread_rwlock_unlock(&lock);
    return c;
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

bool slr_comm_last_user(struct slr_comm *c, int most_ms)
{
    for (int ms = 0; ms < most_ms && atomic_load(&c->users) > 1; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
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

static _Thread_local CUstreamCaptureMode outer_mode __attribute__((tls_model("initial-exec")));
static _Thread_local int entered __attribute__((tls_model("initial-exec")));

enum slr_status slr_context_enter(CUcontext ctx)
{
    SLR_TRY(SLR_CU(cuCtxPushCurrent, ctx));
    if (entered++ == 0) {
        outer_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        slr_swap_capture_mode(&outer_mode);
    }
    return SLR_OK;
}

enum slr_status slr_shared_enter(const struct slr_shared *s)
{
    if (slr_shared_gone(s))
        return SLR_ABSENT;
    return slr_context_enter(s->ctx);
}

void slr_shared_leave(void)
{
    CUcontext old;
    if (--entered == 0)
        slr_swap_capture_mode(&outer_mode);
    slr_real.cuCtxPopCurrent(&old);
}

static ncclResult_t nccl_result(enum slr_status s)
{
    static const ncclResult_t table[] = {
#define X(id, name, nccl, doc) [SLR_##id] = nccl,
#include "base/status.def"
#undef X
    };
    return table[s];
}

void slr_comm_fail(struct slr_comm *c, enum slr_status status, int peer, const char *what)
{
    int none = ncclSuccess;
    if (!atomic_compare_exchange_strong(&c->error, &none, (int)nccl_result(status)))
        return;
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
        atomic_store(&c->told, true);
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

void slr_comm_release(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            slr_ring_release(&c->ring, r);
}

bool slr_comm_idle(struct slr_comm *c)
{
    if (slr_connect_waits(c))
        return false;
    if (c->pass != SLR_R_RING || slr_shared_enter(&c->shared) != SLR_OK)
        return true;
    bool idle = slr_ring_idle(&c->ring);
    slr_shared_leave();
    return idle;
}

bool slr_comm_drain(struct slr_comm *c, unsigned ms)
{
    uint64_t end = slr_now_ms() + ms;
    for (long ns = 20000; !slr_comm_idle(c); ns = ns < 1000000 ? ns * 2 : ns) {
        slr_watchdog_look(c);
        if (ms && slr_now_ms() >= end)
            slr_comm_release(c);
        if (ms && slr_now_ms() >= end + RELEASED_MS)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    }
    return true;
}

static _Atomic int orphans;

void slr_comm_orphan(struct slr_comm *c, bool drained)
{
    c->nccl = NULL;
    c->orphan = true;
    atomic_fetch_add(&orphans, 1);
    slr_comm_add(c);
    if (drained)
        slr_log(SLR_LOG_DEBUG, "communicator_end", "comm=%s crank=%d by=ncclCommAbort calls=%llu", c->name, c->rank,
                (unsigned long long)c->substituted);
    else
        slr_log(SLR_LOG_WARN, "communicator_held_up", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "its last gather has not begun: work that stands before it on the application's streams does not end");
}

static struct slr_comm *take_orphans(void)
{
    struct slr_comm *taken = NULL;
    pthread_rwlock_wrlock(&lock);
    for (struct slr_comm **at = &comms; *at;) {
        struct slr_comm *c = *at;
        if (!c->orphan) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = taken;
        taken = c;
    }
    pthread_rwlock_unlock(&lock);
    return taken;
}

/* A thread that was in a call when it was aborted may still be there, with the lock. */
static bool dispose_orphan(struct slr_comm *c)
{
    if (!slr_comm_idle(c) || pthread_mutex_trylock(&c->lock) != 0)
        return false;
    slr_pending_join(c, SLR_R_JOIN_DESTROY, "ncclCommAbort");
    slr_comm_unlock(c);
    if (atomic_load(&c->users) > 0)
        return false;
    slr_comm_dispose(c);
    atomic_fetch_sub(&orphans, 1);
    return true;
}

void slr_comm_await_orphans(uint64_t end)
{
    while (atomic_load(&orphans) > 0 && slr_now_ms() < end)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void slr_comm_reap_orphans(void)
{
    for (struct slr_comm *c = take_orphans(), *next; c; c = next) {
        next = c->next;
        if (!dispose_orphan(c))
            slr_comm_add(c);
    }
}

void slr_comm_dispose(struct slr_comm *c)
{
    slr_symmetry_dispose(c);
    slr_trace_dispose(c);
    if (c->shared.ctx && slr_shared_enter(&c->shared) == SLR_OK) {
        slr_ring_close(&c->ring);
        slr_order_close(c);
        slr_connect_close(c);
        if (c->shared.control)
            slr_offers_close(c);
        slr_shared_leave();
    } else if (c->shared.control && slr_shared_gone(&c->shared)) {
        slr_offers_close(c); /* its imports are forgotten, none is closed by address */
    }
    c->shared.issued = atomic_load(&c->ring.issued);
    slr_retire(&c->shared);
    slr_tuner_put(c->tuner);
    free(c);
}
