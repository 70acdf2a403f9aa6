/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: measuring calls of the ring on the device (SLIPRING_TRACE). When each copy, wait and GEMM
 * part of a sampled call began and ended, on one clock for all ranks of the host. docs/tracing.md
 * says what the lines mean.
 *
 * This header is the folder's door; timeline_impl.h is for the folder alone. It uses the folders
 * util, comm and bootstrap.
 *
 * A sampled call has a record (kernels/timing.h) from its beginning until nothing of it is pending
 * any more. Then it is *closed*. The house-keeping thread writes its lines when all of its events
 * are complete, and gives the record free. Nothing waits on the application's threads. There are
 * SLR_TIMELINE_RECORDS for each communicator; a call that finds none free is not measured, and
 * counted.
 *
 *   record   free   --sampled call-->                                   open
 *            open   --no stream has to wait for the gather any more-->  closed
 *            closed --read-->                                           free
 *
 * Whatever goes wrong with an event costs the sample and nothing else. The records of a
 * communicator that has failed are dropped: what released waits let through says nothing.
 *
 * The wait that joins the origin of a gather that has followers (pending.h) is not measured: the program computes on
 * those.
 *
 * A gather that is captured into a graph has a record, too, which is shared by the graphs that hold
 * the gather, and has no times: what a replay's record is made from (kernels/timing.h).
 *
 *   capture  free    --captured-->                                      open
 *            open    --pending in the capture no more-->                closed
 *   record   free    --launch of a sampled call--> --launched-->        closed, as above
 *
 * and a captured reduce-scatter likewise. What is said of reduce-scatters here is so of all-reduces.
 *
 * A reduce-scatter is sent from the parts of a GEMM that comes before it. So a GEMM that is computed in
 * parts before a call whose turn it would be begins a record, which the call goes on with. One that
 * is not taken is used again, and counts as no call.
 *
 *   record   free     --GEMM in parts-->                                expected
 *            expected --the reduce-scatter that takes the parts-->      open, closed as above
 *            expected --another GEMM in parts, or call measured-->      free
 *
 * Locks: the open record of the ring belongs to the lock of its lane, which is taken before the
 * timeline's own; a call that NCCL makes has its record to itself. No CUDA call but those of the
 * reader is made under the timeline's lock.
 */
#ifndef SLR_PLUGIN_TIMELINE_TIMELINE_H
#define SLR_PLUGIN_TIMELINE_TIMELINE_H

#include "base/real.h"
#include "plugin/abi/nccl_common.h"

struct slr_call;
struct slr_comm;
struct slr_lane;
struct slr_plan;
struct slr_route;
struct slr_timing;
struct slr_watcher;

#define SLR_TIMELINE_RECORDS 256
#define SLR_TIMELINE_EVENTS 65536 /* of all records together; then no further record is made */

struct slr_timed;
struct slr_timed_capture;

/* What measures a captured gather in one graph. All 0: nothing. */
struct slr_timed_nodes {
    struct slr_timed_capture *of; /* a reference */
    CUgraphNode *node;            /* of its stamps; NULL: the captured ones */
    struct slr_timed *now;        /* of the launch under way; NULL: it is not measured */
};

/* What numbers measured calls; only touched when SLIPRING_TRACE is on, by the thread that calls. */
struct slr_timeline_counts {
    uint64_t other[SLR_NCCL_FUNCS]; /* calls of each other function */
    bool refused;                   /* what measuring needs could not be made */
};

/* Whether the call with this number, counted from 1, is to be measured. */
bool slr_timeline_turn(uint64_t number);

/* Calls outside of captures, and those that NCCL is left. With SLIPRING_TRACE. */
extern const struct slr_watcher slr_timeline_watcher;

/* Nothing of the gather is pending any more. */
void slr_timeline_close(struct slr_lane *lane);

/* Around the real call of another operation, `number` of its function. Outside of groups, without locks, and after the
 * stream has been joined: what it still has to wait for is not NCCL's time. NULL: the call is not measured, and the
 * end does nothing. `func` lives for ever. `bytes`: what was moved. */
struct slr_timed *slr_timeline_other_begin(struct slr_comm *c, const char *func, uint64_t number, size_t count,
                                           ncclDataType_t type, CUstream stream);
void slr_timeline_nccl_end(struct slr_comm *c, struct slr_timed *timed, ncclResult_t r, size_t bytes);

/* ---- reduce-scatters and all-reduces ----
 *
 * Under the communicator's lock, the communicator's context current. */

/* A GEMM whose output the next reduce-scatter is expected to send is about to be put on `stream`. NULL: it is not
 * measured; else what its parts go into, valid until the next of these calls, but never read by the caller. */
struct slr_timing *slr_timeline_expect(struct slr_comm *c, CUstream stream);

/* ---- captured calls (record/record.h) ---- */

/* Under the lock of the capture's lane, its context current: the call is about to be recorded; the stream has what it
 * comes behind, and nothing of it. Sets ring.timing, which slr_timeline_close ends, and *nodes. `gemm`: of a
 * reduce-scatter, what measures the parts that it sends, taken over, or NULL. */
void slr_timeline_capture(struct slr_lane *lane, const struct slr_call *call, const struct slr_plan *plan,
                          struct slr_timing *gemm, struct slr_timed_nodes *nodes);

/* Of a reduce-scatter (scatter/scatter.h), whose GEMM comes first: in a capture on `stream`, as
 * slr_timeline_expect. What is returned is the caller's, until the call takes it over or it is dropped. */
struct slr_timing *slr_timeline_capture_expect(struct slr_comm *c, CUstream stream);
void slr_timeline_capture_drop(struct slr_timing *gemm); /* NULL: nothing */

/* A reduce-scatter has been recorded, with its stream joined, or that has failed. */
void slr_timeline_captured_scatter(struct slr_lane *lane, unsigned parts, bool fused);

/* As slr_recorded_copy(). What can not be copied is not measured. */
void slr_timed_nodes_copy(struct slr_timed_nodes *to, const struct slr_timed_nodes *from, CUgraph graph);

/* `to` becomes what `values` is, by the nodes of `own`: see slr_recorded_updated(). */
void slr_timed_nodes_update(struct slr_timed_nodes *to, const struct slr_timed_nodes *values,
                            const struct slr_timed_nodes *own);
void slr_timed_nodes_free(struct slr_timed_nodes *nodes);

/* Under the communicator's lock, its context current: the call is about to be replayed, by a launch of `exec`. Sets
 * nodes->now when it is to be measured. `stream`: of the launch. `route`: NULL of a reduce-scatter. */
void slr_timeline_replay(struct slr_comm *c, CUgraphExec exec, struct slr_timed_nodes *nodes, uint64_t number,
                         CUstream stream, const struct slr_route *route);

/* Likewise, for each replay that is measured: it has been launched, and ring.tail stands behind it; or it has not. */
void slr_timeline_replayed(struct slr_comm *c, CUgraphExec exec, struct slr_timed_nodes *nodes, bool launched);

/* For the house-keeping thread: writes what is complete. */
void slr_timeline_tick(struct slr_comm *c);

/* The communicator ends: what is complete is written, all is freed. */
void slr_timeline_dispose(struct slr_comm *c);

#endif
