/* SPDX-License-Identifier: Apache-2.0 */
/* Transfer descriptors: how each pair of ranks moves its shard in one call, agreed without waiting.
 *
 * For every owner of a shard, every reader of it and every call there is one descriptor in the
 * control block. Both hosts come to it once, when they enqueue the call, in either order. The first
 * publishes what it has, by compare-and-swap. The second reads that and does what fits it:
 *
 *   first    publishes                          first does         second does
 *   owner    place of `send` in a block that
 *            the reader has mapped              SLR_ZERO_COPY      SLR_FROM_PLACE
 *   owner    nothing                            SLR_BY_SLOT        SLR_FROM_SLOT
 *   reader   place of `recv` in a block that
 *            the owner has mapped, and where it
 *            expects `send`, or that it does
 *            nowhere                            SLR_FROM_EXPECTED  SLR_AS_EXPECTED, SLR_CORRECTED
 *   reader   nothing                            SLR_FROM_SLOT      SLR_BY_SLOT
 *
 * Readers that do not know a place (below) publish nothing; where slr_transfer_put() says so they
 * expect none, and publish the place of `recv` alone. An owner that is second names its place all the
 * same, for the reader to learn. A call that is made from a graph (record.h) is a call like any other.
 *
 * So a call never depends on an address being the same as last time; it is only faster. A rank
 * whose buffers are unknown costs itself a staging copy and nobody else anything. The two halves
 * always fit, because only one of the two orders can happen.
 *
 * Descriptors are used again after SLR_TRANSFERS calls. A rank may come to a call whose descriptor
 * still waits for the peer to come to an earlier call. It then skips the descriptor and counts that
 * in it: the shard goes by slot, and the peer, which finds the count, does the same. Waiting would
 * be wrong, because the peer may be another rank of the same thread.
 *
 *   state     NONE or BOTH --first side--> OWNER_FIRST or READER_FIRST --second side--> BOTH
 *   skipped   0 with every new n; (m - n) / SLR_TRANSFERS when the first side comes to a later call m instead
 */
#ifndef SLR_PLUGIN_TRANSFER_TRANSFER_H
#define SLR_PLUGIN_TRANSFER_TRANSFER_H

#include <stdbool.h>
#include "kernels/ring.h"
#include "plugin/comm/shared.h"

struct slr_call;
struct slr_comm;
struct slr_place;
struct slr_route;

/* Whether readers of this communicator expect shards nowhere, from SLIPRING_PROTOCOL and what all
 * ranks published. auto: only where ranks share a GPU. Between GPUs whoever comes last to a call would
 * have to move both directions of a pair, one after the other (kernels/ring.h), while the other's
 * engines are idle. */
bool slr_transfer_put(const struct slr_comm *c);

/* This rank's part in the descriptors of a call that has its number, under the communicator's lock:
 * first as the owner, for all peers, then, behind slr_expect_begin() and slr_ring_begin() (exports.h,
 * slr_exported_readable), as the reader. `send` and `recv` say where the buffers lie. Fills `route`.
 * `by_engines`: a GEMM is expected to run beside it, which a kernel that copies would hold up more than a
 * staging copy does (docs/measurements.md): what only kernels may copy is not named. */
void slr_transfer_owner(const struct slr_call *call, const struct slr_place *send, bool by_engines,
                        struct slr_route *route);
void slr_transfer_reader(const struct slr_call *call, const struct slr_place *recv, bool by_engines,
                         struct slr_route *route);

/* ---- expect.c ---- */

/* Expected places: where a peer's shard probably is, before the peer has come to the call.
 *
 * Ranks that run the same program use their buffers in the same combinations: when this rank
 * gathers from the same `send` into the same `recv` as before, so, mostly, does the peer. So what
 * is remembered is, for each combination of this rank's buffers and shard size, the place that the
 * peer had named. It is trusted when the peer has named it twice in a row. Being wrong costs time
 * and nothing else: the shard goes over the wire twice (kernels/ring.h, SLR_CORRECTED), and the
 * place has to earn its trust again.
 *
 * Buffers that were never used together before (all_gather_perf moves through its allocation, a
 * caching allocator cuts its segments anew) are looked for by the block that `send` is in: where
 * such blocks lie alike on all ranks, the peer's shard is as far from this rank's, in the peer's
 * block, as it was before; in place, but for the shards between the two. That is trusted when two
 * calls in a row that sent from different offsets of the block have had the same distance.
 *
 * What the owner of a shard names stays in the transfer descriptor of the call (above), so the
 * reader learns it at one of its next calls, whichever of the two came first.
 *
 * Tables for each peer: of combinations that fall together the one that was not used for longest is driven out when there
 * are more than four, which costs a staging copy. Made at the first call that could use it. All functions under the
 * communicator's lock.
 */

/* Notes the buffers of a call that has its number; `send`: the block of its send buffer. False: nothing
 * can be remembered. */
bool slr_expect_begin(const struct slr_call *call, const struct slr_place *send);

/* The place that is trusted for the call's buffers; none: generation 0. `once`: also one that has been
 * named once only: a graph names the same buffers each time. */
struct slr_remote_place slr_expected_place(const struct slr_call *call, int peer, bool once);

/* What is expected of the call's gather. Asked once for a call, before slr_expect_begin.
 *
 * What will be waited for:
 *
 *   nothing   no GEMM took over the latest gather with these buffers behind the same calls: so it may
 *             well be this time
 *   shards    of the latest ones a GEMM took over so many in a row without waiting for less, that the
 *             trials (plugin/trials/trials.h) can have no other way in turn
 *   chunks    else
 *
 * `context`: what the calls before were (slr_call.behind). Programs gather the same buffers for several purposes:
 * Megatron-LM's layers share one receive buffer, and gather their input once for a GEMM of the forward pass and once
 * more beside another one of the backward pass. `whole`: the GEMM will run whole, for once.
 *
 * Whether the GEMM will write where the call's `send` is, so that the shard had better move out of there
 * (slr_gather.vacated): frameworks drop what they have gathered and give its memory to the next result, which is the
 * GEMM's. Expected for so many calls behind the last one of which slr_expect_overwritten has been said; not if it can
 * not (`movable`), nor where that GEMM was refused in parts. */
struct slr_expect_site;
struct slr_expectation {
    enum slr_wanted wanted;
    bool overwritten;
    struct slr_expect_site *site; /* where what becomes of it is noted; NULL: nothing is. Until slr_expect_free */
};
struct slr_expectation slr_expect_of(const struct slr_call *call, uint64_t context, bool whole, bool movable);

/* A GEMM has taken the gather over of which slr_expect_of was asked. `early`: it waits for chunks that do not end a
 * shard. */
void slr_expect_consumed(struct slr_expect_site *site, bool early);

/* A GEMM that would take it over, or has, writes where its `send` was. */
void slr_expect_overwritten(struct slr_expect_site *site);

/* cuBLAS does not take the parts of that GEMM. */
void slr_expect_refused(struct slr_expect_site *site);

/* The first call of which it is not known yet what `peer` named; to be moved on by the caller. */
uint64_t *slr_expect_unlearned(struct slr_comm *c, int peer);

/* `peer` named `place` (or none) for call `number`, one of the latest SLR_TRANSFERS. */
void slr_expect_learn(struct slr_comm *c, int peer, uint64_t number, struct slr_remote_place place);

/* What is expected in that block of the peer's is expected in `heir` from now on, `shift` further into it. */
void slr_expect_inherit(struct slr_comm *c, int peer, uint64_t generation, uint64_t heir, uint64_t shift);

void slr_expect_free(struct slr_comm *c);

#endif
