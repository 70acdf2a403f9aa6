/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers that are captured into a CUDA graph, and their replays. Of reduce-scatters plugin/scatter/scatter.h
 * says what is otherwise.
 *
 * Capture. ncclAllGather on a capturing stream becomes the ring's work in the graph that is
 * captured. The *lane of the capture* does that: one (comm/lane.h) that the communicator has for it, with
 * streams and events of its own, which capture; so a gather is pending in the graph, is joined by
 * whatever looks, carried by events and consumed by GEMMs by the same code as outside of graphs
 * (pending.h, fuse.h). The end of the capture joins all of it. What the gather's nodes are to be
 * given in each replay is remembered with the graph (kernels/ring_record.h, recorded.h).
 *
 * Replay. A launch of an executable graph makes the calls that it holds, in the order in which they
 * were captured: each is numbered, agreed with the peers (transfer.h) and watched as if the program
 * had made it now. Then the graph is launched behind the communicator's operations before it, and
 * what comes later stands behind all of the graph (order.h). So
 *
 *   - replays of one graph, of several, and calls outside of graphs may come in any turn, as long as
 *     all ranks make the calls of a communicator in one order, as NCCL asks for;
 *   - it does not matter whether the peers make a call from a graph, too;
 *   - dead, failed and aborting peers end a replay as they end any call, and a launch on a
 *     communicator in error or at its end fails and moves nothing.
 *
 * Who writes what: the hosts of the ranks what transfer.h says, at the launch; the devices the words
 * of kernels/ring.h, with the numbers that the launch has given to the nodes. Nothing is reset
 * between replays, as numbers only grow.
 *
 * Why it can not deadlock: in the graph of each rank a gather's nodes have the edges that the
 * streams of kernels/ring.h would have, each gather stands behind the one before it, and a launch
 * behind the communicator's calls before it. So the order of all operations of kernels/ring.h holds,
 * with a launch as a run of calls.
 *
 * In a group a call is connected, and recorded at the group's end: what the program puts on the stream until then
 * comes before it, and the gathers of a group have no order among themselves.
 *
 * When a gather is not recorded but left to NCCL (SLR_R_CAPTURE), as of old:
 *
 *   SLIPRING_GRAPHS, SLIPRING_ZERO_COPY or SLIPRING_ALLOC is off on a rank, or a rank's driver can not
 *     change nodes of executable graphs: all ranks have posted that (plugin/connect/connect.h)
 *   fewer bytes than 8 times SLIPRING_MIN_BYTES, or a size that was measured to be NCCL's on the rank that was
 *     the first to capture a gather of it, which decides for all captures (trials/ways.h)
 *   cudaStreamBeginCaptureToGraph: the graph may be the body of a conditional node: the device decides how
 *     often it runs, so that its calls have no numbers
 *   more than SLR_RECORD_MOST calls of a communicator in one graph: a rank that is one launch ahead
 *     would be staged, as there are no descriptors for so many
 *   the legacy and the per-thread default stream
 *   the ranks could not connect (connect.h), which is one word for all
 *
 * These are equal on ranks that do the same. Nothing else may decide: ranks capture at different
 * times and do not wait for each other, so what one rank has not got, such as memory that can be
 * mapped, it makes up for by itself (it is staged), or its capture fails. If ranks differ all the same,
 * the communicator fails as passed_alone.h says.
 *
 * Buffers of recorded gathers are registered with the communicator as long as a graph holds them, which
 * keeps them mapped. Neither a capture nor a launch waits for a peer: a replay is staged, like any call,
 * where a buffer is not mapped, where it is not known whose turn it is (transfer.h), and when a rank is
 * SLR_TRANSFERS calls ahead. How far it gets is for the stream's queue to say. */
#ifndef SLR_PLUGIN_RECORD_RECORD_H
#define SLR_PLUGIN_RECORD_RECORD_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"
#include "plugin/comm/shared.h"

struct slr_call;
struct slr_comm;

#define SLR_RECORD_MOST (SLR_TRANSFERS / 2)

/* The call has been decided to be captured. SLR_R_GRAPH: it is recorded, *r is the answer. Else it
 * is left to NCCL. */
enum slr_reason slr_record_call(struct slr_call *call, ncclResult_t *r);

/* How a collective's calls are recorded and replayed (struct slr_flow's `capture`). */
struct slr_recorded_gather;
struct slr_stand_ins;
struct slr_lane;
struct slr_capture {
    /* Whether calls of its size are the ring's, when they are captured. NULL: as trials/trials.h says. */
    bool (*chosen)(struct slr_call *call);
    /* When the ranks are connected: SLR_R_RING, or why NCCL has it. Uniform. NULL: nothing more is asked. */
    enum slr_reason (*can)(const struct slr_call *call);
    /* Fills what depends on the memory; without locks. */
    enum slr_status (*prepare)(struct slr_comm *c, struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins);
    /* Marks where it may start; puts it into the capture, on the ring of its lane; and what comes behind it on its
     * stream, or NULL. Under the lane's lock, its context current. `first`: of the capture. Of a group each is
     * done for all calls before the next. */
    enum slr_status (*enter)(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                             bool first);
    enum slr_status (*put)(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                           bool first);
    enum slr_status (*leave)(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g);
    /* A launch makes the call: numbers it, agrees with the peers, and gives the graph's nodes what they need. Under the
     * communicator's lock. */
    enum slr_status (*replay)(struct slr_comm *c, struct slr_recorded_gather *g, CUgraphExec exec, CUstream stream);
};
extern const struct slr_capture slr_capture_gather;

/* The captured gathers that a group has kept, around the real end of it, as calls/group.c does with those that run now
 * (record_group.c). `all`: NULL when there is none. The second ends *all, in any case; `enqueued`: the real end has
 * enqueued NCCL's operations. */
struct slr_group;
struct slr_recordings;
struct slr_recordings *slr_record_group_enter(const struct slr_group *group);
ncclResult_t slr_record_group_end(struct slr_recordings *all, const struct slr_group *group, bool enqueued);

/* The capture of `stream` is about to end, and has ended (0: one that was broken). */
void slr_record_end(CUstream stream);
void slr_record_ended(unsigned long long capture);

/* The communicator ends. */
void slr_record_close(struct slr_comm *c);

/* ---- replay.c: launches of graphs that hold recorded calls ---- */

struct slr_replay;

/* Around the driver's launch. `stream`: CU_STREAM_PER_THREAD for the thread's. False: the launch is
 * refused, *r is the answer. *replay: NULL when the graph holds none; else the locks of its
 * communicators are held until the end. `r`: what the launch has answered. */
bool slr_replay_begin(CUgraphExec exec, CUstream stream, struct slr_replay **replay, CUresult *r);
void slr_replay_end(struct slr_replay *replay, CUresult r);

/* A launch of a graph that holds operations of NCCL's (graphs.h) is one itself: it comes behind the communicators'
 * gathers of the ring before it, and those that come later behind all of it (order.h). The gathers in it are passed
 * alone (passed_alone.h). */

/* Before and behind the driver's launch, which captures nothing and has succeeded. `stream`: CU_STREAM_PER_THREAD for
 * the thread's. No communicator's lock is held. */
void slr_graph_enters(CUgraphExec exec, CUstream stream);
void slr_graph_runs(CUgraphExec exec, CUstream stream);

#endif
