/* SPDX-License-Identifier: Apache-2.0 */
/* The times of a communicator's calls. */
#include <string.h>
#include "base/status.h"
#include "base/settings.h"
#include "kernels/gemm.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/watch.h"
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

/* Before ways are tried the site's period is to be found; behind that, whether other GEMMs have come. */
static void watched(struct slr_trials *t, struct slr_trial_site *s, const struct slr_clock *clock)
{
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

void slr_trials_stop(struct slr_trials *t)
{
    if (!t->running)
        return;
    if (t->running->way == SLR_TRIALS_WATCHED) {
        watched(t, &t->site[t->running->site], t->running);
        t->running->state = SLR_CLOCK_FREE; /* its time is not of interest */
        t->clocks_out--;
    } else if (!slr_clock_stop(t->running)) {
        t->site[t->running->site].latest = NULL;
        t->clocks_out--;
    } else if (t->running->gemm) {
        struct slr_samples *row = row_of(t, t->running->gemm, t->running->site);
        if (row)
            row->what = t->consumer;
    }
    t->running = NULL;
    atomic_store(&t->more, false);
    atomic_store(&t->end, 0);
    atomic_fetch_sub(&slr_gemm_watch, 1);
}

/* Its site has not been called for so long that it may never be. */
static void forget(struct slr_trials *t, struct slr_clock *clock)
{
    clock->open = false;
    if (t->site[clock->site].latest == clock)
        t->site[clock->site].latest = NULL;
}

void slr_trials_read(struct slr_trials *t, int site, CUstream stream)
{
    struct slr_clock *clock;
    float ms;
    if (site >= 0 && t->site[site].latest) {
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

static void begin(const struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    slr_trials_stop(t); /* of a small gather, whose call has not */
    t->running = slr_clock_begin(t->clocks, call->stream);
    slr_shared_leave();
    if (!t->running) {
        t->site[t->now.site].behind.calls = 0; /* there is a gap */
        return;
    }
    t->clocks_out++;
    t->running->site = (uint32_t)t->now.site;
    t->running->way = t->now.trying ? t->now.way : SLR_TRIALS_WATCHED;
    t->running->round = t->now.round;
    t->running->stage = t->site[t->now.site].again;
    t->running->call = t->agreed.calls;
    t->running->open = t->now.trying;
    t->running->known = slr_known_consumer(t, (uint32_t)t->now.site, &(struct slr_consumer){0}) != NULL;
    if (t->now.trying)
        t->site[t->now.site].latest = t->running;
    atomic_store(&t->begin, (uintptr_t)call->recv);
    atomic_store(&t->end, (uintptr_t)call->recv + call->shard * (size_t)call->comm->nranks);
    atomic_fetch_add(&slr_gemm_watch, 1);
}

static void gathered_by(const struct slr_call *call, CUstream end)
{
    struct slr_trials *t = call->comm->trials;
    if (!t->running || slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    slr_clock_gathered(t->running, end);
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
    if (call->measured && !call->flow->kind->produced)
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

static void leaves(const struct slr_call *call)
{
    if (!call->measured)
        return;
    slr_lane_lock(call->comm->lane);
    begins(call, NULL);
    slr_lane_unlock(call->comm->lane);
}

static void left(const struct slr_call *call, ncclResult_t r)
{
    (void)r;
    if (!call->measured)
        return;
    slr_lane_lock(call->comm->lane);
    end(call, call->stream);
    slr_lane_unlock(call->comm->lane);
}

const struct slr_watcher slr_trials_watcher = {.begins = begins, .enqueued = enqueued, .leaves = leaves, .left = left};

/* Which operand lies in the buffer that is being gathered; -1: none. */
static int gathered(const struct slr_trials *t, const struct slr_gemm *gemm)
{
    const uintptr_t begin = atomic_load(&t->begin), end = atomic_load(&t->end);
    const uintptr_t a = (uintptr_t)gemm->a, b = (uintptr_t)gemm->b;
    if (b >= begin && b < end)
        return SLR_CONSUMER_B;
    return a >= begin && a < end ? SLR_CONSUMER_A : -1;
}

/* It reads all that is being gathered, as far as its sizes tell. */
static bool reads_all(const struct slr_comm *c, const struct slr_gemm *gemm)
{
    const struct slr_trials *t = c->trials;
    struct slr_gather g = {.recv = atomic_load(&t->begin)};
    size_t bytes;
    g.plan.shard = (atomic_load(&t->end) - atomic_load(&t->begin)) / (size_t)c->nranks;
    return strcmp(slr_gemm_reads(gemm, &g, c->nranks, &bytes), "all") == 0;
}

/* Under the communicator's lock. A GEMM that needs all of the gather may stand right before one that consumes it in
 * parts, and runs beside that (kernels/gemm.h): then both are measured, and it is that one's row. `end`: where it was
 * enqueued. */
static void consumed(struct slr_comm *c, const struct slr_gemm *gemm, CUstream stream, CUstream end)
{
    struct slr_trials *t = c->trials;
    const int operand = gathered(t, gemm);
    const bool second = atomic_load(&t->more);
    if (second && (operand < 0 || stream != t->more_on || !reads_all(c, gemm)))
        slr_trials_stop(t);
    if (!t->running || operand < 0 || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (!slr_stream_captures(stream)) {
        t->consumer = slr_trials_name(gemm, operand);
        t->running->gemm = slr_consumer_hash(&t->consumer);
        t->running->known = slr_known_consumer(t, t->running->site, &t->consumer) != NULL;
        slr_clock_consumed(t->running, end);
        t->more_on = stream;
        if (!second && slr_gemm_needs_all(gemm, operand == SLR_CONSUMER_A, (enum slr_sums)slr_get(SLR_S_SPLIT_K)))
            atomic_store(&t->more, true);
        else
            slr_trials_stop(t);
    }
    slr_shared_leave();
}

void slr_trials_gemm(struct slr_gemm *gemm, CUstream stream, const struct slr_comm *aside)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        struct slr_comm *c = comms[i];
        const bool looked = c->trials && (atomic_load(&c->trials->more) || gathered(c->trials, gemm) >= 0);
        if (looked && slr_gemm_describe(gemm) == SLR_R_FUSED) {
            slr_lane_lock(c->lane);
            consumed(c, gemm, stream, c == aside ? c->lane->ring.aside : stream);
            slr_lane_unlock(c->lane);
        }
        slr_comm_put(c);
    }
}
