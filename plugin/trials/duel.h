/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: how long the program takes over the turns of a duel (ways.h).
 *
 * What a call takes is not what the program feels: NCCL's kernels take multiprocessors from the GEMMs beside them, and a
 * call that is slower, but leaves them alone, may make the iteration faster. In a duel all sites that are close go over the
 * ring in one turn and by NCCL in the next, so the time from turn to turn says it all, whatever ran beside.
 *
 * A turn is measured by two events on the streams of the calls: at the first call of it that is measured, and at the first
 * one behind it. Turns have the same number of calls; how alike they are otherwise shows in how the differences between
 * the ring's turn and NCCL's scatter from round to round. What is decided has one chance in ten to be due to that (one
 * side of Student's t), and is more than a five-hundredth, which clocks do not tell; else, and in a single round, nothing
 * is, and each site goes by its own calls. A site of which nothing else is known has further duels. What its rounds have
 * shown in all of them counts then, and has to be certain by one chance in a hundred, as it is looked at several times.
 * One whose own calls' times say the opposite has further ones, too, each by itself.
 *
 * Under the communicator's lock, its context current where a stream is given. Whatever goes wrong costs the time. */
#ifndef SLR_PLUGIN_TRIALS_DUEL_H
#define SLR_PLUGIN_TRIALS_DUEL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "plugin/trials/ways.h"

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

/* How much less a turn took over the ring than by NCCL, as part of the mean of both, so that one that was held up counts
 * alike on either side: of so many rounds, mean and sum of the squared deviations. */
struct slr_block_pairs {
    uint32_t n;
    double mean, squares;
};

/* From the times of the slowest rank. A round of which one is not known does not count. */
void slr_blocks_add(struct slr_block_pairs *pairs, float ms[2][SLR_TRIAL_ROUNDS], uint32_t rounds);

/* Which way the program is faster, SLR_WAY_RING or SLR_WAY_NCCL; -1: that is not certain. `again`: it was not before. */
int slr_blocks_judge(const struct slr_block_pairs *pairs, bool again);

#endif
