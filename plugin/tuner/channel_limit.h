/* SPDX-License-Identifier: Apache-2.0 */
/* When the all-gathers that NCCL makes run beside a GEMM of the application, they are given fewer
 * channels, so that NCCL's kernel leaves it more of the device (SLIPRING_TUNE_OVERLAP_CHANNELS).
 * Only what happens on a rank shows the overlap, but every rank has to give the same number of
 * channels at the same call, or the communicator hangs. So a rank proposes, and all change over at
 * one call that none of them has decided yet.
 *
 * Calls are the all-gathers of one communicator that NCCL asks its tuner about, counted from 0: the
 * same sequence on all ranks. Shared by the ranks, in the communicator's control block: a word, and
 * for each rank a horizon.
 *
 *   horizon[r] = h   rank r has settled its calls below h; 0: it has made none. Written by r only,
 *                    grows.
 *   word             0 nothing | PROPOSED(place, by, try) | CONFIRMED(place)
 *
 * A rank that comes to call n >= its horizon
 *   1. stores horizon n + AHEAD
 *   2. reads the word
 *   3. PROPOSED with place < its horizon: cancels it by compare-and-swap to 0; failing that, reads
 *      again
 *   4. CONFIRMED: gives fewer channels from call `place` on
 *
 * A rank that proposes
 *   1. place = largest horizon + AHEAD
 *   2. word 0 -> PROPOSED(place, own rank, a number of its own)
 *   3. reads all horizons: each known and <= place: PROPOSED -> CONFIRMED, else PROPOSED -> 0
 *
 * All are sequentially consistent. It is over with the first CONFIRMED.
 *
 * Why all change over at the same call. The word becomes CONFIRMED(place) once. Rank r settles call
 * `place` at the one step at which its horizon passes it.
 *
 *   - Its store of that horizon comes before the proposer's reading of it: then the proposer does
 *     not confirm.
 *   - Or it comes after: then r's reading of the word comes after PROPOSED was written. It sees
 *     PROPOSED, which it cancels (then the confirmation fails) or fails to cancel because it is
 *     CONFIRMED by now; or it sees CONFIRMED; or that somebody else has cancelled.
 *
 * In each case what r does and what became of the word agree. The proposer's rank and number in the
 * word keep a late confirmation from hitting a second proposal of the same place.
 *
 * Why nothing waits. No step waits for another rank. A rank that has died or never calls again
 * keeps its horizon: then proposals are made that nobody reaches. Two that propose at once: one
 * compare-and-swap wins.
 *
 * What it costs: a store and a load in shared memory every AHEAD calls. A change comes AHEAD to
 * 2 AHEAD calls late. */
#ifndef SLR_PLUGIN_TUNER_CHANNEL_LIMIT_H
#define SLR_PLUGIN_TUNER_CHANNEL_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "plugin/comm/control.h"

#ifndef SLR_CHANNEL_LIMIT_AHEAD
#define SLR_CHANNEL_LIMIT_AHEAD 256u /* calls */
#endif
#define SLR_CHANNEL_LIMIT_WINDOW 16u /* gathers that a rank looks back on */

struct slr_channel_limit {
    struct slr_channel_limit_shared *shared; /* NULL: none in common, nothing is ever changed */
    int rank, nranks;
    uint64_t calls;   /* number of the next call */
    uint64_t horizon; /* own */
    uint64_t place;   /* first call with fewer channels; UINT64_MAX: none yet */
    uint32_t tries;   /* proposals so far */
    uint32_t history; /* of the last gathers: 1 where a GEMM ran beside it */
    unsigned known;   /* how many of them */
};

void slr_channel_limit_init(struct slr_channel_limit *limit, struct slr_channel_limit_shared *shared, int rank,
                            int nranks);

/* The next call. True: it gets fewer channels; all ranks return the same for the same call. */
bool slr_channel_limit_call(struct slr_channel_limit *limit);

/* A gather was passed while a GEMM ran beside it, or not. Proposes when half of the last ones did.
 */
void slr_channel_limit_seen(struct slr_channel_limit *limit, bool beside);

#endif
