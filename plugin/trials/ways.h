/* SPDX-License-Identifier: Apache-2.0 */
/* The ways that are tried, when, and how the best is chosen from what the ranks have measured. It knows nothing of
 * CUDA. docs/trials.md says what sites and rows are, which ways there are, what sparse calls, periods and duels are,
 * and by how much something has to be better.
 *
 * How one stage of a site's trials follows on another:
 *
 *   WAYS  --choose: far apart-->  chosen  --strangers: other GEMMs than were tried-->  WAYS
 *   WAYS  --choose: close------>  DUEL    --judge-->  chosen
 *   WAYS  --choose: nothing was measured-->  ended: all go on as they did
 *   WAYS  --its calls are all in groups with others: nothing will be measured-->  ended
 *   ended in WAYS  --the others' trials are over-->  DUEL
 *   DUEL  --neither its rows nor what the program takes (duel.c) tells, and nothing did before-->  ended
 *   ended in DUEL  --later, ever more rarely-->  DUEL
 *   chosen in DUEL, though what the program takes speaks against it  --likewise-->  DUEL
 *
 * Who writes what, in the control block (comm/trial_row.h):
 *
 *   post[r].site[s].row, rows   rank r, when it has made all calls of a stage and knows their times
 *   post[r].site[s].times       rank r, behind these: 1 + the number of the stage, which grows. What it
 *                               has posted stays until it posts the next one
 *   choice                      rank 0, while no change is under way, when all `times` are beyond the
 *                               stage (or the site has to be tried again, or ended): `row` and either
 *                               again = that of the duel, or chosen = 1 + that of the stage, with
 *                               site_way; or the form of a size (form.c), whose sites begin anew; then it
 *                               proposes the change (comm/agreed_change.h)
 *   again                       even: all ways are tried, odd: the duel. New trials go on to the next
 *                               even one
 *
 * Why all ranks go alike. A stage begins at the call from which on a change holds, the same on all, and
 * its number comes with it; within it the number of the call decides, and the GEMM's way in a duel comes
 * from choice.row, which came with it as well. Between a stage's last call and the change, and until a
 * site's first trials are over, all go by what was chosen before, or by what is in use without.
 *
 * A rank that measured nothing posts rows without times, or none: the former do not count, the latter are
 * not asked for. When no row counts, the site goes on as it did; in a duel it has what the first stage
 * found. A rank that is slow, or has died, has not posted: nothing is chosen, nobody waits, and all go on as
 * they are. A site that is given up (find.c) before its duel or in it is not measured any more, and nothing is
 * chosen. */
#ifndef SLR_PLUGIN_TRIALS_WAYS_H
#define SLR_PLUGIN_TRIALS_WAYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/counters.h"
#include "base/settings.h"
#include "plugin/comm/trial_row.h"

/* The stages of the trials of a site, one after the other; a stage's number, `again` of a
 * slr_trial_choice, says which it is. */
enum slr_stage { SLR_STAGE_WAYS, SLR_STAGE_DUEL };

/* Where a site is in its stage, on one rank. Written by slr_trials_event() only. Behind POSTED only rank 0 goes: what
 * it has chosen holds when the change does, which the others see in the choice. ways.c has the table. */
enum slr_site_state {
    SLR_SITE_TRYING,  /* its ways are tried, or going to be: it is measured */
    SLR_SITE_POSTED,  /* this rank has posted what it knows of the stage */
    SLR_SITE_WAITING, /* and for what all have posted a duel is due */
    SLR_SITE_DECIDED, /* something has been chosen, or nothing will be; or a rule is known, and none is tried */
    SLR_SITE_AGAIN,   /* and for that another duel is due */
    SLR_SITE_GIVEN_UP /* find.c; for good */
};
enum slr_site_event {
    SLR_SITE_BEGIN,   /* a change holds from this call on: the next stage, all that was measured is forgotten */
    SLR_SITE_POST,    /* the stage is over and its times are known: they are posted */
    SLR_SITE_DUE,     /* rank 0: a duel is to decide; it begins when the other sites are ready for it */
    SLR_SITE_NOT_DUE, /* rank 0: not any more */
    SLR_SITE_CHOOSE,  /* rank 0: it has proposed what all have posted for, or that nothing is chosen */
    SLR_SITE_END,     /* a change holds by which the stage ends, unmeasured */
    SLR_SITE_GIVE_UP  /* there are too many small sizes */
};
#define SLR_SITE_STATES (SLR_SITE_GIVEN_UP + 1)
#define SLR_SITE_EVENTS (SLR_SITE_GIVE_UP + 1)

/* False: that can not be; *state is as it was. */
bool slr_site_next(enum slr_site_state *state, enum slr_site_event event);

#define SLR_TRIAL_RUN 4u  /* calls of a way in turn */
#define SLR_DUEL_FIRST 4u /* calls of a turn in a duel that are not measured */
#define SLR_TRIAL_PERIOD 12u

/* The setting or variable of this process that keeps all its ranks from trying; NULL: none does. */
static inline const char *slr_trials_none(void)
{
    const char *reproducible = getenv("CUBLAS_WORKSPACE_CONFIG");
    return slr_get(SLR_S_TRIALS) == 0      ? "SLIPRING_TRIALS is 0"
           : reproducible && *reproducible ? "CUBLAS_WORKSPACE_CONFIG is set"
                                           : NULL;
}

/* Calls of a site, from its first one, until its ways have been compared, by a duel too, and the choice holds: at most,
 * unless they share groups with others, and 0 without trials. Between a stage and the next there are some 32. */
static inline uint64_t slr_trial_need(uint64_t rounds, uint64_t after)
{
    return rounds ? after + (SLR_WAYS * SLR_TRIAL_RUN + 2 * SLR_TRIAL_PERIOD) * rounds + 2 * 32 : 0;
}

/* Raised when a way's word comes to mean something else, or its times change, or what was chosen by an
 * older rule is not good enough: rules of a tune file from before are not used then. 2: a tie is
 * NCCL's, and a close race is decided by a duel; version 1 kept the ring in both. */
#define SLR_WAYS_VERSION 2u

static inline enum slr_stage slr_stage_of(uint32_t again)
{
    return again % 2 ? SLR_STAGE_DUEL : SLR_STAGE_WAYS;
}

/* The number of the first stage of the next trials. */
static inline uint32_t slr_stage_next_trials(uint32_t again)
{
    return again - again % 2 + 2;
}

/* Of the next duel: these trials', or, if it is that, of the next ones, whose ways are not tried again. */
static inline uint32_t slr_stage_next_duel(uint32_t again)
{
    return again + 1 + again % 2;
}

static inline bool slr_stage_has(enum slr_stage stage, int way)
{
    return stage == SLR_STAGE_WAYS || way == SLR_WAY_RING || way == SLR_WAY_NCCL;
}

/* Where no GEMM (0) takes part the ways over the ring are one. */
static inline bool slr_way_differs(int way, uint64_t gemm)
{
    return gemm || way == SLR_WAY_RING || way == SLR_WAY_NCCL;
}

/* The way's word in a tune file: "pace", "whole", or p and the number of equal parts; of a reduce-scatter
 * b and the number of blocks of a shard. Of SLR_WAY_NCCL there is none. And back; -1: no way over the
 * ring has that word with so many ranks. */
#define SLR_WAY_WORD 16
void slr_way_word(int way, const struct slr_collective *kind, int nranks, char word[SLR_WAY_WORD]);
int slr_way_of_word(const char *word, const struct slr_collective *kind, int nranks);

/* Of a way: the number of equal parts; 1: whole; 0: by the pace, or NCCL's. */
uint32_t slr_way_parts(int way, int nranks);

/* Of a reduce-scatter's way: into how many blocks the GEMM before it computes each shard. 0: whole;
 * UINT32_MAX: by the size. */
uint32_t slr_way_blocks(int way);

/* A stage of a site's trials: it begins at the site's call `after`; a duel, at the communicator's. `period` 0:
 * not known. */
struct slr_turns {
    uint64_t after;
    uint32_t rounds, period;
    enum slr_stage stage;
    bool sparse;
    uint32_t run; /* of a duel */
};

/* How many calls of the communicator a turn has at least in a duel with a site of which one in `gap` is. What is
 * measured of it is whole iterations, of so many calls, unless those are too long; 0: not known. `least_calls` are
 * measured at least, if that is not too many. */
uint32_t slr_duel_run(uint32_t gap, uint32_t period, bool sparse, uint32_t iteration, uint32_t least_calls);

/* In a duel: ring, NCCL, NCCL, ring, ring, NCCL: what falls on the same half of each pair is not always the same
 * way's. */
static inline int slr_duel_way(uint64_t turn)
{
    return (int)((turn ^ turn / 2) & 1);
}

/* The way of call `number` of a site, from 0, or of the communicator in a duel; and the round. *measured: its time
 * counts. True: ways are being tried, else it is SLR_WAY_RING. In a duel SLR_WAY_RING is the ring with each row's
 * way. */
bool slr_way_of_call(uint64_t number, const struct slr_turns *turns, int *way, uint32_t *round, bool *measured);

/* The first call behind the stage. */
uint64_t slr_trials_end(const struct slr_turns *turns);

/* Of a GEMM, or 0, on a site that the ring has. */
int slr_way_chosen(const struct slr_trial_choice *choice, uint64_t gemm, uint32_t site);

enum slr_verdict {
    SLR_VERDICT_DUEL, /* neither is so much better that it would be so in a steady run, too */
    SLR_VERDICT_CHOSEN,
    SLR_VERDICT_NOTHING /* no row counts */
};

/* Chooses for one site, and puts that into *choice. rows[r]: of rank r, count[r] of them. `base`:
 * what is in use without trials, SLR_WAY_RING or, of small gathers, SLR_WAY_NCCL. `awaited`: the GEMM of a row waits
 * for the call; else it comes before, and what waits is not known.
 * A row counts that has been measured in every way, on the ranks that have it; its time is that of the
 * slowest. A row that does not count keeps what was chosen for it, and when none does, *choice is left as it is. */
enum slr_verdict slr_trials_choose(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks,
                                   uint32_t site, int base, bool awaited, struct slr_trial_choice *choice);

/* Chooses between ring and NCCL, by the same rule, from what a duel has measured. False: nothing was; *choice is left
 * as it is. */
bool slr_trials_judge(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint32_t site,
                      struct slr_trial_choice *choice);

/* Of the slowest rank. False: no rank has the row, or one has not measured it in every way of the stage. */
bool slr_trials_slowest(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint64_t gemm,
                        uint32_t site, enum slr_stage stage, struct slr_trial_row *out);

/* The median of n > 0 values, which it puts in order. */
float slr_trials_median(float *values, unsigned n);

/* ---- captures ---- */

/* Whether it is the ring's. `wish`: what this rank would say, were it the first. `shard`: bytes, below 2^61; not 0. */
bool slr_capture_way(_Atomic uint64_t *word, unsigned words, size_t shard, const struct slr_collective *kind,
                     bool wish);

#endif
