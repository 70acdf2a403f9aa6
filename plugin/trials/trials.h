/* SPDX-License-Identifier: Apache-2.0 */
/* The folder trials/: how the gathers of a call site are served best, found by trying
 * (SLIPRING_TRIALS). ways.h says what is tried and how one is chosen; this is the folder's door.
 *
 *   first calls      over the ring, by the settings
 *   trials           the number of the call says which way it goes (ways.h); its time is taken with
 *                    events on the program's streams (samples.c): from the gather's place on its
 *                    stream to its end, or to that of the GEMM that consumes it; in a program that
 *                    waits for the host the time from call to call counts (samples.c)
 *   post             when its last time is known, a rank writes its medians into the control block
 *   choice           when all have, rank 0 chooses, writes the choice, and proposes it
 *                    (comm/agreed_change.h); all go by it from one call on
 *   duel             when ring and NCCL are close, what all go by from that call on is a duel of the two,
 *                    with each GEMM's best way over the ring; then post and choice once more
 *
 * Calls are those that the ring could have, but for one that connects NCCL (calls/decide.c): uniform
 * on all ranks (R1), as they are what the ring numbers. So no rank waits for another, and a rank that
 * never posts leaves all as they are.
 *
 * Locks: the communicator's (docs/locks.md). */
#ifndef SLR_PLUGIN_TRIALS_TRIALS_H
#define SLR_PLUGIN_TRIALS_TRIALS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"

struct slr_call;
struct slr_collective;
struct slr_comm;
struct slr_consumer;
struct slr_gemm;
struct slr_trial_turn;
struct slr_watcher;

/* What sites tell GEMMs apart by. `gathered`: which of A and B is, or C: what a reduce-scatter sends. */
struct slr_consumer slr_trials_name(const struct slr_gemm *gemm, int gathered);

/* The rounds that this rank would try, for its post; 0: none. */
uint32_t slr_trials_prepare(struct slr_comm *c);

/* All have posted: there are trials if all want some. */
void slr_trials_open(struct slr_comm *c);

/* All are ready: what rank 0 has told them is there. */
void slr_trials_ready(struct slr_comm *c);

/* At its end, or the process's: rank 0 logs of each site which way its calls go, and have gone since that was chosen.
 * Under the communicator's lock. */
void slr_trials_tell(const struct slr_comm *c);

/* The communicator's context is current, or has gone (then `gone`, and its events with it). */
void slr_trials_close(struct slr_comm *c, bool gone);

/* The next gather or reduce-scatter (call->made) that the ring could have; once for each, in order.
 * SLR_R_RING, or why NCCL has it. Sets call->measured, turn, context, behind. Without locks. */
enum slr_reason slr_trials_call(struct slr_call *call);

/* Whether captured calls of that size go to the ring, which are not tried: gathers unless they have been found to be
 * faster with NCCL; reduce-scatters, with SLIPRING_REDUCE_SCATTER=auto, only when they have been found to be slower.
 * Found by the rank that captured the first one (ways.h). Without locks. */
bool slr_trials_captured(struct slr_comm *c, size_t shard, const struct slr_collective *kind);

/* Takes the times of calls that are measured. */
extern const struct slr_watcher slr_trials_watcher;

/* Whether a GEMM behind a gather that goes this way is to run whole in its turn. */
bool slr_trials_tries_whole(const struct slr_trial_turn *turn);

/* How many equal parts the GEMM, described, is to have that consumes a gather that went this way, as its A or
 * its B; 1: it stays whole; 0: by the pace. Under the communicator's lock. */
uint32_t slr_trials_parts(const struct slr_comm *c, const struct slr_trial_turn *turn, const struct slr_gemm *gemm,
                          bool on_a);

/* Of a GEMM, described, that is about to be put on `stream`, and whose output a reduce-scatter of that shard is
 * expected to send: into how many blocks each shard is to be cut. 0: it stays whole. SLR_TRIALS_BLOCKS: as many as the
 * caller likes. Under the communicator's lock. The call's time, if it counts, begins here. */
#define SLR_TRIALS_BLOCKS UINT32_MAX
uint32_t slr_trials_blocks(struct slr_comm *c, size_t shard, const struct slr_collective *kind,
                           const struct slr_gemm *gemm, CUstream stream);

/* The same where nothing is tried (in a capture): by what has been chosen. */
uint32_t slr_trials_blocks_chosen(const struct slr_comm *c, size_t shard, const struct slr_collective *kind,
                                  const struct slr_gemm *gemm);

/* A GEMM has been enqueued on `stream`, as slr_stream_name() calls it, or `aside` by that communicator's ring; perhaps
 * it consumes a gather whose time is being taken. To be called while slr_gemm_watch (base/real.h) has trials. Without
 * locks. */
void slr_trials_gemm(struct slr_gemm *gemm, CUstream stream, const struct slr_comm *aside);

#endif
