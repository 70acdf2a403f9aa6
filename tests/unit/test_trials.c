/* SPDX-License-Identifier: Apache-2.0 */
/* The folder plugin/trials/, two ranks in one thread, each some calls ahead of the other in turn, on a driver whose
 * time goes on by what a call is said to take. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/comm/group_record.h"
#include "plugin/trials/small.h"
#include "plugin/trials/trials.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/tuner/tune_keep.h"
#include "plugin/tuner/tune_state.h"

enum { RANKS = 2, CALLS = 1200, LARGE = 4 << 20, SMALL = 1 << 20, AHEAD = 7 };

/* ---- what the folder uses ---- */

static int64_t ticks; /* calls of both ranks */
static double now;    /* ms, of the device */
static bool broken;   /* events can not be recorded */

struct event {
    double at;
    int64_t tick;
};

static CUresult CUDAAPI create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy(CUevent event)
{
    free((void *)event);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    (void)stream;
    if (broken)
        return CUDA_ERROR_UNKNOWN;
    *(struct event *)event = (struct event){now, ticks};
    return CUDA_SUCCESS;
}

/* The device is never done when the site's next call comes. */
static CUresult CUDAAPI query(CUevent event)
{
    return ticks > ((struct event *)event)->tick + 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)(((struct event *)to)->at - ((struct event *)from)->at);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI captures(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "fake");
    return CUDA_SUCCESS;
}

static ncclResult_t nccl_version(int *version)
{
    *version = 22700;
    return ncclSuccess;
}

enum slr_status slr_shared_enter(const struct slr_shared *s)
{
    (void)s;
    return SLR_OK;
}

void slr_shared_leave(void) {}

static bool grouped;

struct slr_group *slr_group_now(void)
{
    static struct slr_group group;
    return grouped ? &group : NULL;
}

static unsigned kept; /* rules */
static struct slr_tune_site latest_kept;

void slr_tune_keep(const struct slr_tune_site *rule)
{
    kept++;
    latest_kept = *rule;
}

bool slr_tune_read(struct slr_tune_table *table)
{
    (void)table;
    return false;
}

const char *slr_tune_path(void)
{
    return "";
}

void slr_tune_free(struct slr_tune_table *table)
{
    (void)table;
}

void slr_tune_gpu_word(const char *name, char word[SLR_TUNE_GPU])
{
    snprintf(word, SLR_TUNE_GPU, "%s", name);
}

enum slr_reason slr_gemm_describe(struct slr_gemm *gemm)
{
    (void)gemm;
    return SLR_R_FUSED;
}

/* ---- the program ---- */

struct rank {
    struct slr_comm comm;
    int calls;
    struct went { /* of each call */
        enum slr_reason why;
        uint32_t parts, stage;
        bool trying;
    } went[CALLS];
};
static struct rank ranks[RANKS];
static struct slr_comm *here; /* whose GEMM it is */

int slr_comm_hold_all(struct slr_comm **list, int max)
{
    (void)max;
    list[0] = here;
    return 1;
}

void slr_comm_put(struct slr_comm *c)
{
    (void)c;
}

/* What a call takes. */
static struct model {
    double nccl, pace, parts[13]; /* ms; 0: as by the pace */
    double later;                 /* behind the first stage the ring takes so much more; 0: as before */
} model;
static const struct model *models; /* by GEMM; NULL: model is of all */
static const char *program;        /* its GEMMs, a letter each, which come again and again; NULL: gemm_m */
static int64_t gemm_m;
static size_t shard;
static struct slr_control *control;

static double takes(const struct rank *r, const struct went *w)
{
    const struct model *m = models ? &models[gemm_m / 8 - 1] : &model;
    if (w->why != SLR_R_RING)
        return m->nccl;
    const double ms = m->parts[w->parts] > 0 ? m->parts[w->parts] : m->pace;
    return r->comm.trials->site[r->comm.trials->now.site].again > 0 && m->later > 0 ? ms * m->later : ms;
}

static void one(struct rank *r)
{
    static char memory[4096];
    if (program)
        gemm_m = 8 * (program[(size_t)r->calls % strlen(program)] - 'a' + 1);
    struct slr_gemm gemm = {.m = gemm_m, .n = 8, .k = 8, .batch = 1, .b = memory + r->comm.rank};
    struct slr_call call = {.comm = &r->comm, .shard = shard, .recv = memory + r->comm.rank};
    struct went *w = &r->went[r->calls++];
    ticks += RANKS;
    here = &r->comm;
    w->why = slr_trials_call(&call);
    w->trying = r->comm.trials->now.trying;
    w->stage = r->comm.trials->now.site < 0 ? 0 : r->comm.trials->site[r->comm.trials->now.site].again;
    if (call.measured)
        slr_trials_begin(&call);
    w->parts = w->why == SLR_R_RING ? slr_trials_parts(&r->comm, &gemm, false) : 0;
    now += takes(r, w);
    if (call.measured)
        slr_trials_gathered(&call, NULL);
    if (gemm_m)
        slr_trials_gemm(&gemm, NULL);
}

/* So many calls of each rank; both go the same way. */
static void go(int calls)
{
    const int from = ranks[0].calls;
    cr_assert(from + calls <= CALLS);
    for (int done = 0, some; done < calls; done += some) {
        some = calls - done < AHEAD ? calls - done : AHEAD;
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < some; i++)
                one(&ranks[done / AHEAD % 2 ? RANKS - 1 - r : r]);
    }
    for (int i = from; i < from + calls; i++)
        for (int r = 1; r < RANKS; r++)
            cr_assert(ranks[0].went[i].why == ranks[r].went[i].why && ranks[0].went[i].parts == ranks[r].went[i].parts,
                      "call %d: %s, %u parts on rank 0, %s, %u on rank %d", i, slr_reason_name(ranks[0].went[i].why),
                      ranks[0].went[i].parts, slr_reason_name(ranks[r].went[i].why), ranks[r].went[i].parts, r);
}

static void make(void)
{
    slr_real.cuEventCreate = create;
    slr_real.cuEventDestroy = destroy;
    slr_real.cuEventRecord = record;
    slr_real.cuEventQuery = query;
    slr_real.cuEventElapsedTime = elapsed;
    slr_real.cuStreamIsCapturing = captures;
    slr_real.cuDeviceGetName = device_name;
    slr_real.ncclGetVersion = nccl_version;
    const size_t bytes = slr_control_bytes(RANKS);
    control = aligned_alloc(SLR_CONTROL_PAGE, bytes);
    cr_assert(control);
    memset(control, 0, bytes);
    for (int r = 0; r < RANKS; r++) {
        struct slr_comm *c = &ranks[r].comm;
        c->rank = r;
        c->nranks = RANKS;
        c->shared.control = control;
        pthread_mutex_init(&c->lock, NULL);
        control->post[r].tries = slr_trials_prepare(c);
        cr_assert_eq(control->post[r].tries, 3);
    }
    for (int r = 0; r < RANKS; r++)
        slr_trials_open(&ranks[r].comm);
    for (int r = 0; r < RANKS; r++)
        slr_trials_ready(&ranks[r].comm);
    gemm_m = 8;
    shard = LARGE;
}

static void drop(void)
{
    for (int r = 0; r < RANKS; r++)
        slr_trials_close(&ranks[r].comm, false);
    free(control);
}

TestSuite(trials, .init = make, .fini = drop);

/* The calls of a stage, and how many of them went over the ring in so many parts. */
static int in_stage(uint32_t stage, int parts)
{
    int n = 0;
    for (int i = 0; i < ranks[0].calls; i++) {
        const struct went *w = &ranks[0].went[i];
        n += w->trying && w->stage == stage && (parts < 0 || (w->why == SLR_R_RING && w->parts == (uint32_t)parts));
    }
    return n;
}

static const struct went *latest(void)
{
    return &ranks[0].went[ranks[0].calls - 1];
}

static uint32_t control_rows(int rank)
{
    return ranks[0].comm.trials->shared->post[rank].site[0].rows;
}

enum { OF_WAYS = 3 * SLR_WAYS * SLR_TRIAL_RUN, OF_DUEL = 3 * 2 * SLR_DUEL_RUN, SETTLED = 320 };

/* As measured on two H200: in short runs both take as long, in longer ones NCCL is faster. */
Test(trials, a_tie_is_decided_by_a_duel)
{
    model.nccl = 0.158, model.pace = 0.25, model.parts[1] = 0.1586, model.later = 1.4;
    go(SETTLED);
    cr_expect_eq(in_stage(0, -1), OF_WAYS);
    cr_expect_eq(in_stage(1, -1), OF_DUEL);
    cr_expect_eq(in_stage(1, 1), OF_DUEL / 2, "the ring with the way that was chosen, not by the pace");
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    cr_expect(kept == 1 && latest_kept.nccl);
}

Test(trials, a_duel_may_be_the_rings)
{
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.94;
    go(SETTLED);
    cr_expect_eq(in_stage(1, 3), OF_DUEL / 2);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
    cr_expect(kept == 1 && !latest_kept.nccl && strcmp(latest_kept.cut, "p3") == 0);
}

Test(trials, a_duel_needs_two_percent)
{
    model.nccl = 1, model.pace = 0.99;
    go(SETTLED);
    cr_expect_eq(in_stage(1, 0), OF_DUEL / 2);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

Test(trials, what_is_far_apart_needs_no_duel)
{
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.4;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3 && in_stage(1, -1) == 0 && kept == 1);
}

Test(trials, nccl_that_is_far_better_needs_no_duel)
{
    model.nccl = 0.4, model.pace = 1;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_MEASURED && in_stage(1, -1) == 0);
}

Test(trials, a_gather_alone_has_a_duel_too)
{
    gemm_m = 0;
    model.nccl = 1, model.pace = 0.9;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_RING && in_stage(1, -1) == OF_DUEL);
}

/* Calls until a stage begins on rank 0. */
static void until(uint32_t stage)
{
    while (ranks[0].comm.trials->site[0].again < stage)
        go(AHEAD);
}

/* Nothing is measured in the duel: what the first stage found. */
Test(trials, a_duel_in_which_nothing_is_measured)
{
    model.nccl = 1, model.pace = 0.9;
    until(1);
    broken = true;
    go(OF_DUEL + 48);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(kept, 0);
    cr_expect_eq(ranks[0].comm.trials->in_force.chosen[0], 2);
}

Test(trials, a_tie_before_a_duel_in_which_nothing_is_measured)
{
    model.nccl = 1, model.pace = 1;
    until(1);
    broken = true;
    go(OF_DUEL + 48);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* In graphs, say. */
Test(trials, nothing_is_ever_measured)
{
    model.nccl = 1, model.pace = 1;
    broken = true;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_RING && in_stage(1, -1) == 0);
    cr_expect_eq(ranks[0].comm.trials->in_force.chosen[0], 0);
    cr_expect_eq(ranks[0].comm.trials->in_force.ended[0], 1);
}

/* Strangers come, and the trials that they bring miss all calls: what has been chosen stays, and is tried again later. */
Test(trials, what_was_chosen_stays_when_nothing_is_measured)
{
    model.nccl = 0.4, model.pace = 1;
    go(SETTLED);
    cr_assert_eq(latest()->why, SLR_R_MEASURED);
    gemm_m = 16;
    until(2);
    broken = true;
    go(OF_WAYS + 48);
    cr_expect_eq(latest()->why, SLR_R_MEASURED, "not what is in use without trials");
    broken = false;
    model.nccl = 2;
    go(400);
    cr_expect_eq(in_stage(4, -1), OF_WAYS, "tried again");
    cr_expect_eq(latest()->why, SLR_R_RING);
}

/* What was measured of a GEMM counts beside others that come later, for its number of parts and for the site. */
Test(trials, what_was_measured_counts_on)
{
    model.nccl = 8, model.pace = 2, model.parts[3] = 1;
    go(SETTLED);
    cr_assert(latest()->why == SLR_R_RING && latest()->parts == 3);
    gemm_m = 16;
    until(2);
    model.nccl = 1, model.pace = 1.5, model.parts[3] = 1.5; /* of the new one alone NCCL were better, by less */
    for (int i = 0; i < OF_WAYS + 48; i++) {                /* the first one has some of the ways */
        gemm_m = i % 7 ? 16 : 8;
        go(1);
    }
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(in_stage(3, -1), 0);
    gemm_m = 8;
    go(100);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
    cr_expect_eq(in_stage(4, -1), 0, "it is no stranger");
}

/* Each GEMM is measured in each way, whatever the period, but where there are more of them than rows. */
static void all_are_measured(const char *gemms_of, unsigned gemms)
{
    program = gemms_of;
    const int period = (int)strlen(program), run = period + 1 > (int)SLR_TRIAL_RUN ? period + 1 : (int)SLR_TRIAL_RUN;
    model.nccl = 8, model.pace = 2, model.parts[3] = 1;
    go(48 + 3 * SLR_WAYS * run + 40);
    cr_expect_eq(ranks[0].comm.trials->in_force.period[0], (uint32_t)period);
    cr_expect_eq(in_stage(0, -1), 3 * SLR_WAYS * run);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(control_rows(r), gemms);
        for (uint32_t i = 0; i < control_rows(r); i++)
            for (int w = 0; w < SLR_WAYS; w++)
                cr_expect_gt(ranks[0].comm.trials->shared->post[r].site[0].row[i].ms[w], 0,
                             "%s: rank %d, row %u, way %d", program, r, i, w);
    }
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
}

Test(trials, two_gemms_in_turn)
{
    all_are_measured("ab", 2);
}

Test(trials, three_layers_forward_and_backward)
{
    all_are_measured("abcabccba", 3);
}

Test(trials, a_long_period)
{
    all_are_measured("aabbccddeeff", 6);
}

/* ---- random programs ---- */

static uint64_t drawn;

static double draw(double from, double to)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return from + (to - from) * (double)(drawn >> 40) / (double)(1 << 24);
}

/* The best number of parts, and what it takes. */
static uint32_t best(const struct model *m, double *ms)
{
    static const uint32_t parts[] = {1, 2, 3, 4, 6};
    uint32_t found = 0;
    *ms = m->pace;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (m->parts[parts[i]] < *ms) {
            *ms = m->parts[parts[i]];
            found = parts[i];
        }
    return found;
}

static struct model a_model(void)
{
    struct model m = {.nccl = draw(0.5, 2), .pace = draw(0.5, 2)};
    for (int parts = 1; parts <= 6; parts++)
        m.parts[parts] = m.pace * draw(0.5, 1.5);
    return m;
}

/* The program's calls go as is best for all of them together, and over the ring each GEMM as is best for it. What is as
 * good may be either. */
static void random_program(uint64_t seed)
{
    struct model of[6];
    char name[SLR_TRIAL_PERIOD + 1] = {0};
    double ring = 0, nccl = 0, ms;
    drawn = seed;
    for (int i = 0; i < 6; i++)
        of[i] = a_model();
    models = of;
    for (int i = 0, n = (int)draw(1, SLR_TRIAL_PERIOD + 1), gemms = (int)draw(1, 7); i < n; i++)
        name[i] = (char)('a' + (int)draw(0, gemms));
    program = name;
    go(48 + 3 * SLR_WAYS * (SLR_TRIAL_PERIOD + 1) + 3 * 2 * (SLR_DUEL_FIRST + SLR_TRIAL_PERIOD) + 150);
    for (const char *p = program; *p; p++) {
        best(&of[*p - 'a'], &ms);
        ring += ms;
        nccl += of[*p - 'a'].nccl;
    }
    for (size_t i = 0; i < strlen(program); i++) {
        go(1);
        cr_expect(latest()->why == SLR_R_MEASURED || ring < nccl * 0.98, "seed %lu, %s: ring %g, NCCL %g, chosen ring",
                  (unsigned long)seed, program, ring, nccl);
        cr_expect(latest()->why == SLR_R_RING || ring > nccl * 0.95, "seed %lu, %s: ring %g, NCCL %g, chosen NCCL",
                  (unsigned long)seed, program, ring, nccl);
        const struct model *m = &of[gemm_m / 8 - 1];
        cr_expect(latest()->why != SLR_R_RING || latest()->parts == best(m, &ms) || ms > 0.99 * m->pace,
                  "seed %lu, %s: GEMM %c in %u parts, best in %u: %g %g %g %g %g %g", (unsigned long)seed, program,
                  (char)(m - of) + 97, latest()->parts, best(m, &ms), m->pace, m->parts[1], m->parts[2], m->parts[3],
                  m->parts[4], m->parts[6]);
    }
    models = NULL;
    program = NULL;
}

Test(trials, random_programs)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_program(seed);
        drop();
        memset(ranks, 0, sizeof ranks);
        make();
    }
}

Test(trials, gathers_in_groups_have_no_duel)
{
    grouped = true;
    model.nccl = model.pace = 1;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_RING && in_stage(0, -1) == 0);
}

Test(trials, what_a_duel_was_about_is_known)
{
    model.nccl = 1, model.pace = 1;
    go(CALLS);
    cr_expect_eq(latest()->stage, 1, "its calls are no strangers'");
}

/* Another GEMM: all ways again, and a duel again. */
Test(trials, strangers_behind_a_duel)
{
    model.nccl = 1, model.pace = 0.9;
    go(SETTLED);
    gemm_m = 16;
    model.parts[4] = 0.8;
    go(480);
    cr_expect_eq(in_stage(2, -1), OF_WAYS);
    cr_expect_eq(in_stage(3, 4), OF_DUEL / 2);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 4);
    gemm_m = 8;
    go(300);
    cr_expect_gt(in_stage(4, -1), 0, "the first one has not been tried this time");
}

/* The duel is NCCL's now; until it is over calls go by what was chosen before. */
Test(trials, between_the_stages_of_later_trials)
{
    model.nccl = 1, model.pace = 0.9;
    go(SETTLED);
    gemm_m = 16;
    model.pace = 1;
    go(480);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    int first = 0, last = 0;
    for (int i = 0; i < ranks[0].calls; i++) {
        first = !first && ranks[0].went[i].why == SLR_R_MEASURED ? i : first;
        last = ranks[0].went[i].trying && ranks[0].went[i].stage == 3 ? i : last;
    }
    cr_expect_gt(first, last + AHEAD, "the choice takes some calls");
}

Test(trials, strangers_where_there_was_no_duel)
{
    model.nccl = 1, model.pace = 0.4;
    go(SETTLED);
    gemm_m = 16;
    go(240);
    cr_expect(in_stage(1, -1) == 0 && in_stage(2, -1) == OF_WAYS);
}

/* So too when what was tried is consumed by another GEMM in the duel. That has not been tried in all ways: not kept. */
Test(trials, strangers_in_a_duel)
{
    model.nccl = 1, model.pace = 0.9;
    until(1);
    gemm_m = 16;
    go(OF_DUEL + 40);
    cr_expect(ranks[0].comm.trials->in_force.chosen[0] == 2 && kept == 0);
    go(200);
    cr_expect_gt(in_stage(2, -1), 0);
}

/* The tune file knows one GEMM; another one came, and all ways were tried: the rule does not count in the duel. */
Test(trials, a_known_gemm_in_a_duel)
{
    const struct slr_consumer any = {.m = 8, .n = 8, .k = 8, .batch = 1, .gathered = SLR_CONSUMER_B};
    for (int r = 0; r < RANKS; r++)
        ranks[r].comm.trials->shared->known[0] =
            (struct slr_trial_known){.high = UINT64_MAX, .consumer = any, .way = SLR_WAY_WHOLE};
    ranks[0].comm.trials->shared->knowns = 1;
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.9;
    go(4);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 1);
    gemm_m = 16;
    until(2);
    gemm_m = 8;
    go(260);
    cr_expect_eq(in_stage(3, 3), OF_DUEL / 2);
    cr_expect_eq(latest()->parts, 3);
}

/* Of a small site NCCL is what is in use; the ring has a large one first. */
Test(trials, small_gathers_have_a_duel)
{
    model.nccl = 1, model.pace = 0.9;
    go(1);
    shard = SMALL;
    go(SETTLED + SLR_SMALL_WARM);
    cr_expect_eq(ranks[0].comm.trials->site[1].again, 1);
    cr_expect_eq(latest()->why, SLR_R_RING);
}

/* One small size too many while a duel is agreed on, and not begun: the site is given up. */
Test(trials, a_small_site_that_is_given_up_before_its_duel)
{
    model.nccl = 1, model.pace = 0.95;
    go(1);
    shard = SMALL;
    while (ranks[0].comm.trials->shared->choice.again[1] == 0)
        go(1);
    cr_assert_eq(ranks[0].comm.trials->site[1].again, 0);
    for (shard = SMALL + 64; shard <= SMALL + 64 * SLR_SMALL_SITES; shard += 64)
        go(1);
    shard = SMALL;
    go(SETTLED);
    cr_expect(latest()->why == SLR_R_TOO_SMALL && in_stage(1, -1) == 0);
    shard = LARGE;
    go(SETTLED);
    for (int r = 0; r < RANKS; r++) {
        const struct slr_trials *t = ranks[r].comm.trials;
        cr_expect(t->site[1].again == 1 && t->site[1].given_up && t->unposted == 0);
    }
}

Test(trials, small_gathers_that_tie_are_nccls)
{
    model.nccl = 1, model.pace = 0.99;
    go(1);
    shard = SMALL;
    go(SETTLED + SLR_SMALL_WARM);
    cr_expect(latest()->why == SLR_R_TOO_SMALL || latest()->why == SLR_R_MEASURED);
    cr_expect_eq(ranks[0].comm.trials->in_force.site_way[1], SLR_WAY_NCCL);
}
