/* SPDX-License-Identifier: Apache-2.0 */
/* The folder scatter/: one reduce-scatter, from the decision to the ring or NCCL (kernels/ring_scatter.h),
 * fused with the GEMM before it where that has left a product (plugin/produce/).
 *
 * The decision uses facts that are equal on all ranks (R1), as a gather's does; whether there is a
 * product is this rank's own, and does not enter into it. The stream waits for the result at once: what
 * follows reads it anyway. */
#ifndef SLR_PLUGIN_SCATTER_SCATTER_H
#define SLR_PLUGIN_SCATTER_SCATTER_H

#include "kernels/reduce.h"
#include "plugin/comm/call.h"

/* Of its row (comm/call.h). May: by the setting, types and reductions. Can: whether all ranks can add, and the slots have
 * room for a part of it. */
enum slr_reason slr_scatter_may(const struct slr_call *call);
enum slr_reason slr_scatter_choose(struct slr_call *call);
enum slr_reason slr_scatter_can(const struct slr_call *call);

/* In one operation of the ring, as parts of a GEMM and captured ones have to be. */
bool slr_scatter_fits(const struct slr_call *call);

/* What the kernels call the type, false: there is none for it; and what they divide the sum by. */
bool slr_scatter_type(ncclDataType_t type, enum slr_reduce_type *out);
float slr_scatter_divisor(const struct slr_call *call);

/* After slr_gather_number. Not entered: outside of groups, where there may be a product. */
ncclResult_t slr_scatter_ring(const struct slr_call *call, bool entered);

#endif
