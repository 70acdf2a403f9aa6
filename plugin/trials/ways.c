/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"
#include "plugin/trials/trials.h"
#include "plugin/trials/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define DUEL 8u        /* calls of a site that are measured in a turn of a duel, */
#define DUEL_SPARSE 2u /* of a sparse one; */
#define DUEL_MOST 512u /* but of the communicator not more than so many */
#define BETTER_PARTS 0.99f
#define BETTER_RING 0.98f    /* than NCCL, of which a tie is */
#define FAR_APART 0.85f      /* more than short runs are off */
#define FAR_BETTER_BARE 0.5f /* NCCL than the ring, where no GEMM is known to wait: it may cost those beside more */
/* Times of the host scatter more: on H200 by a half, in short runs. */
#define BETTER_RING_OF_HOST 0.95f
#define FAR_APART_OF_HOST 0.5f

bool slr_site_next(enum slr_site_state *state, enum slr_site_event event)
{
    enum { TRYING = 1, POSTED, WAITING, DECIDED, AGAIN, GIVEN_UP }; /* 1 + the state; 0: that can not be */
    static const uint8_t next[SLR_SITE_STATES][SLR_SITE_EVENTS] = {
        /* BEGIN, POST, DUE, NOT_DUE, CHOOSE, END, GIVE_UP */
        [SLR_SITE_TRYING] = {TRYING, POSTED, 0, 0, 0, DECIDED, GIVEN_UP},
        [SLR_SITE_POSTED] = {TRYING, 0, WAITING, POSTED, DECIDED, 0, GIVEN_UP},
        [SLR_SITE_WAITING] = {TRYING, 0, WAITING, POSTED, 0, 0, GIVEN_UP},
        [SLR_SITE_DECIDED] = {TRYING, 0, AGAIN, 0, 0, 0, GIVEN_UP},
        [SLR_SITE_AGAIN] = {TRYING, 0, AGAIN, DECIDED, 0, 0, 0},
        [SLR_SITE_GIVEN_UP] = {GIVEN_UP, 0, 0, 0, 0, GIVEN_UP, 0},
    };
    const uint8_t to = next[*state][event];
    if (to)
        *state = (enum slr_site_state)(to - 1);
    return to;
}

uint32_t slr_way_parts(int way, int nranks)
{
    static const unsigned halves[SLR_WAYS - SLR_WAY_PARTS] = {2, 3, 4, 6}; /* of a part a rank */
    if (way < SLR_WAY_PARTS)
        return way == SLR_WAY_WHOLE;
    return (halves[way - SLR_WAY_PARTS] * (unsigned)nranks + 1) / 2;
}

uint32_t slr_way_blocks(int way)
{
    if (way < SLR_WAY_PARTS)
        return way == SLR_WAY_RING ? UINT32_MAX : 0;
    return 1u << (way - SLR_WAY_PARTS);
}

void slr_way_word(int way, const struct slr_collective *kind, int nranks, char word[SLR_WAY_WORD])
{
    if (way < SLR_WAY_PARTS)
        snprintf(word, SLR_WAY_WORD, "%s", way == SLR_WAY_WHOLE ? "whole" : "pace");
    else if (kind->produced)
        snprintf(word, SLR_WAY_WORD, "b%u", slr_way_blocks(way));
    else
        snprintf(word, SLR_WAY_WORD, "p%u", slr_way_parts(way, nranks));
}

int slr_way_of_word(const char *word, const struct slr_collective *kind, int nranks)
{
    char own[SLR_WAY_WORD];
    for (int way = 0; way < SLR_WAYS; way++) {
        slr_way_word(way, kind, nranks, own);
        if (way != SLR_WAY_NCCL && strcasecmp(word, own) == 0)
            return way;
    }
    return -1;
}

int slr_way_chosen(const struct slr_trial_choice *choice, uint64_t gemm, uint32_t site)
{
    for (uint32_t i = 0; i < choice->rows; i++)
        if (choice->row[i].gemm == gemm && choice->row[i].site == site)
            return choice->row[i].way;
    return SLR_WAY_RING;
}

/* Its ways, which are the first ones; calls of a way in turn; of these, how many are not measured. */
struct stage {
    uint32_t ways, run, first;
};

static struct stage stage_of(const struct slr_turns *t)
{
    if (t->stage == SLR_STAGE_DUEL)
        return (struct stage){SLR_WAY_NCCL + 1, t->run, SLR_DUEL_FIRST};
    return t->sparse ? (struct stage){SLR_WAYS, 2, 0} : (struct stage){SLR_WAYS, SLR_TRIAL_RUN, 1};
}

/* The GEMM runs whole once before NCCL has the gather: cuBLAS may load its kernel then, which waits for the
 * device. While that waits for the ring, a peer's death is told (passed/in_call.h); while it waits for
 * NCCL, by another thread only. */
static const int order[SLR_WAYS] = {SLR_WAY_RING,      SLR_WAY_WHOLE,     SLR_WAY_NCCL,     SLR_WAY_PARTS,
                                    SLR_WAY_PARTS + 1, SLR_WAY_PARTS + 2, SLR_WAY_PARTS + 3};

static uint32_t whole_periods(uint32_t calls, uint32_t period)
{
    return period ? (calls + period - 1) / period * period : calls;
}

/* What is measured of it is whole periods: so each GEMM counts as often as it comes. */
static uint32_t run_length(const struct slr_turns *t)
{
    const struct stage of = stage_of(t);
    if (t->stage == SLR_STAGE_DUEL)
        return of.run;
    if (t->sparse && t->period == 1)
        return 1; /* as much as two would tell */
    return of.first + whole_periods(of.run - of.first, t->period);
}

uint32_t slr_duel_run(uint32_t gap, uint32_t period, bool sparse, uint32_t iteration, uint32_t least_calls)
{
    const uint32_t own = whole_periods(sparse ? DUEL_SPARSE : DUEL, period), least = whole_periods(DUEL, period);
    const uint32_t calls = gap < DUEL_MOST / own ? own * gap : DUEL_MOST;
    const uint32_t enough = gap > 1 && calls < DUEL ? DUEL : gap > 1 ? calls : least;
    const uint32_t wanted = enough > least_calls ? enough : least_calls;
    const uint32_t measured = wanted < DUEL_MOST ? wanted : DUEL_MOST;
    const uint32_t whole = whole_periods(measured, iteration), most = iteration ? DUEL_MOST / iteration * iteration : 0;
    return SLR_DUEL_FIRST + (whole <= DUEL_MOST ? whole : most ? most : measured);
}

uint64_t slr_trials_end(const struct slr_turns *t)
{
    return t->after + (uint64_t)t->rounds * stage_of(t).ways * run_length(t);
}

bool slr_way_of_call(uint64_t number, const struct slr_turns *t, int *way, uint32_t *round, bool *measured)
{
    *way = SLR_WAY_RING;
    *round = 0;
    *measured = false;
    if (number < t->after || number >= slr_trials_end(t))
        return false;
    const struct stage of = stage_of(t);
    const uint64_t at = number - t->after, run = at / run_length(t);
    *way = t->stage == SLR_STAGE_DUEL ? slr_duel_way(run) : order[run % of.ways];
    *round = (uint32_t)(run / of.ways);
    *measured = at % run_length(t) >= of.first;
    return true;
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

float slr_trials_median(float *values, unsigned n)
{
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static const struct slr_trial_row *row_of(const struct slr_trial_row *rows, uint32_t count, uint64_t gemm,
                                          uint32_t site)
{
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].gemm == gemm && rows[i].site == site)
            return &rows[i];
    return NULL;
}

static bool whole(const struct slr_trial_row *row, enum slr_stage stage)
{
    for (int w = 0; w < SLR_WAYS; w++)
        if (slr_stage_has(stage, w) && slr_way_differs(w, row->gemm) && (row->ms[w] <= 0 || row->worst[w] <= 0))
            return false;
    return true;
}

bool slr_trials_slowest(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint64_t gemm,
                        uint32_t site, enum slr_stage stage, struct slr_trial_row *out)
{
    *out = (struct slr_trial_row){.gemm = gemm, .site = site};
    for (int r = 0; r < nranks; r++) {
        const struct slr_trial_row *row = row_of(rows[r], count[r], gemm, site);
        if (!row)
            continue;
        if (!whole(row, stage))
            return false;
        out->calls = row->calls > out->calls ? row->calls : out->calls;
        out->of_host |= row->of_host;
        for (int w = 0; w < SLR_WAYS; w++) {
            out->ms[w] = row->ms[w] > out->ms[w] ? row->ms[w] : out->ms[w];
            out->worst[w] = row->worst[w] > out->worst[w] ? row->worst[w] : out->worst[w];
        }
    }
    return out->calls > 0;
}

static int best_over_ring(const struct slr_trial_row *row, int base)
{
    int best = SLR_WAY_RING;
    for (int w = SLR_WAY_WHOLE; w < SLR_WAYS && row->gemm; w++)
        if ((base != SLR_WAY_RING || row->worst[w] < BETTER_PARTS) && row->ms[w] < row->ms[best])
            best = w;
    return best;
}

/* Whether an earlier rank has the row, so that it has been counted. */
static bool seen_before(const struct slr_trial_row *const *rows, const uint32_t *count, int rank,
                        const struct slr_trial_row *row)
{
    for (int r = 0; r < rank; r++)
        if (row_of(rows[r], count[r], row->gemm, row->site))
            return true;
    return false;
}

/* In the place of what was chosen of the row before. */
static void put_chosen(struct slr_trial_choice *choice, const struct slr_trial_row *row, int way)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < choice->rows; i++)
        if (choice->row[i].site != row->site || choice->row[i].gemm != row->gemm)
            choice->row[kept++] = choice->row[i];
    choice->rows = kept;
    if (way != SLR_WAY_RING && choice->rows < SLR_TRIAL_SITES * SLR_TRIAL_ROWS)
        choice->row[choice->rows++] = (struct slr_trial_chosen){.gemm = row->gemm, .site = row->site, .way = way};
}

/* Of one site, all rows that count together: over the ring, and by NCCL. */
struct sums {
    float ring, nccl;
    float bare;   /* of NCCL's, what calls take for which no GEMM waits */
    bool of_host; /* of any row: times that scatter more */
};

static void add_row(struct sums *sums, const struct slr_trial_row *row, int way)
{
    const float nccl = row->ms[SLR_WAY_NCCL] * (float)row->calls;
    sums->ring += row->ms[way] * (float)row->calls;
    sums->nccl += nccl;
    sums->bare += row->gemm ? 0 : nccl;
    sums->of_host |= row->of_host;
}

static int better(const struct sums *sums)
{
    const float least = sums->of_host ? BETTER_RING_OF_HOST : BETTER_RING;
    return sums->ring < sums->nccl * least ? SLR_WAY_RING : SLR_WAY_NCCL;
}

static bool far_apart(const struct sums *sums)
{
    const float least = sums->of_host ? FAR_APART_OF_HOST : FAR_APART;
    return sums->ring < sums->nccl * least ||
           sums->ring > (sums->nccl - sums->bare) / least + sums->bare / FAR_BETTER_BARE;
}

/* The n-th row of rank r, of the slowest rank. False: it does not count, or has been counted. */
static bool counts(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, int r, uint32_t n,
                   uint32_t site, enum slr_stage stage, struct slr_trial_row *slowest)
{
    const struct slr_trial_row *row = &rows[r][n];
    return row->site == site && !seen_before(rows, count, r, row) &&
           slr_trials_slowest(rows, count, nranks, row->gemm, site, stage, slowest);
}

/* All rows of a site that count. In the stage that tries all ways the best one of each goes into *choice. */
static struct sums add_up(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint32_t site,
                          enum slr_stage stage, int base, struct slr_trial_choice *choice)
{
    struct sums sums = {0};
    struct slr_trial_row slowest;
    for (int r = 0; r < nranks; r++)
        for (uint32_t i = 0; i < count[r]; i++)
            if (counts(rows, count, nranks, r, i, site, stage, &slowest)) {
                const int way = stage == SLR_STAGE_WAYS ? best_over_ring(&slowest, base) : SLR_WAY_RING;
                if (stage == SLR_STAGE_WAYS)
                    put_chosen(choice, &slowest, way);
                add_row(&sums, &slowest, way);
            }
    if (sums.nccl > 0)
        choice->site_way[site] = better(&sums);
    return sums;
}

enum slr_verdict slr_trials_choose(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks,
                                   uint32_t site, int base, bool awaited, struct slr_trial_choice *choice)
{
    struct sums sums = add_up(rows, count, nranks, site, SLR_STAGE_WAYS, base, choice);
    sums.bare = awaited ? sums.bare : sums.nccl;
    return sums.nccl <= 0 ? SLR_VERDICT_NOTHING : far_apart(&sums) ? SLR_VERDICT_CHOSEN : SLR_VERDICT_DUEL;
}

bool slr_trials_judge(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint32_t site,
                      struct slr_trial_choice *choice)
{
    return add_up(rows, count, nranks, site, SLR_STAGE_DUEL, SLR_WAY_RING, choice).nccl > 0;
}

/* ---- captures ----
 *
 * A capture is no communication: ranks may capture the calls of one launch at different times, before and after a
 * choice. So the first rank that captures a call of a size decides, by what is chosen there and then, and all captures
 * of all ranks go by that, for good.
 *
 * Shared by the ranks: words that begin as 0. Each stands for one size: shard << 3 | collective << 1 | ring. The word
 * of a size is in the first place that was free when it was written, by compare-and-swap from 0; no word changes again.
 * So whoever looks from the first place on finds it, or is the first; and when there is no place, none has one and the
 * size is NCCL's on all ranks. Nobody waits. */

#define RING UINT64_C(1)
_Static_assert(SLR_COLLECTIVES <= 4, "a collective is two bits");

bool slr_capture_way(_Atomic uint64_t *word, unsigned words, size_t shard, const struct slr_collective *kind, bool wish)
{
    const uint64_t size = (uint64_t)shard << 3 | (uint64_t)kind->id << 1;
    for (unsigned i = 0; i < words; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&word[i], &found, size | (wish ? RING : 0)))
            return wish;
        if ((found & ~RING) == size)
            return found & RING;
    }
    return false;
}

struct slr_consumer slr_trials_name(const struct slr_gemm *gemm, int gathered)
{
    return (struct slr_consumer){.m = gemm->m,
                                 .n = gemm->n,
                                 .k = gemm->k,
                                 .batch = gemm->batch,
                                 .op = {(int32_t)gemm->transa, (int32_t)gemm->transb},
                                 .type = {(int32_t)gemm->atype, (int32_t)gemm->btype, (int32_t)gemm->ctype},
                                 .gathered = gathered};
}
