/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the driver can do what gathers in CUDA graphs need (ring_record.h): that the functions
 * exist does not say so. A graph of one node with words and one copy is launched twice, its nodes
 * changed before each launch as a gather's are, the second time while the first may still wait;
 * then words and bytes are compared.
 *
 * Nothing is captured: while a stream captures, the driver refuses to synchronise its context, and
 * the program may do that now. `slipring doctor`, which has its context for itself, captures the
 * same graph and goes on with slr_graph_try_use.
 *
 * Nothing waits but this stream, and the host looks at it for SLR_GRAPH_TRY_MS at most. What then
 * still runs uses words and memory, so these have to stay until the stream is idle. The driver
 * keeps a graph that runs. Nothing is logged. */
#ifndef SLR_KERNELS_GRAPH_TRY_H
#define SLR_KERNELS_GRAPH_TRY_H

#include <stdatomic.h>
#include <stdint.h>
#include "base/real.h"

#define SLR_GRAPH_TRY_MS 1000
#define SLR_GRAPH_TRY_WORDS 8  /* of 64 bits, in host memory that is registered */
#define SLR_GRAPH_TRY_BYTES 64 /* of device memory */

struct slr_graph_try {
    CUcontext ctx;          /* is current */
    CUstream stream;        /* does not capture; the program has no work on it */
    _Atomic uint64_t *word; /* as the host and as the device see them; any values */
    CUdeviceptr dword, memory;
    /* What there is to be changed: by slr_graph_try_make, or by the caller. */
    CUgraph graph;
    CUgraphNode words, copy;
    /* Where it ended, when it failed: a function of the driver's, and CUDA's name of the error,
     * "missing", "timeout" or "differs". */
    const char *step, *why;
};

/* A function that gathers in graphs need and that the driver does not have, or NULL. */
const char *slr_graph_try_missing(void);

/* The operations that the node with words has at first, and the ends of the copy, of 8 bytes. */
void slr_graph_try_ops(const struct slr_graph_try *t, CUstreamBatchMemOpParams op[2]);
CUdeviceptr slr_graph_try_from(const struct slr_graph_try *t);
CUdeviceptr slr_graph_try_to(const struct slr_graph_try *t);

/* In this order; true: it did. Graphs are given back by the last one, whatever happened. */
bool slr_graph_try_make(struct slr_graph_try *t);
bool slr_graph_try_use(struct slr_graph_try *t);
void slr_graph_try_end(struct slr_graph_try *t);

#endif
