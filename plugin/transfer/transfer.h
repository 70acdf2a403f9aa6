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
 * Readers that do not know a place (expect.h) publish nothing; where slr_transfer_put() says so they
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
 * slr_exported_readable), as the reader. `send` and `recv` say where the buffers lie. Fills `route`. */
void slr_transfer_owner(const struct slr_call *call, const struct slr_place *send, struct slr_route *route);
void slr_transfer_reader(const struct slr_call *call, const struct slr_place *recv, struct slr_route *route);

#endif
