/* SPDX-License-Identifier: Apache-2.0 */
/* The folder produce/: GEMMs whose output a reduce-scatter or an all-reduce sends. The GEMM comes first, so it has to be
 * known from earlier iterations that the other will follow.
 *
 *   learn    A reduce-scatter of a size and type that the ring could have looks for the GEMM that wrote
 *            what it sends among the latest ones, and so its *pair* is known: the GEMM's sizes, types
 *            and operations, and the shard of a communicator.
 *            A whole copy of what a GEMM has written counts as written by it. Copies are seen by the gate, which
 *            products open. So does this while calls are learnt from, also in trials in which GEMMs stay whole: from
 *            the first call on, for good once something that was sent was such a copy, but not any more when that
 *            was so of none of the first ones.
 *   expect   A GEMM of a known pair is computed in blocks (kernels/gemm.h), the peers' shards
 *            first and the own one last, beginning with the next rank's, with an event behind each; for an
 *            all-reduce a block of every shard in turn, so that the sums of one travel while the next ones are
 *            computed. It is a product then (product.h).
 *   wrong    The reduce-scatter does not come, or is not the one: the product is dropped, and the GEMM
 *            has been computed in parts: that is all. A pair that is wrong more often than right is not
 *            expected any more, until it has been seen as often again.
 *
 * Only this rank's own GEMM follows from an expectation, never what it tells others or how it answers:
 * ranks need not expect alike (kernels/ring_scatter.c).
 *
 * GEMMs are looked at from the first such reduce-scatter of the process on (SLR_GEMM_WATCH_PRODUCTS),
 * but not any more when none of the first ones was of what a GEMM has computed. One that slipring keeps
 * whole (SLIPRING_FUSE=off, SLIPRING_STRICT, regions) or reads C is never a product. In a capture it is
 * one of another kind (product.h). */
#ifndef SLR_PLUGIN_PRODUCE_PRODUCE_H
#define SLR_PLUGIN_PRODUCE_PRODUCE_H

#include "plugin/produce/product.h"

struct slr_call;
struct slr_gemm;

/* Their settings: SLIPRING_REDUCE_SCATTER, SLIPRING_ALL_REDUCE. */
enum slr_scatters { SLR_SCATTERS_OFF, SLR_SCATTERS_AUTO, SLR_SCATTERS_ALWAYS };

/* For the GEMM hook, with no gather that it consumes, without locks: true: it has been computed, and
 * *result is what the application gets. `joins`: slr_pending_joins(). */
bool slr_produce_gemm(struct slr_gemm *gemm, CUstream stream, CUcontext ctx, uint64_t joins, cublasStatus_t *result);

/* For the gate, with the guard up, without locks: slr_product_copy() of an operation that copies; of others nothing.
 * True: it has been made, and *answer is what the application gets. */
bool slr_produce_copy(const struct slr_observed *o, uint64_t joins, CUresult *answer);

/* A reduce-scatter that the ring could have has come. Sets call->made when one of the latest GEMMs has
 * computed what it sends, as far as is known: it has written there, and its parts have not been in vain. */
void slr_produce_learn(struct slr_call *call);

/* Its parts are what is sent. */
void slr_produce_right(const struct slr_product *p);

/* Whether the result of the call, an all-reduce that sends it, may be written before the call's stream has come to the
 * call. It is written into what the GEMM, or the copy of that, has made. Or what stood before the call and could use that
 * memory is over when a part is: it stood before the GEMM, too, as no other thread has put anything behind that, and
 * neither the GEMM nor the copy uses it. `joins`: slr_pending_joins(), now. */
bool slr_produce_unused(const struct slr_product *p, const struct slr_call *call, uint64_t joins);

/* The communicator ends. */
void slr_produce_close(struct slr_comm *c, bool gone);

#endif
