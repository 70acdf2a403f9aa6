#include "plugin/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/left.h"
#include "plugin/mail.h"
#include "plugin/process.h"
#include "plugin/retire.h"
#include "plugin/symmetry.h"
#include "plugin/trace.h"

#define TICK_MS 50
#define STOP_WAIT_S 1

/* Two threads. What may wait for the device (opening and closing mappings, freeing memory: drivers wait for the
 * context's work there, and that may wait for a peer) must not keep the watchdog from seeing that the peer is gone. */
static void watch(void), keep_house(void), rest(unsigned ms);
static struct loop {
    void (*work)(void), (*pause)(unsigned ms);
    const char *name;
    pthread_mutex_t working; /* held while it works */
    bool stopped;            /* under `working` */
} loops[] = {
    {.work = watch, .pause = rest, .name = "slipring", .working = PTHREAD_MUTEX_INITIALIZER},
    {.work = keep_house, .pause = slr_mail_wait, .name = "slipring-memory", .working = PTHREAD_MUTEX_INITIALIZER},
};
#define LOOPS (sizeof loops / sizeof *loops)

static uint32_t state_of(const struct slr_comm *c, int peer)
{
    return atomic_load(&c->shared.control->post[peer].state);
}

static bool unreliable(const struct slr_comm *c, int peer)
{
    return c->shared.peer_dead[peer] || state_of(c, peer) >= SLR_RANK_FAILED;
}

static bool check_failed(struct slr_comm *c, int peer)
{
    if (!atomic_load(&c->shared.control->post[peer].failed))
        return false;
    slr_comm_fail(c, SLR_PEER, peer, "the peer's communicator failed or was aborted");
    return true;
}

static void check_peer(struct slr_comm *c, int peer)
{
    bool served = slr_ring_peer_served(&c->ring, peer);
    if (check_failed(c, peer))
        return;
    slr_left_look(c, peer);
    /* The memory of a dead process may be gone before this device has read it; one that has left keeps it. */
    if (c->shared.peer_dead[peer] && (!served || !slr_ring_has_read(&c->ring, peer)))
        slr_comm_fail(c, SLR_PEER, peer, "the peer's process ended while a gather waits for it");
    else if (!served && state_of(c, peer) == SLR_RANK_LEFT)
        slr_comm_fail(c, SLR_PEER, peer, "the peer destroyed the communicator while a gather waits for it");
}

static uint32_t lag(const struct slr_comm *c, enum slr_flag_kind kind, int owner, int reader)
{
    uint32_t have = atomic_load(slr_flag(c->ring.flags, c->nranks, kind, owner, reader));
    uint32_t issued = atomic_load(&c->ring.issued);
    return slr_flag_reached(have, issued) ? 0 : issued - have;
}

/* The rank that the gather hangs on: the one whose own words, to all ranks, are furthest behind. Whoever waits for it
 * is behind as well, but has at least said what it could. This rank itself, when work that stands before the gather
 * holds it up. */
static int slowest(const struct slr_comm *c)
{
    uint64_t most = 0;
    int who = -1;
    for (int step = 1; step <= c->nranks; step++) {
        int p = (c->rank + step) % c->nranks;
        uint64_t sum = 0;
        for (int r = 0; r < c->nranks; r++)
            if (r != p)
                sum += lag(c, SLR_FLAG_READY, p, r) + lag(c, SLR_FLAG_DONE, r, p);
        if (sum > most) {
            most = sum;
            who = p;
        }
    }
    return who;
}

/* Progress is any change of the number of enqueued pieces or of the words that this rank waits for. */
static uint32_t progress(const struct slr_comm *c)
{
    uint32_t sum = atomic_load(&c->ring.issued);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            sum += atomic_load(slr_flag(c->ring.flags, c->nranks, SLR_FLAG_READY, r, c->rank)) +
                   atomic_load(slr_flag(c->ring.flags, c->nranks, SLR_FLAG_DONE, c->rank, r)) +
                   atomic_load(slr_flag(c->ring.flags, c->nranks, SLR_FLAG_DONE, r, c->rank));
    return sum;
}

static void check_stall(struct slr_comm *c)
{
    uint32_t now = progress(c);
    uint64_t t = slr_now_ms();
    if (now != c->seen_progress || slr_ring_complete(&c->ring)) {
        c->seen_progress = now;
        c->seen_ms = t;
        c->warned = false;
        return;
    }
    uint64_t still = t - c->seen_ms, warn = slr_get(SLR_S_STALL_WARN), limit = slr_get(SLR_S_STALL_TIMEOUT);
    if (limit && still >= limit)
        slr_comm_fail(c, SLR_TIMEOUT, slowest(c), "no progress within SLIPRING_STALL_TIMEOUT");
    if (warn && still >= warn && !c->warned) {
        c->warned = true;
        slr_log(SLR_LOG_WARN, "stalled", "comm=%s crank=%d peer=%d call=%llu piece=%u ms=%llu msg=%s", c->name, c->rank,
                slowest(c), (unsigned long long)c->substituted, atomic_load(&c->ring.issued), (unsigned long long)still,
                "a gather waits for this peer, or for work that stands before it on the application's streams");
    }
}

static void look_locked(struct slr_comm *c)
{
    slr_shared_watch_peers(&c->shared);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            check_peer(c, r);
    check_stall(c);
    if (atomic_load(&c->error) == ncclSuccess)
        return;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank && unreliable(c, r))
            (atomic_load(&c->told) ? slr_ring_release : slr_ring_release_sends)(&c->ring, r);
}

void slr_watchdog_look_failed(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks && c->pass == SLR_R_RING; r++)
        if (r != c->rank && check_failed(c, r))
            return;
}

void slr_watchdog_look(struct slr_comm *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (c->pass != SLR_R_RING)
        return;
    pthread_mutex_lock(&lock);
    look_locked(c);
    pthread_mutex_unlock(&lock);
}

static void look(struct slr_comm *c, void *ctx)
{
    (void)ctx;
    slr_watchdog_look(c);
}

static void serve_communicators(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        slr_connect_tick(list[i]);
        slr_offers_tick(list[i]);
        slr_symmetry_tick(list[i]);
        slr_trace_tick(list[i]);
        slr_comm_put(list[i]);
    }
}

static void watch(void)
{
    slr_comm_each(look, NULL);
}

static void rest(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static void keep_house(void)
{
    slr_mail_deliver();
    serve_communicators();
    slr_comm_reap_orphans();
    slr_retire_tick();
    slr_block_return_idle();
}

static void *run(void *arg)
{
    struct loop *l = arg;
    slr_guard++; /* whatever this thread calls is slipring's own */
    for (;;) {
        pthread_mutex_lock(&l->working);
        if (!l->stopped)
            l->work();
        pthread_mutex_unlock(&l->working);
        l->pause(TICK_MS);
    }
    return NULL;
}

void slr_watchdog_stop(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += STOP_WAIT_S;
    for (unsigned i = 0; i < LOOPS; i++) {
        if (pthread_mutex_timedlock(&loops[i].working, &end) != 0)
            continue; /* it is in a CUDA call that does not return */
        loops[i].stopped = true;
        pthread_mutex_unlock(&loops[i].working);
    }
}

static void start(void)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* the application's signals go to the application's threads */
    for (unsigned i = 0; i < LOOPS; i++) {
        pthread_t t;
        int r = pthread_create(&t, NULL, run, &loops[i]);
        if (r != 0) {
            slr_log(SLR_LOG_ERROR, "no_watchdog", "errno=%d msg=%s", r,
                    "dead peers will not be noticed, or memory not be given back");
            continue;
        }
        pthread_setname_np(t, loops[i].name);
        pthread_detach(t);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* What slipring holds goes before an allocation of the program fails; not for one of its own (cache/staging.h). */
static bool short_of_memory(void)
{
    if (slr_process_off())
        return false;
    bool revoked = slr_offers_give_up();
    return (slr_guard == 0 && slr_connect_give_up()) || revoked;
}

void slr_watchdog_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    slr_block_on_shortage(short_of_memory);
}
