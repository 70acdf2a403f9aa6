/* SPDX-License-Identifier: Apache-2.0 */
/* The three threads of a process that has a communicator on the ring, or one that is measured.
 *
 *   slipring          the watchdog (watchdog.c), every tick of 50 ms
 *   slipring-memory   the house-keeping thread, every tick and when a message comes (oob.h): exports
 *                     memory and maps that of peers (exports.h), takes the steps of connecting and parting
 *                     (connect.h), logs where buffers lay (places.h), writes what was measured
 *                     (timeline.h)
 *   slipring-return   the returning thread, every tick and when there is something to be returned:
 *                     closes mappings (exports.h), takes aborted communicators apart, frees what peers
 *                     have let go (exports.h) and idle memory (cache/blocks.h)
 *
 * What may wait for the device (closing mappings, freeing memory: drivers wait for the context's work there, and that
 * may wait for a peer) is the third thread's. So it never keeps the watchdog from seeing that the peer is gone, nor
 * the second one from mapping what that peer waits for. None puts work on a stream of the application. */
#include "plugin/lifecycle/lifecycle_impl.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "base/counters.h"
#include "base/log.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "cache/staging.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/connect/connect.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/memory/exports.h"
#include "plugin/memory/registration.h"
#include "plugin/util/process.h"
#include "plugin/places/places.h"
#include "plugin/timeline/timeline.h"
#include "plugin/tuner/tuner.h"

#define TICK_MS 50
#define STOP_WAIT_S 1

/* What each thread does at a tick, and how it waits for the next one. */
static void watch(void), keep_house(void), give_back(void), rest(unsigned ms);
static struct loop {
    void (*work)(void), (*pause)(unsigned ms);
    const char *name;
    pthread_mutex_t working; /* held while it works */
    bool stopped;            /* under `working` */
} loops[] = {
    {.work = watch, .pause = rest, .name = "slipring", .working = PTHREAD_MUTEX_INITIALIZER},
    {.work = keep_house, .pause = slr_oob_wait, .name = "slipring-memory", .working = PTHREAD_MUTEX_INITIALIZER},
    {.work = give_back,
     .pause = slr_exports_return_wait,
     .name = "slipring-return",
     .working = PTHREAD_MUTEX_INITIALIZER},
};
#define LOOPS (sizeof loops / sizeof *loops)

/* What the process has done, for the posts of its ranks. */
static void fill_shown(struct slr_shown *now)
{
    static uint64_t seen, when;
    struct slr_block_stats blocks;
    uint64_t made = 0;
    slr_block_stats(&blocks);
    for (int i = 0; i < SLR_COLLECTIVES; i++) {
        now->calls[i] = atomic_load_explicit(&slr_counters.of[i].calls, memory_order_relaxed);
        now->moved[i] = atomic_load_explicit(&slr_counters.of[i].moved, memory_order_relaxed);
        made += now->calls[i];
    }
    if (made != seen)
        when = slr_now_ms();
    seen = made;
    now->called_ms = when;
    now->staging = slr_staging_held();
    now->kept = blocks.kept_bytes;
}

static void show(struct slr_comm *c, struct slr_shown *now)
{
    const uint64_t *word = (const uint64_t *)now;
    now->ring = c->substituted;
    for (unsigned i = 0; i < SLR_SHOWN; i++)
        atomic_store_explicit(&c->shared.control->post[c->rank].shown[i], word[i], memory_order_relaxed);
}

static void look(struct slr_comm *c, void *now)
{
    if (c->shared.control)
        show(c, now);
    slr_watchdog_look(c);
}

/* Each communicator with a use of its own and without the registry's lock: a call of the application must
 * find its communicator meanwhile. */
static void each_communicator(void (*visit)(struct slr_comm *c))
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        visit(list[i]);
        slr_comm_put(list[i]);
    }
}

static void serve(struct slr_comm *c)
{
    slr_connect_tick(c);
    slr_registered_follow(c);
    slr_exports_tick(c);
    slr_places_tick(c);
    slr_timeline_tick(c);
}

/* Under the registry's lock, so that no communicator ends meanwhile: nothing here waits. */
static void watch(void)
{
    struct slr_shown now;
    fill_shown(&now);
    slr_comm_each(look, &now);
}

static void rest(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static void answer_messages(void)
{
    struct slr_oob_message m;
    while (slr_oob_next(&m)) {
        if (m.kind == SLR_OOB_ASK)
            slr_exports_asked(m.comm, m.from, m.index, m.generation);
        else
            slr_exports_given(m.comm, m.from, m.index, m.generation, &m.pieces);
        slr_oob_done(&m);
    }
}

/* Messages first: what they bring is mapped in the same round. */
static void keep_house(void)
{
    answer_messages();
    each_communicator(serve);
    slr_tune_keep_tick();
    slr_counters_tick(slr_now_ms());
}

/* What the driver may make wait for all work of a device, and that for a peer. The peer may wait for what
 * the thread above does. */
static void give_back(void)
{
    each_communicator(slr_exports_return);
    slr_comm_reap_orphans();
    slr_deferred_free_tick();
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

void slr_threads_stop(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end); /* the clock of pthread_mutex_timedlock() */
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
    for (unsigned i = 0; i < LOOPS; i++) {
        pthread_t t;
        const int r = slr_thread_start(&t, loops[i].name, run, &loops[i]);
        if (r == 0)
            pthread_detach(t);
        else
            slr_log(SLR_LOG_ERROR, "no_watchdog", "errno=%d msg=%s", r,
                    "dead peers will not be noticed, or memory not be given back");
    }
}

/* What slipring holds goes before an allocation of the program fails; not for one of its own (cache/staging.h). */
static bool short_of_memory(void)
{
    if (slr_process_off())
        return false;
    bool revoked = slr_exports_give_up(); /* gathers go on without exports, but not without staging */
    return (slr_guard == 0 && slr_connect_give_up()) || revoked;
}

void slr_threads_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    slr_block_on_shortage(short_of_memory);
}
