/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a gather that is recorded (record.h): its buffers, offered to the peers as long as a graph
 * holds them, and what stands in for the peers' memory in the capture. For record.c. */
#ifndef SLR_PLUGIN_GRAPHS_RECORD_MEMORY_H
#define SLR_PLUGIN_GRAPHS_RECORD_MEMORY_H

#include "plugin/comm/comm.h"
#include "plugin/graphs/recorded.h"

/* Holds and registers the buffers of *g, where that can be; what can not is staged. Waits for nobody. Without the
 * communicator's lock. Ended by recorded.c, once the graph holds it, or by `release`. */
enum slr_status slr_record_memory_find(struct slr_comm *c, struct slr_recorded_gather *g,
                                       struct slr_stand_ins *stand_ins);
void slr_record_memory_release(struct slr_comm *c, struct slr_recorded_gather *g);

/* Virtual memory that stands in for a peer's while a gather is captured, as the kind of memory that a copy
 * in a graph names can not change (kernels/ring_record.h). It stays until the communicator's end, with
 * the graphs that name it: here it does, with the context current; else only the host's memory is freed. */
void slr_stand_ins_close(struct slr_comm *c, bool with_context);

#endif
