/* SPDX-License-Identifier: Apache-2.0 */
/* Pending gathers: all-gathers whose data is still on its way and that not every application stream
 * behind them has been made to wait for.
 *
 * A gather becomes pending when the ring has enqueued it. It stops being pending when it has no
 * holders. The words:
 *
 *   holder     a stream whose later work has to see the gather, and that does not wait for it yet
 *   origin     the holder that the gather was called on
 *   follower   a holder that waits for an event of the origin; see below
 *   partner    a holder that a group has made one: the group had operations of the communicator on
 *              this stream as well as on the origin
 *   join       one cuStreamWaitEvent that makes a holder wait for everything that the gather does
 *   carrier    an event of the application that completes only with the gather
 *
 * A GEMM on a holder that reads the gathered buffer may take it over instead of a join, part by
 * part (kernels/gemm.h). Anything else that could notice (design rule R5) joins first, as interpose/'s
 * gate tells.
 *
 *   operation                                  joins the holders
 *   on a stream                                that are this stream
 *   on a stream that is not non-blocking       ... and the legacy default stream
 *   on a default stream                        ... and all that are not non-blocking
 *   of the host, or on the whole device        all of the current context
 *   a query of a stream                        none: it tells of the stream and of what that holds. It takes
 *                                              no lock that is held over calls of the driver: whoever holds
 *                                              one may wait there for what this thread does next
 *   a blocking copy between devices            ... and all of these devices
 *   next gather of the communicator            all, but of the same group on the same stream: its events are
 *                                              used again
 *
 * Events. Frameworks gather on a stream S of their own and tell another one, C, by an event:
 *
 *   cuEventRecord(E, S)       S is the origin of a pending gather. E must not complete before the
 *                             gather, for whoever looks: queries, other threads, contexts and
 *                             processes. So E is recorded for real, not on S but on a stream of the
 *                             ring that waits for S and for the gather (slr_ring_carry). S is not
 *                             joined. E is a carrier of the gather.
 *   cuStreamWaitEvent(C, E)   C is made to wait for what stood on S without the gather, and becomes
 *                             a follower. C sees what it would have seen: nothing more is put on it
 *                             before it is joined or a GEMM on it takes the gather over.
 *
 * Joins and GEMMs make a stream wait for the carriers as well: nothing on S or C that is behind E
 * may be seen to end before E. One record of that state of S serves all events of a gather: while S
 * is a holder, nothing is put on it but what overtakes the gather (see there).
 *
 *   event       no carrier --record on the origin of a pending gather--> carrier
 *               carrier --recorded again, destroyed, gather not pending any more--> no carrier
 *
 * A wait for an event that is no carrier goes to the driver. That is right for every event at any
 * time, because every record was a real one. So whatever is in doubt is no carrier:
 *
 *   - records on an origin that has been overtaken;
 *   - records and waits with flags;
 *   - events that another process may record, too;
 *   - all events, when one may have been recorded where slipring does not look (graph launches,
 *     launches with an event among their attributes, inside of vendors' calls);
 *   - waits by streams of other contexts, by capturing and by per-thread default streams;
 *   - more events or streams than there is room for.
 *
 * A record on a follower or a partner joins it: what stood on such a stream before is not ordered
 * into the ring, and must not hold up the ring's stream for carriers.
 *
 * Overtaking. Some operations show nothing of the order between them and a gather before them on
 * their stream, and touch none of its memory. They join nothing:
 *
 *   a wait for an event        shows nothing; but not while anything captures: the event may draw
 *                              the stream into the capture, where it could not be joined
 *   an allocation, a free      of other memory than the gather's
 *   a GEMM of a hooked call    that reads nothing the gather writes, and writes nothing that it
 *                              reads or writes. Whoever looks at the result asks for its stream, or
 *                              for an event behind it, and so for the gather
 *   an all-gather of NCCL's    of other memory than the gather's (nccl_call.h); not while anything
 *                              captures
 *
 * The stream of the holder alone is looked at: an operation that a holder could observe through the
 * legacy default stream joins, as others may see that through it. An event that is recorded behind
 * such an operation has to come after it, too. Allocations and frees wait for nothing, so until the
 * first event they are a part of what stood on S. So is an all-gather of NCCL's on the gather's own
 * communicator; and when one has come behind an event, the next event has the stream of carriers
 * wait for S once more: frameworks record an event behind every collective. Else S is *overtaken*:
 * no event carries the gather from there any more, a record joins S. (The stream of carriers must
 * not wait for what the operation waits for: that may be behind a later gather's events. An
 * operation of the communicator is not; the next gather waits for it, too.)
 *
 * Aside. A GEMM on a holder that reads all that is gathered at once may run on a stream of the ring's
 * (kernels/gemm.h). The holder is joined with that, too, and what overtakes the gather on it has to
 * be a GEMM of other memory than that one's. As if something had overtaken there, no event carries the gather
 * from this holder any more. Other holders are joined with the gather alone.
 *
 * Groups. The gathers of a communicator that a group has on one stream, up to SLR_TOGETHER, stay pending together: its
 * members, which end one after the other. Each has its own events in the ring (slr_arrival). A holder holds those
 * from `from` on, and is behind the others.
 *
 *   on a holder                                 waits for
 *   a GEMM that consumes a member               its parts; then it is behind that one, and holds the later ones
 *   ... and reads one before it, as of scales   ... and all of that before its first part
 *   ... and touches one behind it               all up to that one, and runs whole
 *   what overtakes some                         the last of the others
 *   what overtakes none                         all: the last one's end
 *
 * A gather on another stream of the group, or a sum of the ring's in between, joins what is before it.
 * NCCL synchronises the streams on which a group has operations of one communicator; so each of them waits for
 * what stands on the others without the members, and holds them. How the peers group does not matter: on each
 * rank the ring's calls are the same, and who holds a gather decides only when a stream of this rank waits for it.
 *
 * When there are or were followers and only the origin and partners still hold the gather, or only
 * partners, these are joined as well. The next gather of the communicator would do that anyway, and
 * as long as anything is pending every driver call takes the long way through the gate.
 *
 * Thread-safe. All of them are cheap and do nothing when nothing is pending; none waits for a peer.
 */
#ifndef SLR_PLUGIN_PENDING_PENDING_H
#define SLR_PLUGIN_PENDING_PENDING_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"

struct slr_comm;
struct slr_gather;
struct slr_lane;
struct slr_observed;

/* What the gate has decoded, with the guard up: joins the holders that the call could observe. True: done in
 * the driver's stead, *answer is what it returns; else the driver has to be called. */
bool slr_pending_observe(const struct slr_observed *o, CUresult *answer);

/* An operation is about to be put on the stream, or ordered against it, by slipring or by a library that it
 * stands before. CU_STREAM_LEGACY is 0 here, too. */
void slr_pending_join_stream(CUstream stream, enum slr_reason why, const char *who);

/* Whether any gather is held by the stream, a name that slr_stream_name() returned. */
bool slr_pending_held(CUstream stream);

/* How many holders have been made to wait in this process: unless that changes, no stream has come behind a gather that
 * was pending before. */
uint64_t slr_pending_joins(void);

/* Any event may be recorded by what comes now. Takes no lock: also from inside of slipring's own
 * calls. */
void slr_pending_events_unseen(void);

/* Before code can run that bypasses slipring (base/real.h): joins all that is pending, also in captures and
 * in other contexts, and records what is to be ordered later (order.h). Without locks; from inside of slipring's own
 * calls it does nothing, as the thread may hold them. */
void slr_pending_opening(void);

/* Under the lane's lock: the ring has enqueued it, and it is pending. What it points to is not kept. */
void slr_pending_enqueued(struct slr_lane *lane, const struct slr_gather *g);

/* Under the lane's lock: joins all holders (no-op when not pending). Its context need not be current. */
void slr_pending_join(struct slr_lane *lane, enum slr_reason why, const char *who);

/* Without locks, in a group end. The gather's group has the communicator's operations on `stream`,
 * too, so what is put there later has to see it: makes the stream a holder, a partner of the
 * origin, or joins the gather. Does nothing when it is not pending. */
void slr_pending_share(struct slr_lane *lane, CUstream stream);

/* ---- NCCL's kernels in front of what is enqueued behind them: front.c says why and how ---- */

/* The program has asked for one queue, and has got more. */
void slr_front_on(void);

/* Around a real call that may launch kernels of the communicator's; NULL: of none. Within another such call nothing. */
void slr_front_begin(ncclComm_t comm);
void slr_front_end(void);

/* cuLaunchKernelEx, or its other form, and what it is called with. */
typedef CUresult slr_launch_fn(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
struct slr_launch {
    const CUlaunchConfig *config;
    CUfunction function;
    void **params, **extra;
};

/* For the gate, with the guard up. True: it is launched, *answer is what the function returns. */
bool slr_front_launch(slr_launch_fn *launch, const struct slr_launch *l, CUresult *answer);

/* The program is about to put an operation on the stream, a name that slr_stream_name() returned. With the guard up,
 * without locks. One load when nothing is in front. */
void slr_front_operation(CUstream stream);

/* The communicator is not found any more, or only as an orphan: from here on it is not in front, so nobody holds it for
 * that. Who does already is waited for, as all its users are. */
void slr_front_leave(struct slr_comm *c);

/* The communicator ends, without users; its context is current unless that has gone. */
void slr_front_close(struct slr_comm *c, bool gone);

/* Behind what the stream waits for of the ring, where nothing of the program's follows: slr_ring_stand(), if it is of a green
 * context. Under the lane's lock. */
enum slr_status slr_pending_stand(struct slr_lane *lane, CUstream stream);

#endif
