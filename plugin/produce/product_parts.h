/* SPDX-License-Identifier: Apache-2.0 */
/* What a product is (product.h), for who makes and who sends its parts. */
#ifndef SLR_PLUGIN_PRODUCE_PRODUCT_PARTS_H
#define SLR_PLUGIN_PRODUCE_PRODUCT_PARTS_H

#include "base/real.h"
#include "kernels/gemm.h"
#include "kernels/scatter.h"

struct slr_comm;

#define SLR_PRODUCT_PARTS 256
#define SLR_PRODUCT_CARRIERS 4
#define SLR_PRODUCT_GEMMS 4

struct slr_product {
    struct slr_comm *comm;
    uint64_t key; /* produce.h */
    CUcontext ctx;
    CUstream stream; /* as slr_stream_name() calls it */
    CUdeviceptr c;   /* or the copy of it */
    bool copied;
    size_t bytes, elem;
    uint64_t joins; /* before it: slr_pending_joins() */
    uint64_t turn;  /* likewise: slr_solo_turn() */
    bool blocking;  /* the stream, or what follows it: not non-blocking */
    unsigned parts;
    struct slr_scatter_part part[SLR_PRODUCT_PARTS];
    CUevent event[SLR_PRODUCT_PARTS]; /* NULL: not made yet */
    CUevent before;  /* what stood on the stream that follows, in a capture before the GEMM; likewise */
    CUstream copies; /* parts of it, to where the program copies it; NULL: not made yet */
    CUevent copy;    /* on the GEMM's stream, behind that; likewise */
    /* Measures the parts, for the timeline; NULL: nothing does. In a capture it is the product's. */
    struct slr_timing *timing;
    unsigned long long capture; /* in which it is expected; 0: it is not */
    CUgraphNode last;           /* and the node of its last part */
    /* Under the list's lock. */
    bool live;
    bool allocated; /* since the GEMM there has been memory that was not there before, in a stream's order */
    struct slr_ranges used[SLR_PRODUCT_GEMMS]; /* by the GEMM, and by those that have come behind it */
    unsigned gemms;
    CUstream follower;
    bool follows; /* there is one */
    CUevent carrier[SLR_PRODUCT_CARRIERS];
    unsigned carriers;
    struct slr_product *next;
};

#endif
