/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that follow from the options and the number of ranks. Elements unless a name says bytes. */
#ifndef AG_SHAPE_H
#define AG_SHAPE_H

#include "ag_options.h"

#include <stddef.h>

struct ag_shape {
    int ranks, gemm; /* gemm: 0 for gather only */
    int sums;        /* the GEMM sums over the gathered dimension */
    size_t element_bytes;
    int c_dtype; /* of C */
    size_t c_bytes;
    size_t shard;         /* elements that one rank sends */
    size_t gathered;      /* shard * ranks */
    long m, n, k;         /* C(m x n), inner size k */
    long rows, ld;        /* of the gathered matrix, as it is stored; its leading dimension, rows + padding */
    long outer, per_rank; /* columns of the gathered matrix that the GEMM uses; columns that one rank owns */
    long lines;           /* C's size along the gathered matrix: `outer`, or `rows` where it sums over the columns */
    long free_size;       /* columns of the weight as it is stored (k x free_size) */
};

static inline struct ag_shape ag_shape_of(const struct ag_options *o, int ranks)
{
    static const size_t element_bytes[] = {[AG_BF16] = 2, [AG_FP16] = 2, [AG_FP32] = 4, [AG_FP64] = 8, [AG_INT8] = 1};
    struct ag_shape s = {.ranks = ranks, .gemm = !ag_gather_only(o), .m = o->m, .n = o->n, .k = o->k};
    s.element_bytes = element_bytes[o->dtype];
    s.sums = o->form == AG_AN;
    s.c_dtype = s.sums && o->dtype != AG_FP64 ? AG_FP32 : o->dtype;
    s.c_bytes = element_bytes[s.c_dtype];
    s.rows = s.sums ? o->m : o->k;
    s.ld = s.rows + o->ld_pad;
    s.lines = o->form == AG_BN ? o->n : o->m;
    s.outer = s.sums ? o->k : s.lines;
    s.free_size = o->form == AG_BN ? o->m : o->n;
    s.per_rank = (s.outer + ranks - 1) / ranks;
    s.shard = o->bytes ? (size_t)o->bytes / s.element_bytes : (size_t)s.ld * (size_t)s.per_rank;
    s.gathered = s.shard * (size_t)ranks;
    return s;
}

#endif
