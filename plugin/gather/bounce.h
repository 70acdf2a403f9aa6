/* SPDX-License-Identifier: Apache-2.0 */
/* Bounce buffers: memory of slipring's own that all peers can map, for captured gathers whose own
 * buffers they can not (pools, managed memory, several mappings), as replays can not be staged
 * (record.h).
 *
 * A communicator has one that is large enough for the largest such gather until then; when a larger
 * one comes, another. All captured gathers share it: launches of graphs stand one behind the other
 * (order.h), and within a graph each use waits for the one before. So none is freed before the
 * communicator's end, when its streams are idle. */
#ifndef SLR_PLUGIN_GATHER_BOUNCE_H
#define SLR_PLUGIN_GATHER_BOUNCE_H

#include "plugin/comm/comm.h"

/* At least `bytes`, entered as a block of the cache; 0: there is no memory. Needs the communicator's
 * context. */
CUdeviceptr slr_bounce_take(struct slr_comm *c, size_t bytes);

/* Some virtual memory of the peer's device to which this rank's device alone has access, as it has to what
 * it maps of the peer's. It stays until the communicator's end. 0: there is none, or, unless `wanted`, the
 * peer has no such memory that this rank has mapped. Needs the context. */
CUdeviceptr slr_bounce_stand_in(struct slr_comm *c, int peer, bool wanted, size_t *bytes);

/* The communicator ends. With the context current; else only the host's memory is freed. */
void slr_bounce_close(struct slr_comm *c, bool with_context);

/* Ranks of one process are among them, which can only share virtual memory (cache/staging.h). */
bool slr_bounce_virtual(const struct slr_comm *c);

#endif
