/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a gather that is recorded (record.h): its buffers, kept mapped by the peers, and what
 * stands in for the peers' memory in the capture. For record.c and replay.c. */
#ifndef SLR_PLUGIN_GATHER_RECORD_MEMORY_H
#define SLR_PLUGIN_GATHER_RECORD_MEMORY_H

#include "plugin/comm/comm.h"
#include "plugin/gather/recorded.h"

/* Holds and registers the buffers of *g and waits, at most a second, until the peers have mapped them;
 * where they can not, *g gets a bounce buffer (bounce.h) instead. Without the communicator's lock.
 * Ended by recorded.c, once the graph holds it, or by `release`. */
enum slr_status slr_record_memory_find(struct slr_comm *c, struct slr_recorded_gather *g,
                                       struct slr_stand_ins *stand_ins);
void slr_record_memory_release(struct slr_comm *c, struct slr_recorded_gather *g);

/* Whether all peers have mapped the buffers now. */
bool slr_record_memory_mapped(struct slr_comm *c, const struct slr_recorded_gather *g);

/* Waits, at most a second, until they have; the buffers stay what they are, those of any gather. Not
 * where other exports would have to go for them, unless that is `wanted`. False: they can not. Without
 * the communicator's lock. */
bool slr_record_memory_await(struct slr_comm *c, const struct slr_recorded_gather *g, bool wanted);

#endif
