/* SPDX-License-Identifier: Apache-2.0 */
/* The times of a communicator's calls. */
#include <string.h>
#include "base/status.h"
#include "base/settings.h"
#include "kernels/gemm.h"
#include "plugin/comm/call.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/comm.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/trials/trials.h"

static struct slr_samples *known(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    for (unsigned i = 0; i < t->rows; i++)
        if (t->row[i].gemm == gemm && t->row[i].site == site)
            return &t->row[i];
    return NULL;
}

bool slr_trials_has_tried(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    const struct slr_samples *row = known(t, gemm, site);
    return row && slr_samples_tried(row, t->rounds);
}

/* A time of one call of a group is that of the others, too. It says something of a way when all that are tried went
 * that, and of a call when a GEMM waits for it. Else what the program takes has to tell. */
static bool tells(const struct slr_trials *t, const struct slr_clock *clock)
{
    return !t->runs_group || (clock->gemm && (t->ways & (t->ways - 1)) == 0);
}

/* Before ways are tried the site's period is to be found; behind that, whether other GEMMs have come. */
static void watched(struct slr_trials *t, struct slr_trial_site *s, const struct slr_clock *clock)
{
    if (!tells(t, clock))
        return;
    if (s->state == SLR_SITE_TRYING) {
        slr_trial_gemms_add(&s->behind, clock->gemm);
        return;
    }
    const bool waits = !clock->gemm && !t->in_force.chosen[clock->site]; /* for a duel, in which there is all to try */
    s->watched++;
    s->strangers += !clock->known && !waits && !slr_trials_has_tried(t, clock->gemm, clock->site);
}

static struct slr_samples *row_of(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    struct slr_samples *row = known(t, gemm, site);
    if (row || t->rows == SLR_TRIALS_ROWS)
        return row;
    row = &t->row[t->rows++];
    *row = (struct slr_samples){.gemm = gemm, .site = site};
    return row;
}

/* It is not one of those whose site's next call is awaited any more. */
static void leave_site(struct slr_trials *t, const struct slr_clock *clock)
{
    struct slr_clock **at = &t->site[clock->site].latest;
    while (*at && *at != clock)
        at = &(*at)->mate;
    if (*at)
        *at = clock->mate;
}

static void stop(struct slr_trials *t, struct slr_trial_run *run)
{
    struct slr_clock *clock = run->clock;
    t->site[clock->site].told += tells(t, clock);
    if (clock->way == SLR_TRIALS_WATCHED) {
        watched(t, &t->site[clock->site], clock);
        clock->state = SLR_CLOCK_FREE; /* its time is not of interest */
        t->clocks_out--;
    } else if (!tells(t, clock) || !slr_clock_stop(clock)) {
        clock->state = SLR_CLOCK_FREE;
        leave_site(t, clock);
        t->clocks_out--;
    } else if (clock->gemm) {
        struct slr_samples *row = row_of(t, clock->gemm, clock->site);
        if (row)
            row->what = run->consumer;
    }
    run->clock = NULL;
    atomic_store(&run->more, false);
    atomic_store(&run->end, 0);
    atomic_fetch_sub(&slr_gemm_watch, 1);
}

void slr_trials_stop(struct slr_trials *t)
{
    for (unsigned i = 0; i < atomic_load(&t->runs); i++)
        if (t->run[i].clock)
            stop(t, &t->run[i]);
    atomic_store(&t->runs, 0);
}

bool slr_trials_same_group(const struct slr_trials *t)
{
    const struct slr_group *open = slr_group_now();
    return open && atomic_load(&t->runs) && open->number == t->runs_group;
}

/* Its site has not been called for so long that it may never be. */
static void forget(struct slr_trials *t, struct slr_clock *clock)
{
    clock->open = false;
    leave_site(t, clock);
}

/* The next call of its site is of the same group. */
static bool is_mate(const struct slr_trials *t, const struct slr_clock *clock)
{
    if (slr_trials_same_group(t))
        for (unsigned i = 0; i < atomic_load(&t->runs); i++)
            if (t->run[i].clock == clock)
                return true;
    return false;
}

void slr_trials_read(struct slr_trials *t, int site, CUstream stream)
{
    struct slr_clock *clock;
    float ms;
    if (site >= 0 && t->site[site].latest && !is_mate(t, t->site[site].latest)) {
        slr_clock_next(t->site[site].latest, stream);
        t->site[site].latest = NULL;
    }
    while ((clock = slr_clock_read(t->clocks, t->agreed.calls, &ms)) != NULL) {
        t->clocks_out--;
        if (clock->open)
            forget(t, clock);
        else if (ms > 0 && clock->stage == t->site[clock->site].again)
            slr_samples_add(row_of(t, clock->gemm, clock->site), clock, ms);
    }
}

bool slr_trials_awaits(const struct slr_trials *t, uint32_t site)
{
    for (int i = 0; i < SLR_CLOCKS && t->clocks_out; i++)
        if (t->clocks[i].state != SLR_CLOCK_FREE && t->clocks[i].site == site && &t->clocks[i] != t->making)
            return true;
    return false;
}

static void describe(struct slr_trials *t, struct slr_clock *clock, const struct slr_call *call)
{
    struct slr_trial_site *s = &t->site[call->turn.site];
    clock->site = (uint32_t)call->turn.site;
    clock->way = call->turn.trying ? call->turn.way : SLR_TRIALS_WATCHED;
    clock->round = call->turn.round;
    clock->stage = s->again;
    clock->call = call->place;
    clock->open = call->turn.trying;
    clock->known = slr_known_consumer(t, clock->site, &(struct slr_consumer){0}) != NULL;
    if (!call->turn.trying)
        return;
    clock->mate = s->latest;
    s->latest = clock;
}

/* Each call of a group is measured, from its place in the group on. */
static void begin(const struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    const struct slr_group *open = slr_group_now();
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    if (!slr_trials_same_group(t))
        slr_trials_stop(t); /* of a small gather, whose call has not */
    t->runs_group = open ? open->number : 0;
    const unsigned at = atomic_load(&t->runs);
    struct slr_trial_run *run = &t->run[at];
    struct slr_clock *clock = at < SLR_TRIALS_TOGETHER ? slr_clock_begin(t->clocks, call->stream) : NULL;
    slr_shared_leave();
    if (!clock) {
        t->site[call->turn.site].behind.calls = 0; /* there is a gap */
        return;
    }
    t->clocks_out++;
    describe(t, clock, call);
    run->clock = clock;
    atomic_store(&run->begin, (uintptr_t)call->recv);
    atomic_store(&run->end, (uintptr_t)call->recv + call->shard * (size_t)call->comm->nranks);
    atomic_store(&t->runs, at + 1);
    atomic_fetch_add(&slr_gemm_watch, 1);
}

static void gathered_by(const struct slr_call *call, CUstream end)
{
    struct slr_trials *t = call->comm->trials;
    if (!atomic_load(&t->runs) || slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    for (unsigned i = 0; i < atomic_load(&t->runs); i++)
        if (t->run[i].clock && t->run[i].clock->call == call->place)
            slr_clock_gathered(t->run[i].clock, end);
    slr_shared_leave();
}

static void throw_away(struct slr_trials *t)
{
    if (!t->making)
        return;
    t->making->state = SLR_CLOCK_FREE;
    t->making = NULL;
    t->clocks_out--;
}

void slr_trials_make(struct slr_comm *c, int site, const struct slr_consumer *gemm, CUstream stream)
{
    struct slr_trials *t = c->trials;
    throw_away(t); /* its call has not come */
    if (site < 0 || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    t->making = slr_clock_begin(t->clocks, stream);
    slr_shared_leave();
    if (!t->making)
        return;
    t->clocks_out++;
    t->making->site = (uint32_t)site;
    t->made = *gemm;
}

static void sent(const struct slr_call *call, CUstream end)
{
    struct slr_trials *t = call->comm->trials;
    struct slr_clock *clock = t->making;
    if (!clock || (int)clock->site != t->now.site || !t->now.trying ||
        slr_shared_enter(&call->comm->shared) != SLR_OK) {
        throw_away(t);
        return;
    }
    t->making = NULL;
    clock->way = t->now.way;
    clock->round = t->now.round;
    clock->stage = t->site[t->now.site].again;
    clock->call = t->agreed.calls;
    clock->open = true;
    clock->known = false;
    clock->gemm = t->made.m ? slr_consumer_hash(&t->made) : 0;
    t->site[t->now.site].latest = clock;
    slr_clock_gathered(clock, end);
    slr_shared_leave();
    struct slr_samples *row = row_of(t, clock->gemm, clock->site);
    if (row)
        row->what = t->made;
    if (!slr_clock_stop(clock)) {
        t->site[t->now.site].latest = NULL;
        t->clocks_out--;
    }
}

/* The clock of a call that a GEMM produces runs since that GEMM. */
static void begins(const struct slr_call *call, const struct slr_watched *w)
{
    (void)w;
    if (call->measured && !call->flow->kind->produced && !call->kept)
        begin(call);
}

static void end(const struct slr_call *call, CUstream behind)
{
    (call->flow->kind->produced ? sent : gathered_by)(call, behind);
}

static void enqueued(const struct slr_call *call, const struct slr_watched *w)
{
    if (call->measured && w->status == SLR_OK)
        end(call, w->end);
}

static void begins_without_lock(const struct slr_call *call)
{
    if (!call->measured || call->flow->kind->produced)
        return;
    slr_lane_lock(call->comm->lane);
    begin(call);
    slr_lane_unlock(call->comm->lane);
}

/* In progress: it will have left once more, when NCCL has put it on the stream. */
static void left(const struct slr_call *call, ncclResult_t r)
{
    if (!call->measured || r == ncclInProgress || slr_in_group()) /* its GEMM's end counts */
        return;
    slr_lane_lock(call->comm->lane);
    end(call, call->stream);
    slr_lane_unlock(call->comm->lane);
}

const struct slr_watcher slr_trials_watcher = {
    .begins = begins, .enqueued = enqueued, .leaves = begins_without_lock, .left = left, .kept = begins_without_lock};

/* Which operand lies in the buffer that is being gathered; -1: none. */
static int gathered(const struct slr_trial_run *run, const struct slr_gemm *gemm)
{
    const uintptr_t begin = atomic_load(&run->begin), end = atomic_load(&run->end);
    const uintptr_t a = (uintptr_t)gemm->a, b = (uintptr_t)gemm->b;
    if (b >= begin && b < end)
        return SLR_CONSUMER_B;
    return a >= begin && a < end ? SLR_CONSUMER_A : -1;
}

/* It reads all that is being gathered, as far as its sizes tell. */
static bool reads_all(const struct slr_comm *c, const struct slr_trial_run *run, const struct slr_gemm *gemm)
{
    struct slr_gather g = {.recv = atomic_load(&run->begin)};
    size_t bytes;
    g.plan.shard = (atomic_load(&run->end) - atomic_load(&run->begin)) / (size_t)c->nranks;
    return strcmp(slr_gemm_reads(gemm, &g, c->nranks, &bytes), "all") == 0;
}

/* Under the communicator's lock. A GEMM that needs all of the gather may stand right before one that consumes it in
 * parts, and runs beside that (kernels/gemm.h): then both are measured, and it is that one's row. `end`: where it was
 * enqueued. */
static void consumed(struct slr_comm *c, struct slr_trial_run *run, const struct slr_gemm *gemm, CUstream stream,
                     CUstream end)
{
    struct slr_trials *t = c->trials;
    const int operand = gathered(run, gemm);
    const bool second = atomic_load(&run->more);
    if (second && (operand < 0 || stream != run->more_on || !reads_all(c, run, gemm)))
        stop(t, run);
    if (!run->clock || operand < 0 || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (!slr_stream_captures(stream)) {
        run->consumer = slr_trials_name(gemm, operand);
        run->clock->gemm = slr_consumer_hash(&run->consumer);
        run->clock->known = slr_known_consumer(t, run->clock->site, &run->consumer) != NULL;
        slr_clock_consumed(run->clock, end);
        run->more_on = stream;
        if (!second && slr_gemm_needs_all(gemm, operand == SLR_CONSUMER_A, (enum slr_sums)slr_get(SLR_S_SPLIT_K)))
            atomic_store(&run->more, true);
        else
            stop(t, run);
    }
    slr_shared_leave();
}

static bool concerns(const struct slr_trials *t, const struct slr_gemm *gemm)
{
    for (unsigned i = 0; i < atomic_load(&t->runs); i++)
        if (atomic_load(&t->run[i].more) || gathered(&t->run[i], gemm) >= 0)
            return true;
    return false;
}

void slr_trials_gemm(struct slr_gemm *gemm, CUstream stream, const struct slr_comm *aside)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        struct slr_comm *c = comms[i];
        if (c->trials && concerns(c->trials, gemm) && slr_gemm_describe(gemm) == SLR_R_FUSED) {
            slr_lane_lock(c->lane);
            for (unsigned k = 0; k < atomic_load(&c->trials->runs); k++)
                if (c->trials->run[k].clock)
                    consumed(c, &c->trials->run[k], gemm, stream, c == aside ? c->lane->ring.aside : stream);
            slr_lane_unlock(c->lane);
        }
        slr_comm_put(c);
    }
}
