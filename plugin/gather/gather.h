/* SPDX-License-Identifier: Apache-2.0 */
/* The folder gather/: a gather's way to the ring, from the decision (calls/collective.c) to the moment at which it is
 * pending (pending/pending.h). The folders around it:
 *
 *   pending    what streams owe to it      transfer   where shards lie        fuse      the GEMM behind it
 *   passed     what NCCL has instead       record     it, in captures         scatter   the other collective
 */
#ifndef SLR_PLUGIN_GATHER_GATHER_H
#define SLR_PLUGIN_GATHER_GATHER_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"

struct slr_call;
struct slr_comm;
struct slr_route;

/* Counts how a moved call's shards go. */
void slr_gather_count_routes(const struct slr_comm *c, const struct slr_route *route);

/* The next gather's place on its stream: the ring starts after what is there now. `from`: slr_stream_away(). */
ncclResult_t slr_gather_entry(struct slr_comm *c, CUstream stream, CUcontext from);

/* Around what the ring does for a call, behind its entry. On a stream of another context than the communicator's the call is
 * on the ring's visitor meanwhile, and then the program's stream comes behind that. `r`: what the call came to, if it did
 * not fail here. */
void slr_gather_visit(struct slr_call *call);
ncclResult_t slr_gather_return(const struct slr_call *call, ncclResult_t r);

/* In a group, after all entries: makes a stream wait for the entries of all streams of its
 * communicator. */
ncclResult_t slr_gather_wait_entries(struct slr_comm *c, CUstream stream);

/* Makes stream `to` wait for what is on stream `from` now; the ring does not take part. */
ncclResult_t slr_gather_wait_stream(struct slr_comm *c, CUstream from, CUstream to);

/* The call's stream has been made to come behind what is done for the call elsewhere than on the ring: said to what comes
 * behind it on other streams. The context is current. */
enum slr_status slr_gather_stands(const struct slr_call *call);

/* Gives the call its number on the communicator, and with it whether it is verified. Once for each
 * call, in order. */
void slr_gather_number(struct slr_call *call);

/* Moves the call to the ring, after slr_gather_entry and slr_gather_number. `defer`: leave it
 * pending for a GEMM to consume, else join at once for the reason `why`. */
ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why);

/* SLIPRING_VERIFY: a sample of the substituted gathers is run through NCCL too, and compared. For
 * reduce-scatters: scatter/scatter.h. calls/collective.h has the order of the steps. */

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
