/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/trials.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/cu.h"
#include "base/log.h"
#include "base/mix.h"
#include "plugin/comm/group_record.h"
#include "plugin/trials/clock.h"
#include "plugin/trials/samples.h"
#include "plugin/trials/ways.h"

enum {
    AHEAD = 16,    /* calls that a choice is settled before it holds */
    LOOK = 8,      /* rank 0 looks for what can be chosen at each of so many calls */
    WATCH = 16,    /* behind the trials, one of so many calls of a site is looked at */
    STRANGERS = 3, /* of those, consumed by what has not been tried: then ways are tried again, */
    AGAIN = 6,     /* so often; each time it takes twice as many */
    ROWS = SLR_TRIAL_SITES * SLR_TRIAL_ROWS,
};

struct site {
    size_t shard;
    uint64_t calls;          /* since its ways began to be tried, or are going to be */
    uint32_t again;          /* as slr_trial_choice's */
    uint32_t posted, chosen; /* times; `chosen`: rank 0's */
    uint32_t strangers;
    struct slr_clock *latest; /* of its latest measured call, until the next one comes; or NULL */
};

struct slr_trials {
    struct slr_agreed agreed;
    struct slr_trials_shared *shared; /* in the control block */
    uint32_t rounds, after;
    struct site site[SLR_TRIAL_SITES];
    unsigned sites;
    struct slr_samples row[ROWS];
    unsigned rows;
    struct slr_clock clocks[SLR_CLOCKS];
    unsigned clocks_out;          /* are not free */
    unsigned unposted;            /* sites whose ways are tried, or going to be */
    struct slr_clock *running;    /* of the latest gather; NULL: it is not measured */
    _Atomic uintptr_t begin, end; /* its receive buffer, for a look without the lock; or empty */
    struct slr_trial_choice coming, in_force;
    /* Of the latest call. */
    int at; /* site; -1: none, there are too many */
    int way;
    uint32_t round;
    bool trying;
};

#define WATCHED SLR_WAYS /* as a clock's way: the time is not of interest */

uint32_t slr_trials_prepare(struct slr_comm *c)
{
    const char *reproducible = getenv("CUBLAS_WORKSPACE_CONFIG");
    if ((reproducible && *reproducible) || !slr_real.cuEventQuery || !slr_real.cuEventElapsedTime)
        return 0;
    c->trials = slr_get(SLR_S_TRIALS) ? calloc(1, sizeof *c->trials) : NULL;
    return c->trials ? (uint32_t)slr_get(SLR_S_TRIALS) : 0;
}

/* Of the agreed change: the choice is copied before this rank says that it knows it. */
static void learn(void *context)
{
    struct slr_trials *t = context;
    t->coming = t->shared->choice;
}

void slr_trials_open(struct slr_comm *c)
{
    struct slr_post *post = c->shared.control->post;
    uint32_t rounds = SLR_TRIAL_ROUNDS;
    for (int r = 0; r < c->nranks; r++)
        rounds = post[r].tries < rounds ? post[r].tries : rounds;
    struct slr_trials *t = c->trials;
    if (!rounds) {
        free(t);
        c->trials = NULL;
        return;
    }
    t->rounds = rounds;
    t->after = (uint32_t)slr_get(SLR_S_TRIALS_AFTER);
    t->shared = (void *)((char *)c->shared.control + slr_control_trials_at(c->nranks));
    t->agreed = (struct slr_agreed){.shared = &t->shared->agreed,
                                    .rank = c->rank,
                                    .nranks = c->nranks,
                                    .ahead = AHEAD,
                                    .learn = learn,
                                    .context = t,
                                    .place = UINT64_MAX};
    t->at = -1;
}

/* ---- measuring ---- */

static struct slr_samples *known(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    for (unsigned i = 0; i < t->rows; i++)
        if (t->row[i].gemm == gemm && t->row[i].site == site)
            return &t->row[i];
    return NULL;
}

/* Its row has been measured in every way. */
static bool has_been_tried(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    const struct slr_samples *row = known(t, gemm, site);
    return row && slr_samples_whole(row, t->rounds);
}

static void stop(struct slr_trials *t)
{
    if (!t->running)
        return;
    if (t->running->way == WATCHED)
        t->site[t->running->site].strangers += !has_been_tried(t, t->running->gemm, t->running->site);
    if (!slr_clock_stop(t->running)) {
        t->site[t->running->site].latest = NULL;
        t->clocks_out--;
    }
    t->running = NULL;
    atomic_store(&t->end, 0);
    atomic_fetch_sub(&slr_trials_running, 1);
}

static struct slr_samples *row_of(struct slr_trials *t, uint64_t gemm, uint32_t site)
{
    struct slr_samples *row = known(t, gemm, site);
    if (row || t->rows == ROWS)
        return row;
    row = &t->row[t->rows++];
    *row = (struct slr_samples){.gemm = gemm, .site = site};
    return row;
}

/* Takes what is over. False: some are still on their way. */
static bool read_clocks(struct slr_trials *t)
{
    struct slr_clock *clock;
    float ms;
    bool busy;
    while ((clock = slr_clock_read(t->clocks, &ms, &busy)) != NULL) {
        t->clocks_out--;
        if (clock->way != WATCHED && ms > 0)
            slr_samples_add(row_of(t, clock->gemm, clock->site), clock, ms);
    }
    return !busy;
}

void slr_trials_begin(const struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    t->running = slr_clock_begin(t->clocks, call->stream);
    slr_shared_leave();
    if (!t->running)
        return;
    t->clocks_out++;
    t->running->site = (uint32_t)t->at;
    t->running->way = t->trying ? t->way : WATCHED;
    t->running->round = t->round;
    t->running->open = t->trying;
    if (t->trying)
        t->site[t->at].latest = t->running;
    atomic_store(&t->begin, (uintptr_t)call->recv);
    atomic_store(&t->end, (uintptr_t)call->recv + call->shard * (size_t)call->comm->nranks);
    atomic_fetch_add(&slr_trials_running, 1);
}

void slr_trials_gathered(const struct slr_call *call, CUstream end)
{
    struct slr_trials *t = call->comm->trials;
    if (!t->running || slr_shared_enter(&call->comm->shared) != SLR_OK)
        return;
    slr_clock_gathered(t->running, end);
    slr_shared_leave();
}

static uint64_t name_of(const struct slr_gemm *gemm)
{
    uint64_t kind = (uint64_t)gemm->transa << 48 ^ (uint64_t)gemm->transb << 40 ^ (uint64_t)gemm->atype << 20 ^
                    (uint64_t)gemm->btype << 10 ^ (uint64_t)gemm->ctype;
    uint64_t size = slr_mix(slr_mix((uint64_t)gemm->m, (uint64_t)gemm->n), (uint64_t)gemm->k);
    return slr_mix(slr_mix(size, kind), (uint64_t)gemm->batch) | 1;
}

static bool reads(const struct slr_trials *t, const struct slr_gemm *gemm)
{
    const uintptr_t begin = atomic_load(&t->begin), end = atomic_load(&t->end);
    const uintptr_t a = (uintptr_t)gemm->a, b = (uintptr_t)gemm->b;
    return (a >= begin && a < end) || (b >= begin && b < end);
}

/* Under the communicator's lock. */
static void consumed(struct slr_comm *c, const struct slr_gemm *gemm, CUstream stream)
{
    struct slr_trials *t = c->trials;
    if (!t->running || !reads(t, gemm) || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (!slr_stream_captures(stream)) {
        const uint32_t site = t->running->site;
        t->running->gemm = name_of(gemm);
        slr_clock_consumed(t->running, stream);
        struct slr_samples *row = t->running->way == WATCHED ? NULL : row_of(t, t->running->gemm, site);
        if (row)
            row->m = gemm->m, row->n = gemm->n, row->k = gemm->k;
        stop(t);
    }
    slr_shared_leave();
}

void slr_trials_gemm(struct slr_gemm *gemm, CUstream stream)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        struct slr_comm *c = comms[i];
        if (c->trials && reads(c->trials, gemm) && slr_gemm_describe(gemm) == SLR_R_FUSED) {
            slr_comm_lock(c);
            consumed(c, gemm, stream);
            slr_comm_unlock(c);
        }
        slr_comm_put(c);
    }
}

/* ---- the choice ---- */

static void post(struct slr_trials *t, uint32_t site)
{
    struct slr_trial_post *own = &t->shared->post[t->agreed.rank];
    uint32_t n = 0;
    for (unsigned i = 0; i < t->rows && n < SLR_TRIAL_ROWS; i++) {
        struct slr_samples *from = &t->row[i];
        if (from->site == site)
            own->site[site].row[n++] = slr_samples_row(from, t->rounds);
    }
    own->site[site].rows = n;
    t->site[site].posted = t->site[site].again + 1;
    t->unposted--;
    atomic_store(&own->site[site].times, t->site[site].posted);
}

/* What this rank has measured, site by site, when nothing of it is on its way. */
static void post_all(struct slr_trials *t)
{
    bool complete = !t->clocks_out || read_clocks(t);
    for (unsigned i = 0; i < t->sites && complete; i++)
        if (t->site[i].posted <= t->site[i].again && t->site[i].calls >= slr_trials_end(t->after, t->rounds))
            post(t, i);
}

static bool posted_by_all(const struct slr_trials *t, uint32_t site)
{
    for (int r = 0; r < t->agreed.nranks; r++)
        if (atomic_load(&t->shared->post[r].site[site].times) <= t->site[site].again)
            return false;
    return true;
}

static int way_of(const struct slr_trial_choice *choice, uint64_t gemm, uint32_t site)
{
    for (uint32_t i = 0; i < choice->rows; i++)
        if (choice->row[i].gemm == gemm && choice->row[i].site == site)
            return choice->row[i].way;
    return SLR_WAY_RING;
}

static void log_row(const struct slr_comm *c, const struct slr_samples *row, const struct slr_trial_row *slowest,
                    const struct slr_trial_choice *choice)
{
    char parts[160] = "";
    size_t at = 0;
    for (int w = SLR_WAY_WHOLE; w < SLR_WAYS && at < sizeof parts - 24; w++)
        at += (size_t)snprintf(parts + at, sizeof parts - at, "%s%u:%.4f", at ? "," : "", slr_way_parts(w, c->nranks),
                               (double)slowest->ms[w]);
    slr_log(
        SLR_LOG_INFO, "tried",
        "comm=%s crank=%d shard=%zu m=%lld n=%lld k=%lld calls=%u clock=%s ring_ms=%.4f nccl_ms=%.4f parts_ms=%s by=%s "
        "parts=%u",
        c->name, c->rank, c->trials->site[row->site].shard, (long long)row->m, (long long)row->n, (long long)row->k,
        slowest->calls, slr_samples_of_host(row, c->trials->rounds) ? "host" : "device",
        (double)slowest->ms[SLR_WAY_RING], (double)slowest->ms[SLR_WAY_NCCL], row->gemm ? parts : "none",
        choice->site_way[row->site] == SLR_WAY_NCCL ? "nccl" : "ring",
        slr_way_parts(way_of(choice, row->gemm, row->site), c->nranks));
}

static void choose(struct slr_comm *c, uint32_t site)
{
    struct slr_trials *t = c->trials;
    const struct slr_trial_row *rows[SLR_MAX_RANKS];
    uint32_t count[SLR_MAX_RANKS];
    struct slr_trial_choice choice = t->coming;
    struct slr_trial_row slowest;
    for (int r = 0; r < c->nranks; r++) {
        rows[r] = t->shared->post[r].site[site].row;
        count[r] = t->shared->post[r].site[site].rows;
    }
    slr_trials_choose(rows, count, c->nranks, site, &choice);
    t->shared->choice = choice;
    if (!slr_agreed_propose(&t->agreed))
        return; /* at a later call */
    t->site[site].chosen = t->site[site].again + 1;
    for (unsigned i = 0; i < t->rows; i++)
        if (t->row[i].site == site && slr_trials_slowest(rows, count, c->nranks, t->row[i].gemm, site, &slowest))
            log_row(c, &t->row[i], &slowest, &choice);
}

/* What consumes the site's gathers is not what was tried. */
static bool has_changed(const struct slr_trials *t, const struct site *s)
{
    return s->chosen > s->again && s->again < AGAIN && s->strangers >= (uint32_t)STRANGERS << s->again &&
           t->coming.again[s - t->site] == s->again;
}

static void try_again(struct slr_trials *t, uint32_t site)
{
    struct slr_trial_choice choice = t->coming;
    choice.again[site]++;
    t->shared->choice = choice;
    slr_agreed_propose(&t->agreed);
}

/* Rank 0: one site at a time, as the choice before has to be known to all, and to hold. */
static void lead(struct slr_comm *c)
{
    struct slr_trials *t = c->trials;
    bool settled = slr_agreed_ready(&t->agreed) && (!t->agreed.changes || t->agreed.calls > t->agreed.place);
    for (uint32_t i = 0; i < t->sites && settled; i++) {
        struct site *s = &t->site[i];
        if (s->chosen <= s->again && posted_by_all(t, i)) {
            choose(c, i);
            return;
        }
        if (has_changed(t, s)) {
            try_again(t, i);
            return;
        }
    }
}

/* The choice holds from this call on. */
static void go_by(struct slr_trials *t)
{
    t->in_force = t->coming;
    for (unsigned i = 0; i < t->sites; i++) {
        struct site *s = &t->site[i];
        if (s->again == t->in_force.again[i])
            continue;
        s->again = t->in_force.again[i];
        s->calls = t->after;
        t->unposted++;
        s->strangers = 0;
        for (unsigned row = 0; row < t->rows; row++)
            if (t->row[row].site == i)
                slr_samples_forget(&t->row[row]);
    }
}

/* ---- calls ---- */

static int site_of(struct slr_trials *t, size_t shard)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].shard == shard)
            return (int)i;
    if (t->sites == SLR_TRIAL_SITES)
        return -1;
    t->site[t->sites] = (struct site){.shard = shard};
    t->unposted++;
    return (int)t->sites++;
}

/* Under the communicator's lock. `site`: of the next call, or -1. */
static void go_on(struct slr_comm *c, int site)
{
    struct slr_trials *t = c->trials;
    stop(t);
    if ((t->clocks_out || t->unposted) && slr_shared_enter(&c->shared) == SLR_OK) {
        if (site >= 0 && t->site[site].latest)
            slr_clock_next(t->site[site].latest);
        if (site >= 0)
            t->site[site].latest = NULL;
        post_all(t);
        slr_shared_leave();
    }
    if (c->rank == 0 && t->agreed.calls % LOOK == 0)
        lead(c);
}

static enum slr_reason next(struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    bool measured = false;
    t->at = site_of(t, call->shard);
    go_on(call->comm, t->at);
    if (slr_agreed_call(&t->agreed) == t->agreed.place)
        go_by(t);
    t->way = SLR_WAY_RING;
    t->trying =
        t->at >= 0 && slr_way_of_call(t->site[t->at].calls++, t->after, t->rounds, &t->way, &t->round, &measured);
    if (t->at >= 0 && t->site[t->at].posted > t->site[t->at].again)
        measured = t->site[t->at].calls % WATCH == 0;
    call->measured = measured && !slr_in_group();
    if (t->trying)
        return t->way == SLR_WAY_NCCL ? SLR_R_TRIAL : SLR_R_RING;
    return t->at >= 0 && t->in_force.site_way[t->at] == SLR_WAY_NCCL ? SLR_R_MEASURED : SLR_R_RING;
}

enum slr_reason slr_trials_call(struct slr_call *call)
{
    if (!call->comm->trials)
        return SLR_R_RING;
    slr_comm_lock(call->comm);
    enum slr_reason why = next(call);
    slr_comm_unlock(call->comm);
    return why;
}

uint32_t slr_trials_parts(const struct slr_comm *c, const struct slr_gemm *gemm)
{
    const struct slr_trials *t = c->trials;
    if (!t || t->at < 0)
        return 0;
    return slr_way_parts(t->trying ? t->way : way_of(&t->in_force, name_of(gemm), (uint32_t)t->at), c->nranks);
}

void slr_trials_close(struct slr_comm *c, bool gone)
{
    if (!c->trials)
        return;
    stop(c->trials);
    if (!gone)
        slr_clocks_close(c->trials->clocks);
    free(c->trials);
    c->trials = NULL;
}
