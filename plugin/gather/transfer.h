/* Terms: how each pair of ranks moves its shard in one call, agreed without waiting.
 *
 * For every ordered pair (owner, reader) and call there is one record in the control block. Both hosts come to it once,
 * when they enqueue the call, in either order. The first posts what it has and wins by compare-and-swap; the second
 * reads that and obeys:
 *
 *   first    posts                                        first does             second does
 *   owner    place of `send` in a block that the          SLR_ZERO_COPY           SLR_FROM_PLACE
 *            reader has mapped
 *   owner    nothing                                      SLR_BY_SLOT            SLR_FROM_SLOT
 *   reader   place of `recv` in a block that the          SLR_ARRIVES            SLR_BY_PUSH
 *            owner has mapped (only with slr_transfer_put)
 *   reader   nothing                                      SLR_FROM_SLOT          SLR_BY_SLOT
 *
 * So a call never depends on an address being the same as last time, a rank whose buffers are unknown only costs itself
 * a staging copy, and neither side waits. Both halves fit because only one of the two orders can happen.
 *
 * Records are used again after SLR_TRANSFERS calls. Who finds the record of a call still waiting for the peer to come to an
 * earlier one passes the call, and counts that in the record: the shard goes by slot, and the peer does the same when
 * it comes there. Waiting would be wrong, because the peer may be the same thread's next rank.
 */
#ifndef SLR_PLUGIN_GATHER_TRANSFER_H
#define SLR_PLUGIN_GATHER_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include "kernels/ring.h"
#include "plugin/comm/control.h"

struct slr_call;
struct slr_comm;
struct slr_place;

/* The latest call that was posted; how many later ones of this record its first side has passed since; its state. */
static inline uint64_t slr_transfer_head(uint64_t call, uint64_t passed, enum slr_transfer_state state)
{
    return call << 24 | passed << 2 | (uint64_t)state;
}

static inline uint64_t slr_transfer_call(uint64_t head)
{
    return head >> 24;
}

static inline uint64_t slr_transfer_passed(uint64_t head)
{
    return head >> 2 & 0x3fffff;
}

static inline enum slr_transfer_state slr_transfer_state(uint64_t head)
{
    return (enum slr_transfer_state)(head & 3);
}

/* Whether readers of this communicator offer their receive buffers, from SLIPRING_PROTOCOL and what all ranks posted.
 * auto: only where ranks share a GPU, where a push saves a copy. Between GPUs whoever comes last to a call would have
 * to move both directions of a pair, and the copy engines of one GPU with them, while the other's are idle: measured on
 * four H200 with NVLink, 4 ranks x 512 MiB, 10.2 ms against 7.4 by pull (docs/measurements.md). */
bool slr_transfer_put(const struct slr_comm *c);

/* This rank's halves of the terms of a call that has its number, under the communicator's lock: first the owner's for
 * all peers, then the reader's. Where the buffers lie; `recv` NULL: it is not offered. */
void slr_transfer_owner(const struct slr_call *call, const struct slr_place *send, struct slr_route *route);
void slr_transfer_reader(const struct slr_call *call, const struct slr_place *recv, struct slr_route *route);

#endif
