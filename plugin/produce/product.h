/* SPDX-License-Identifier: Apache-2.0 */
/* Products: outputs of GEMMs that a reduce-scatter is expected to send, computed in parts with an event
 * behind each (produce.h). The reduce-scatter may send the parts as they complete, before its stream has come
 * to the call, only if nothing can change the output between the GEMM and the call. Everything else it does
 * stands behind the call's entry (kernels/ring_scatter.c).
 *
 * A product is *live* from when its parts are enqueued to the first of these:
 *
 *   taken     by the reduce-scatter of its communicator that sends it, on the GEMM's stream, or on the
 *             one that follows it
 *   dropped   anything else is put on a stream of the device by this process, or may have been; or the call
 *             may have to come behind something else: its stream waits for another event. What could change
 *             the output has to be put on a stream first, or stands there already and is waited for; where it
 *             is and what it does is not looked at.
 *
 * But these do not drop it:
 *
 *   an event is recorded    the first few on its stream are remembered
 *   a stream waits for one  of those: that stream follows the product, the first one. `before` is
 *                           recorded on it first: behind that the stream waits for the product only, and
 *                           parts are sent behind that
 *   memory is allocated     or given back in a stream's order: nothing is written. What is allocated may be there from
 *                           then on only, behind what another stream did with it: that is noted
 *   a GEMM is enqueued      that cuBLAS is called for, on its stream, and that uses nothing of the output, as the
 *                           one for the weights' gradient that frameworks put behind the one for the input's. What
 *                           it does use is noted, and counts as the first one's. A few of them
 *   it is copied            whole, once, by one asynchronous copy on its stream: the copy is the product then, and all
 *                           that is said here of the output is so of the copy
 *
 * Frameworks reduce a clone. The copy is made in the product's parts on a stream of slipring's, each behind the part,
 * with the part's event recorded anew behind it, and the product's stream waits for the last. So parts are sent out of
 * the copy, as they complete. Not out of the GEMM's own output: that the program may write to as soon as the copy
 * is over, as on the GEMM's stream while the call, on another one, still sends.
 *
 * Parts of the copy are written before the stream has come to it, so the copy is whole, and drops the product, where
 * that could be noticed. What stood on the stream before the GEMM is over when a part is. Nothing has come between
 * GEMM and copy but other GEMMs, or else the product were not live. None of these may use anything there, and no
 * memory may have been allocated since. And a gather that the GEMM has overtaken could use it, for which the stream
 * is made to wait now: `joins` tells that. Memory of other devices, with which a default stream has an order of its
 * own, and of the host, for which the driver may wait, is left alone.
 *
 * The legacy default stream makes streams wait, too: all that are not non-blocking come behind what it
 * waits for, and it comes behind what they wait for. So waits and records there are waits of such streams,
 * and waits of such streams are its own.
 *
 * What is done meanwhile in other contexts, or by other processes, could change the output, too: the call comes
 * behind that by such a wait, or the host has seen it, and nothing is read before the call is made.
 *
 * What other threads do while the parts are enqueued has no order with the GEMM: if it changes the output, what is
 * sent is uncertain without slipring, too. But it may use what is written early, a copy or a result elsewhere than in
 * the output: that is done where no other thread is on its way to the stream (solo.c).
 *
 * Events that other processes may record are not remembered. Events that may have been recorded unseen (graphs,
 * launches with events among their attributes) are recorded by operations, which drop it anyway.
 *
 * Threads: gates are passed by any thread. The list and each product's `live`, follower and events are
 * changed under a lock of this file's, innermost, never held over a call of the driver; what else is in
 * a product is its communicator's, under that lock (docs/locks.md). */
#ifndef SLR_PLUGIN_PRODUCE_PRODUCT_H
#define SLR_PLUGIN_PRODUCE_PRODUCT_H

#include <stdbool.h>
#include "base/real.h"

struct slr_call;
struct slr_comm;
struct slr_gemm;
struct slr_observed;
struct slr_product;

/* Under the communicator's lock: its product, to be filled in, which is not live any more; NULL: no
 * memory. */
struct slr_product *slr_product_of(struct slr_comm *c);

/* Likewise; `p` has been filled in, and its parts have been enqueued: an operation, which drops what else is live in
 * its context. */
void slr_product_made(struct slr_product *p);

/* Under the communicator's lock: the product of a reduce-scatter of `bytes` from `send` on `stream`;
 * NULL: none that is live. It is not live any more, and stays as it is until the lock is given up.
 * *before: what the parts are sent behind; NULL: nothing else. */
struct slr_product *slr_product_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream,
                                     CUevent *before);

/* Something is live. One load: for who has to find out more before it calls what follows. */
bool slr_product_any(void);

/* An operation that is none of the exceptions, in that context. Cheap when nothing is live. Without
 * locks, as all that follow. */
void slr_product_operation(CUcontext ctx);

/* A GEMM that leaves no product has been put on the stream, in the context: the exception, or not. */
void slr_product_gemm(struct slr_gemm *gemm, CUstream stream, CUcontext ctx);

/* An operation on a stream, or on all. */
void slr_product_on_stream(CUstream stream);
void slr_product_on_all(void);

/* What the gate has decoded, with the guard up. */
void slr_product_observe(const struct slr_observed *o);

/* Behind that, of an operation that copies, when the stream has been made to wait for what is pending there. `joins`:
 * slr_pending_joins(), then. True: it has been made in parts. Else it drops products as any other. */
bool slr_product_copy(const struct slr_observed *o, uint64_t joins);

/* Of one that has been taken. Whether the GEMM, or another one since, uses anything there. And whether it, or the copy,
 * is still being made: then nobody has been told that it is there. */
bool slr_product_uses(const struct slr_product *p, CUdeviceptr at, size_t bytes);
bool slr_product_runs(const struct slr_product *p);

/* Before a GEMM is put on the stream, a name of slr_stream_name()'s: a number that is the same as long as no other thread
 * works there; 0: one may be about to. From the first such question on it is watched who does (solo.c). While it is still
 * the same, something may be written early there, also elsewhere than into what the GEMM makes. And: the calling thread
 * is about to put something on the stream. */
uint64_t slr_solo_turn(CUstream stream);
bool slr_solo_still(CUstream stream, uint64_t turn);
void slr_solo_note(CUstream stream);

/* The communicator is not found any more, or only as an orphan: from here on it has no live product, so nobody holds
 * it for one. Who does already is waited for, as all its users are. */
void slr_product_end(struct slr_comm *c);

/* The communicator ends, without users; its context is current unless that has gone. */
void slr_product_close(struct slr_comm *c, bool gone);

/* Products in captures: a GEMM that was computed in blocks on a capturing stream, and whose output a
 * reduce-scatter of the same capture is expected to send (product.h).
 *
 * Outside of captures only what a stream is given can be seen, so that anything in between drops a product.
 * A capture says more: before what a node stands. The blocks may be sent as they complete when
 *
 *   the call's stream stands behind the GEMM's last node, and
 *   nothing but this call does: that is the only node it stands behind, or else no node stands behind that
 *   one. So what else comes before the call comes before the GEMM, or has no order with it, and then could
 *   not touch C either.
 *
 * A node can only be put between the two by what the capture shows, so nothing is followed, and no other
 * thread or stream matters. What can not be asked (edges with data, several nodes behind the GEMM) makes no
 * product.
 *
 * A communicator has one at most, the latest GEMM's. Whoever fills it in or uses it has it alone meanwhile, and
 * then gives it back: a lock of captured.c's is held for these moments only (docs/locks.md). */

/* The stream captures into a graph of the program's: no reduce-scatter is recorded there (plugin/record/record.h), and the
 * body of a conditional node does not take all that a product needs. */
bool slr_captured_elsewhere(CUstream stream);

/* To be filled in, and given back; NULL: no memory. */
struct slr_product *slr_captured_of(struct slr_comm *c);

/* It has been filled in: before its first block is put on the stream, and behind the last. False: it can not
 * be one. */
bool slr_captured_begin(struct slr_product *p);
void slr_captured_end(struct slr_product *p);

/* The product of a reduce-scatter of `bytes` from `send`, when `stream` has been made to wait for all that the
 * call comes behind; to be given back. NULL: there is none. */
struct slr_product *slr_captured_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream);
void slr_captured_give_back(struct slr_comm *c, struct slr_product *p);

/* The communicator ends. */
void slr_captured_close(struct slr_comm *c, bool gone);

#endif
