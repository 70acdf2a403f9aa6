/* SPDX-License-Identifier: Apache-2.0 */
/* What the program takes, whatever it does: how long, over the turns of a duel (ways.h), and whether ring or NCCL is
 * certain to be faster.
 *
 * A turn is measured by two events on the streams of the calls: at the first call of it that is measured, and at the
 * first one behind it. docs/trials.md says why, and when something is certain.
 *
 * Of one thread at a time, the device's context current where a stream is given. Whatever goes wrong costs the time. */
#ifndef SLR_PLUGIN_TRIALS_PROGRAM_H
#define SLR_PLUGIN_TRIALS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "plugin/trials/ways.h"

struct slr_comm;

/* Makes the event where there is none yet. False: it could not be recorded. */
bool slr_trial_record(CUevent *event, CUstream stream);
void slr_trial_drop(CUevent *event); /* NULL: nothing */

#define SLR_BLOCKS (2 * SLR_TRIAL_ROUNDS)

struct slr_blocks {
    struct slr_turns turns;                     /* of the latest duel; rounds 0: there was none */
    uint64_t upto;                              /* the first call behind it */
    CUevent begin[SLR_BLOCKS], end[SLR_BLOCKS]; /* NULL: not made yet */
    uint32_t begun, ended;                      /* which have been recorded, as bits */
};

/* A duel begins. */
void slr_blocks_open(struct slr_blocks *b, const struct slr_turns *turns);

/* The communicator's call `number` has come, on `stream`. */
static inline bool slr_blocks_wants(const struct slr_blocks *b, uint64_t number)
{
    return number <= b->upto && b->turns.rounds && number >= b->turns.after;
}
void slr_blocks_call(struct slr_blocks *b, uint64_t number, CUstream stream);

/* The next call is `next`: all of it is over, or will never be known. */
bool slr_blocks_over(const struct slr_blocks *b, uint64_t next);

/* ms[SLR_WAY_RING or SLR_WAY_NCCL][round]; 0: not known. */
void slr_blocks_read(const struct slr_blocks *b, float ms[2][SLR_TRIAL_ROUNDS]);

void slr_blocks_close(struct slr_blocks *b);

/* Makes `ms` that of the slowest of the ranks so far; `first`: `of_rank` is the first one's. */
void slr_blocks_slowest(float ms[2][SLR_TRIAL_ROUNDS], const float of_rank[2][SLR_TRIAL_ROUNDS], uint32_t rounds,
                        bool first);

/* How much less a turn took over the ring than by NCCL, as part of the mean of both, so that one that was held up
 * counts alike on either side: of so many rounds, mean and sum of the squared deviations. */
struct slr_block_pairs {
    uint32_t n;
    double mean, squares;
};

/* From the times of the slowest rank. A round of which one is not known does not count. */
void slr_blocks_add(struct slr_block_pairs *pairs, float ms[2][SLR_TRIAL_ROUNDS], uint32_t rounds);

/* Which way the program is faster, SLR_WAY_RING or SLR_WAY_NCCL; -1: that is not certain. `again`: it was not
 * before. */
int slr_blocks_judge(const struct slr_block_pairs *pairs, bool again);

/* Line `duel` of the log, and counts it for the one at the end of the job. Of so many sites, 0: of all gathers of a communicator
 * over hosts; or line `duel_of`, of something else there; `ms`: of the slowest rank; `felt`: what slr_blocks_judge() has said of
 * `pairs`. */
void slr_blocks_tell(const struct slr_comm *c, unsigned sites, const char *of, const struct slr_turns *turns,
                     const float ms[2][SLR_TRIAL_ROUNDS], const struct slr_block_pairs *pairs, int felt);

#endif
