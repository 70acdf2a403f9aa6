/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of the program does for peers that may make theirs from a graph (record.h).
 *
 * A replay can neither stage a shard nor take one from a slot, and NCCL lets ranks make one call in
 * different ways. So once a rank has captured a gather of the communicator, calls outside of graphs
 * keep away from slots as well, on all ranks, as they can not know what the peers do:
 *
 *   - they wait until the peers' house-keeping threads have mapped their buffers, which takes a few
 *     milliseconds while there is room among the exports (exports.h). Where there is none they wait only
 *     once ranks have been seen to differ, a second at most: what does not fit is staged in other programs;
 *   - a reader that does not know its peer's place expects it nowhere, so that the owner writes it
 *     (transfer.h);
 *   - they wait for a descriptor instead of skipping it: 10 s, and never again, as the peer may wait for
 *     something else of this program's.
 *
 * In a program whose buffers are mapped that is one look at them. Buffers that the peers can not map
 * are staged as before, and so is what was called before this rank could see that a peer has captured
 * something: if a peer replays such a call, the communicator fails with a message (replay.c).
 *
 * Who writes slr_control.recorded: any rank that captures a gather, before its graph can be launched, and
 * any rank that finds in a descriptor that a peer has made the call in the other way. What is written
 * stays. All waits are bounded. */
#ifndef SLR_PLUGIN_GATHER_FOR_REPLAYS_H
#define SLR_PLUGIN_GATHER_FOR_REPLAYS_H

#include <stdatomic.h>
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"

/* This rank captures a gather of the communicator. */
static inline void slr_for_replays_announce(struct slr_comm *c)
{
    atomic_fetch_or(&c->shared.control->recorded, SLR_RECORDED);
}

/* Whether a rank has. */
static inline bool slr_for_replays_due(const struct slr_comm *c)
{
    return atomic_load(&c->shared.control->recorded) != 0;
}

/* A peer has made the call from a graph and this rank has not, or the other way round. */
static inline void slr_for_replays_mixed(struct slr_comm *c)
{
    if (!(atomic_load(&c->shared.control->recorded) & SLR_MIXED))
        atomic_fetch_or(&c->shared.control->recorded, SLR_MIXED);
}

/* Before the call is made, with its number; without the communicator's lock. */
void slr_for_replays(const struct slr_call *call);

#endif
