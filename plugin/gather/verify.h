/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_VERIFY: a sample of the substituted gathers is run through NCCL too, and compared. For
 * reduce-scatters: scatter/scatter.h. calls/verified.h has the order of the steps. */
#ifndef SLR_PLUGIN_GATHER_VERIFY_H
#define SLR_PLUGIN_GATHER_VERIFY_H

#include "plugin/comm/call.h"

/* Whether the communicator's next substituted call is one of the sample; equal on all ranks. */
bool slr_verify_due(const struct slr_comm *c);

/* Memory for NCCL's result. Without it NCCL writes into the application's buffer: every rank must make
 * the call, whatever it can afford. So this never fails. */
ncclResult_t slr_verify_prepare(struct slr_call *call);

/* The same call through NCCL. */
ncclResult_t slr_verify_run(const struct slr_call *call);

/* The ring has been joined to the stream. Waits for that and compares all bytes. A difference is an
 * error line with the first byte, and the application gets NCCL's bytes. Frees what was prepared; `r`
 * != ncclSuccess: does only that, and returns r. */
ncclResult_t slr_verify_finish(const struct slr_call *call, ncclResult_t r);

#endif
