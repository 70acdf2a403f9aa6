/* SPDX-License-Identifier: Apache-2.0 */
/* The folder scatter/: one reduce-scatter or all-reduce, from the decision to the ring or NCCL
 * (kernels/scatter.h), fused with the GEMM before it where that has left a product (plugin/produce/).
 *
 * The decision uses facts that are equal on all ranks (R1), as a gather's does; whether there is a
 * product is this rank's own, and does not enter into it. The stream waits for the result at once: what
 * follows reads it anyway. */
#ifndef SLR_PLUGIN_SCATTER_SCATTER_H
#define SLR_PLUGIN_SCATTER_SCATTER_H

#include "kernels/scatter.h"

struct slr_call;
struct slr_comm;
struct slr_product;

/* Of its row (comm/call.h). Can: whether all ranks can add, and the slots have room for a part of it. */
enum slr_reason slr_scatter_may(const struct slr_call *call);
enum slr_reason slr_scatter_has(const struct slr_call *call);
enum slr_reason slr_scatter_choose(struct slr_call *call);
enum slr_reason slr_scatter_can(const struct slr_call *call);

/* In one operation of the ring, as parts of a GEMM and captured ones have to be. */
bool slr_scatter_fits(const struct slr_call *call);

/* What the kernels call the type, false: there is none for it; and what they divide the sum by. */
bool slr_scatter_type(ncclDataType_t type, enum slr_reduce_type *out);
float slr_scatter_divisor(const struct slr_call *call);

/* NCCL's own function of the call, with another place for what is received, and nothing around it. */
ncclResult_t slr_scatter_real(const struct slr_call *call, void *recv);

/* After slr_gather_number. Not entered: outside of groups, where there may be a product. */
ncclResult_t slr_scatter_ring(const struct slr_call *call, bool entered);

/* ---- of a communicator that spans hosts: scatter_hosts.c ---- */

/* A reduce-scatter of the whole (hosts/hosts.h), for a piece of all shards at a time:
 *
 *   inside   for each other host, in the order in which the rail serves them: the ranks of the host add its shards, by a
 *            reduce-scatter of the inside into slipring's own memory, for which they do not meet (kernels/scatter.h, `apart`).
 *            Then the own host's shards, into the program's buffer, as any
 *   rail     each of these sums goes to the rank in the same place of its host as soon as it is there
 *   end      what has come from the other hosts is added to the own sum, in the order of the hosts, and the program's stream
 *            goes on
 *
 * So a GEMM that is computed host by host, the own one last, has the rail beside it. Its parts are a product of the inside.
 * A host's ranks add in fp32 and round, and so do the hosts. An average is divided at the end, of half precision both times.
 *
 * The ring waits for ranks of the host alone, the rail for sums; so nothing waits in a circle (docs/hosts.md).
 *
 * An all-reduce is one of the inside, with shards of its ranks; each part that the ring has summed is completed by NCCL on
 * the rail, in the own slots, before the ring tells of it (kernels/scatter.h, `complete`). No GEMM is cut for it. */

/* The call of the inside that a call of the whole is. Whether its ring can is the host's own matter; where it can not, NCCL
 * adds the shards of each. */
struct slr_call slr_scatter_of_hosts(const struct slr_call *call, struct slr_comm *inside, bool ring);

/* Of such a call, when the inside is connected: there is room. */
bool slr_scatter_hosts_fit(const struct slr_call *call);

/* As slr_scatter_choose(), of a call of the whole that may go over hosts. */
enum slr_reason slr_scatter_hosts_choose(struct slr_call *call);

/* ---- captured: record_scatter.c ---- */

/* Reduce-scatters that are captured into a CUDA graph. They are recorded, kept and replayed as gathers are
 * (plugin/record/record.h), with these differences:
 *
 *   what        all of it is fixed but the numbers in the words: parts of the program's C go into the
 *               peers' slots, and the sums into the program's buffer (kernels/ring_scatter.c). So nothing
 *               has to be mapped, nothing is agreed on at a launch, and a launch waits for nobody's host
 *   memory      the slots, which the communicator keeps as long as a graph holds a call of it; the
 *               program's buffers, as all that is captured uses them
 *   the GEMM    before it, in the same capture: in blocks, if it is expected (plugin/produce/product.h).
 *               A wrong guess is found while it is captured; then the GEMM is in parts for nothing, in every
 *               replay, and the call sends what stands in C behind all that it comes behind
 *   order       sums and pushes are ordered by edges: kernels/ring_scatter.c says why
 *   words       a replay's numbers follow those of the communicator's calls before it, as a call's outside of
 *               graphs: replays, calls, and gathers in graphs and outside may come in any turn, and peers may
 *               make the same call outside of a graph
 *   failure     as for any call: dead, failed and stopped peers are found by the words, and a launch on a
 *               communicator in error or at its end fails and moves nothing
 *
 * When it is left to NCCL (SLR_R_CAPTURE): for the reasons that a gather is, but for those of the memory; and with
 * SLIPRING_REDUCE_SCATTER=auto unless trials outside of graphs have found the ring to be faster for its size
 * before the first capture of it (trials/ways.h): nothing is tried in a graph. Each of these is equal on ranks that do the same. Ranks
 * that differ all the same are found as passed_alone.h says, or as a stall. */
extern const struct slr_capture slr_capture_scatter;

/* ---- compared: verify_sum.c ---- */

/* SLIPRING_VERIFY of reduce-scatters. NCCL's sums need not be the ring's, so each rank also gets what
 * all ranks contribute to its shard, through NCCL, from their send buffers as they are when the call
 * stands on the stream, and compares (kernels/reduce_check.c):
 *
 *   check=sum    the ring's result is, bit by bit, the sum of the contributions. This finds what the ring
 *                took too early, as of a GEMM whose output something has changed since
 *   check=nccl   and as near to NCCL's own result as rounding allows
 *
 * NCCL's operations stand before the entry of the ring's, behind which the result is written, also into `send`.
 *
 * Memory: the contributions and NCCL's result, ranks + 1 shards. On a device
 * that has not so much, of the host: every rank must make NCCL's calls, and these must not write into
 * the application's buffers, from which the ring still takes its data. */
/* Orders the call behind its communicator's on other streams, and what is copied behind its stream. Anything
 * but ncclSuccess: the communicator has failed. */
ncclResult_t slr_verify_sum_prepare(struct slr_call *call);

/* Within a group of NCCL's each: its reduce-scatter, and the contributions. */
ncclResult_t slr_verify_sum_run(const struct slr_call *call);
ncclResult_t slr_verify_sum_inputs(const struct slr_call *call);

/* As slr_verify_finish(). */
ncclResult_t slr_verify_sum_finish(const struct slr_call *call, ncclResult_t r);

/* ---- what one that runs now and one that is captured have in common: for this folder alone ---- */

enum { SLR_PLAIN_PARTS = 4 }; /* of a shard that no GEMM has cut */

/* What the ring needs but `entry`. Without a product (NULL) the parts are put into `plain`, which stays as long as
 * *s. */
void slr_scatter_describe(const struct slr_call *call, const struct slr_product *p,
                          struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS], struct slr_scatter *s);

/* Where the ranks write into: the slots of s->plan. */
void slr_scatter_arrives(const struct slr_comm *c, struct slr_scatter *s);

/* All that is there at the entry, in parts. */
unsigned slr_scatter_plain(const struct slr_comm *c, const struct slr_plan *plan, const size_t length[SLR_MAX_RANKS],
                           struct slr_scatter_part *part);

/* The product that the call sends, with the lane's lock; NULL: none that it can send in parts, without. */
const struct slr_product *slr_scatter_take(const struct slr_call *call, bool fits, CUevent *before);

/* Under the lane's lock, its context current, with nothing pending: what has been described. The product, and what
 * slr_product_take() said of it. */
enum slr_status slr_scatter_run(const struct slr_call *call, struct slr_scatter *s, const struct slr_product *p,
                                CUevent before);

/* What the program's call answers. */
ncclResult_t slr_scatter_outcome(const struct slr_call *call, enum slr_status s);

/* Here the call's stream comes to the call; parts of a product may be sent before. */
enum slr_status slr_scatter_mark_entry(struct slr_ring *ring, const struct slr_call *call, struct slr_scatter *s);

#endif
