/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef SLR_PLUGIN_PRODUCE_CAPTURED_H
#define SLR_PLUGIN_PRODUCE_CAPTURED_H

#include "plugin/produce/product.h"

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
