/* SPDX-License-Identifier: Apache-2.0 */
/* All-gathers that stay with NCCL: measured (timeline.h) when it is their turn, counted when this
 * rank passes them alone. */
#ifndef SLR_PLUGIN_CALLS_PASSED_H
#define SLR_PLUGIN_CALLS_PASSED_H

#include "plugin/comm/call.h"

/* slr_gather_nccl, measured. Not in groups, where NCCL begins later. */
ncclResult_t slr_gather_passed(const struct slr_call *call);

/* The call stays with NCCL for one of passed_alone.h's reasons: it is counted, or on a capturing
 * stream, the graph holds it. */
void slr_gather_passes_alone(const struct slr_call *call, enum slr_reason why);

#endif
