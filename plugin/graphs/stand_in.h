/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory that stands in for a peer's while a gather is captured, as the kind of memory that a copy
 * in a graph names can not change (kernels/ring_record.h). It stays until the communicator's end, with
 * the graphs that name it. */
#ifndef SLR_PLUGIN_GRAPHS_STAND_IN_H
#define SLR_PLUGIN_GRAPHS_STAND_IN_H

#include "plugin/comm/comm.h"

/* Some virtual memory of the peer's device to which this rank's device alone has access, as it has to what
 * it maps of the peer's. 0: there is none, or, unless `wanted`, the peer has no such memory that this rank
 * has mapped; then it maps none from now on (exports.h). Needs the context. */
CUdeviceptr slr_stand_in(struct slr_comm *c, int peer, bool wanted, size_t *bytes);

/* The communicator ends. With the context current; else only the host's memory is freed. */
void slr_stand_ins_close(struct slr_comm *c, bool with_context);

#endif
