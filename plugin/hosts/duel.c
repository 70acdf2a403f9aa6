/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a communicator's calls go, found by duels, one after the other, each of one question:
 *
 *   gathers    over hosts, or by NCCL
 *   pieces     then, whether what comes from another host comes in small ones
 *   scatters   reduce-scatters over hosts, or by NCCL: where SLIPRING_REDUCE_SCATTER leaves it open
 *   reduces    all-reduces likewise, SLIPRING_ALL_REDUCE
 *
 * Each is of what the program takes (trials/program.h) over turns of the communicator's calls, of all kinds:
 *
 *   before     gathers go over hosts, so that memory is mapped and the rails are warm, until it is known what an
 *              iteration is: by the calls' sizes alone, which are the same on all ranks. Pieces are large, sums NCCL's
 *   turns      the number of the call says which way it goes, as to the question; two events a turn say how long it took
 *   asking     behind the last turn a thread waits for its events, and tells all ranks by the shadow what this one has
 *              measured. Calls go as before the turns
 *   known      from a call on that is the same on all ranks, SLACK calls and more behind the turns: all have the same times,
 *              and come to the same answer. A rank that comes there and does not know yet waits for its thread
 *
 * Why that wait ends: the thread waits for what ranks have put on their devices before the end of the turns, and for the
 * other ranks' threads; they begin when their ranks have made the turns' last call. So a rank waits for ranks that are
 * SLACK calls behind it, and would wait for them in the gather itself. In a program where that many gathers are enqueued
 * before another rank's program goes on because of something that comes behind them, it would not end: one has to make
 * SLACK gathers without their results being needed anywhere.
 *
 * A rank whose thread fails, as a peer has gone or there is no memory, does not know what the others have chosen: its
 * communicator has failed. One that is aborted ends the thread's wait, and the call's. */
#include <assert.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/settings.h"
#include "base/wait.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/hosts/hosts.h"
#include "plugin/produce/produce.h"
#include "plugin/trials/period.h"
#include "plugin/trials/program.h"
#include "plugin/util/process.h"

enum {
    LEAST_CALLS = 48, /* measured of a turn */
    SLACK = 64,       /* calls from the last turn's end to the answer */
    LATER = 4         /* times a duel's calls, until the next one */
};

enum asking { ASKS_NOTHING, ASKS, KNOWS, LOST };
enum question { GATHERS, PIECES, SCATTERS, REDUCES, QUESTIONS };

struct answer {
    int way;        /* outside of turns: SLR_WAY_RING: over hosts, in small pieces */
    bool met;       /* there has been such a call, or one for which it matters */
    bool open;      /* it is asked, or is going to be */
    uint32_t least; /* calls of the next duel's turns */
    uint64_t due;   /* from which call on */
    struct slr_block_pairs pairs;
};

struct slr_duel {
    uint32_t rounds;
    uint64_t calls; /* made */
    uint64_t holds; /* from this call on what has been found holds; 0: no duel is under way */
    enum question now;
    struct answer answer[QUESTIONS];
    struct slr_trial_calls seen;
    struct slr_blocks blocks;
    float ms[2][SLR_TRIAL_ROUNDS]; /* of the slowest rank */
    uint64_t turn;                 /* of the shadow */
    enum asking asking;            /* under the shadow's lock */
};

bool slr_hosts_duel_make(struct slr_hosts *h)
{
    h->duel = calloc(1, sizeof *h->duel);
    return h->duel != NULL;
}

void slr_hosts_duel_open(struct slr_hosts *h, uint32_t rounds)
{
    h->duel->rounds = rounds;
    for (int q = 0; q < QUESTIONS; q++)
        h->duel->answer[q] =
            (struct answer){.way = SLR_WAY_NCCL, .least = LEAST_CALLS, .due = slr_get(SLR_S_TRIALS_AFTER)};
    h->duel->answer[GATHERS].way = SLR_WAY_RING;
    for (int q = SCATTERS; q <= REDUCES; q++)
        if (slr_get(q == SCATTERS ? SLR_S_REDUCE_SCATTER : SLR_S_ALL_REDUCE) == SLR_SCATTERS_ALWAYS) {
            h->duel->answer[q].way = SLR_WAY_RING;
            h->duel->answer[q].met = true; /* and not asked */
        }
}

/* ---- asking: the thread ---- */

static bool ask(struct slr_hosts *h)
{
    struct slr_duel *d = h->duel;
    float own[2][SLR_TRIAL_ROUNDS], (*all)[2][SLR_TRIAL_ROUNDS] = calloc((size_t)h->shadow.ranks, sizeof *all);
    static_assert(sizeof own <= SLR_SHADOW_BYTES, "a rank's times");
    bool told = all && slr_shadow_begin(&h->shadow, d->turn);
    while (told && !slr_blocks_over(&d->blocks, d->blocks.upto + 1)) {
        slr_sleep_ms(1);
        told = slr_shadow_goes_on(&h->shadow);
    }
    if (told) {
        slr_blocks_read(&d->blocks, own);
        told = slr_shadow_exchange(&h->shadow, own, all, sizeof own, SLR_NO_DEADLINE);
    }
    for (int r = 0; told && r < h->shadow.ranks; r++)
        slr_blocks_slowest(d->ms, all[r], d->rounds, r == 0);
    slr_shadow_over(&h->shadow, d->turn);
    free(all);
    return told;
}

static void set(struct slr_hosts *h, enum asking asking)
{
    pthread_mutex_lock(&h->shadow.lock);
    h->duel->asking = asking;
    pthread_cond_broadcast(&h->shadow.changed);
    pthread_mutex_unlock(&h->shadow.lock);
}

static void *run(void *arg)
{
    struct slr_comm *whole = arg;
    slr_guard++;
    bool told = false;
    if (slr_context_enter(whole->hosts->ctx) == SLR_OK) {
        told = ask(whole->hosts);
        slr_shared_leave();
    }
    set(whole->hosts, told ? KNOWS : LOST);
    slr_comm_put(whole);
    slr_guard--;
    return NULL;
}

static void begin_asking(struct slr_comm *whole)
{
    pthread_t thread;
    struct slr_hosts *h = whole->hosts;
    h->duel->turn = slr_shadow_take(&h->shadow);
    set(h, ASKS);
    slr_comm_hold(whole);
    if (slr_thread_start(&thread, "slipring-duel", run, whole) == 0) {
        pthread_detach(thread);
        return;
    }
    set(h, LOST);
    slr_comm_put(whole);
}

static enum asking await(struct slr_hosts *h)
{
    pthread_mutex_lock(&h->shadow.lock);
    while (h->duel->asking == ASKS)
        pthread_cond_wait(&h->shadow.changed, &h->shadow.lock);
    const enum asking asking = h->duel->asking;
    pthread_mutex_unlock(&h->shadow.lock);
    return asking;
}

bool slr_hosts_duel_end(struct slr_hosts *h)
{
    const bool used = slr_shadow_end(&h->shadow);
    if (h->duel)
        await(h);
    return used;
}

void slr_hosts_duel_close(struct slr_hosts *h)
{
    if (h->duel)
        slr_blocks_close(&h->duel->blocks);
}

/* ---- calls ---- */

/* The same on all ranks. Where it is not certain which is faster NCCL has the calls, or pieces are large, and there will be
 * another duel, with turns twice as long, which adds up with this one. */
static void judge(const struct slr_comm *whole)
{
    static const char *const of[QUESTIONS] = {
        [PIECES] = "pieces", [SCATTERS] = "reducescatter", [REDUCES] = "allreduce"};
    struct slr_duel *d = whole->hosts->duel;
    struct answer *a = &d->answer[d->now];
    const bool again = a->pairs.n > 0;
    slr_blocks_add(&a->pairs, d->ms, d->rounds);
    const int felt = slr_blocks_judge(&a->pairs, again);
    if (whole->rank == 0)
        slr_blocks_tell(whole, 0, of[d->now], &d->blocks.turns, d->ms, &a->pairs, felt);
    a->way = felt == SLR_WAY_RING ? SLR_WAY_RING : SLR_WAY_NCCL;
    a->open = felt < 0;
    a->due = d->calls + LATER * (d->blocks.upto - d->blocks.turns.after);
    a->least = 2 * (d->blocks.turns.run - SLR_DUEL_FIRST);
    if (d->now == GATHERS && felt == SLR_WAY_RING)
        d->answer[PIECES].open = d->answer[PIECES].met;
}

/* False: what the others have chosen is not known. */
static bool learn(const struct slr_comm *whole)
{
    struct slr_duel *d = whole->hosts->duel;
    const bool knows = await(whole->hosts) == KNOWS;
    struct slr_comm *inside = knows ? NULL : slr_comm_inside(whole);
    d->holds = 0;
    if (knows)
        judge(whole);
    for (int q = 0; q < QUESTIONS && !knows; q++)
        d->answer[q].open = false;
    if (inside)
        slr_comm_fail(inside, SLR_PEER, -1, "the hosts' times could not be exchanged");
    slr_comm_put(inside);
    return knows;
}

/* Which one is to be asked from here on; QUESTIONS: none. */
static enum question next_question(const struct slr_duel *d, uint64_t number)
{
    if (!slr_trial_calls_enough(&d->seen, number, SLR_TRIAL_ENOUGH * slr_get(SLR_S_TRIALS_AFTER)))
        return QUESTIONS;
    enum question q = GATHERS;
    while (q < QUESTIONS && !(d->answer[q].open && number >= d->answer[q].due))
        q++;
    return q;
}

static bool any_open(const struct slr_duel *d)
{
    for (int q = 0; q < QUESTIONS; q++)
        if (d->answer[q].open)
            return true;
    return false;
}

static void begin(struct slr_duel *d, uint64_t number, enum question what)
{
    const uint32_t period = slr_trial_calls_period(&d->seen, 0);
    const struct slr_turns turns = {.after = number,
                                    .rounds = d->rounds,
                                    .stage = SLR_STAGE_DUEL,
                                    .run = slr_duel_run(1, 0, false, period, d->answer[what].least)};
    d->now = what;
    slr_blocks_open(&d->blocks, &turns);
    d->holds = d->blocks.upto + (turns.run > SLACK ? turns.run : SLACK);
}

static void look(const struct slr_call *call, uint64_t number)
{
    struct slr_hosts *h = call->comm->hosts;
    if (slr_blocks_wants(&h->duel->blocks, number) && slr_context_enter(h->ctx) == SLR_OK) {
        slr_blocks_call(&h->duel->blocks, number, call->stream);
        slr_shared_leave();
    }
    if (number == h->duel->blocks.upto)
        begin_asking(call->comm);
}

/* Of call `number`: what the turn says, or what has been found. */
static int way_of(const struct slr_duel *d, enum question q, uint64_t number, bool *turn)
{
    int way;
    uint32_t round;
    bool measured;
    *turn = d->holds && q == d->now && slr_way_of_call(number, &d->blocks.turns, &way, &round, &measured);
    return *turn ? way : d->answer[q].way;
}

static enum slr_reason reason_of(const struct slr_duel *d, enum question kind, int way, bool turn)
{
    if (way == SLR_WAY_RING)
        return SLR_R_HOSTS;
    const bool untried = kind >= SCATTERS && d->answer[kind].pairs.n == 0;
    return turn ? SLR_R_TRIAL : untried ? SLR_R_SCATTER_UNTRIED : SLR_R_MEASURED;
}

enum slr_reason slr_hosts_way(const struct slr_call *call)
{
    struct slr_hosts *h = call->comm->hosts;
    struct slr_duel *d = h->duel;
    const enum question kind = !call->flow->kind->sends_all ? GATHERS : call->flow->kind->gets_all ? REDUCES : SCATTERS;
    if (!d->answer[kind].met) {
        d->answer[kind].met = true;
        d->answer[kind].open = d->rounds > 0;
    }
    if (!any_open(d) && !d->holds)
        return reason_of(d, kind, d->answer[kind].way, false);
    const uint64_t number = d->calls++;
    if (kind == GATHERS && !slr_get(SLR_S_CHUNKS))
        d->answer[PIECES].met |= slr_arrival_bytes(call->shard, 0, true) < slr_arrival_bytes(call->shard, 0, false);
    slr_trial_calls_add(&d->seen, slr_mix(call->count, (uint64_t)call->type ^ (uint64_t)kind << 8));
    if (d->holds && number >= d->holds && !learn(call->comm))
        return SLR_R_HOSTS; /* which says what has failed */
    const enum question q = d->holds ? QUESTIONS : next_question(d, number);
    if (q != QUESTIONS)
        begin(d, number, q);
    if (d->holds)
        look(call, number);
    bool turn;
    h->small = way_of(d, PIECES, number, &turn) == SLR_WAY_RING;
    const int way = way_of(d, kind, number, &turn);
    return reason_of(d, kind, way, turn);
}
