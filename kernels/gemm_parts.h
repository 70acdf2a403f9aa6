/* SPDX-License-Identifier: Apache-2.0 */
/* Into which parts a GEMM that consumes a gather is cut and what each waits for. docs/protocol.md,
 * section 4, has the order and why; gemm_parts.c how the cut is chosen.
 *
 * The gathered operand is cut at the same columns on every rank, from facts that are equal on all:
 * so each element of C is computed by the same cuBLAS calls, and replicas of a result stay equal
 * (docs/numerics.md). Only the order of the parts differs, and not even that where they are
 * summands. Columns are stored columns of the gathered operand (gemm.h). `pace` is the time that a
 * column takes to arrive, in units of the time that its part of the GEMM takes; 0: every chunk is a
 * range of its own. */
#ifndef SLR_KERNELS_GEMM_PARTS_H
#define SLR_KERNELS_GEMM_PARTS_H

#include "kernels/gemm.h"
#include "kernels/ring.h"

struct slr_part {
    int64_t col, cols;
};

/* A walk over the parts. */
struct slr_parts {
    struct slr_plan plan;
    struct slr_gemm_split split;
    int rank, nranks;
    uint32_t chunks, groups; /* the cut: groups of `chunks` chunks, */
    uint64_t borders;        /* and bit i: there is a border behind group i <= 64; with more groups, behind every one */
    int64_t grain;           /* borders within a shard are multiples of it */
    uint32_t begin, end;     /* the walk: groups [begin, end) are the present range, */
    int step;                /* of the shard that arrives at `step`; 0: the own shard */
    uint64_t latest;         /* the walk over equal parts: (arrival, index) of the latest one, */
    uint32_t taken;          /* and how many there were */
    int owner, cut_shards;   /* of summands: in whose shard the present range begins; those of so many ranks are cut */
};

struct slr_parts slr_parts_of(const struct slr_plan *plan, const struct slr_gemm_split *split, int rank, int nranks,
                              double pace);

bool slr_parts_several(struct slr_parts walk); /* of a walk at its beginning: there is more than one part */

/* False: there are no more. No part is empty. */
bool slr_parts_next(struct slr_parts *walk, struct slr_part *part);

/* Whether the part reads of the shard that arrives at `step`; 0: the own one. Then *chunk is the
 * last of that shard's chunks that it reads. */
bool slr_part_reads(const struct slr_parts *walk, const struct slr_part *part, int step, uint32_t *chunk);

/* Pace from the operand's element size, the GEMM's other outer size, and how many operations of a
 * 16-bit GEMM the device makes in the time in which it receives one byte. */
double slr_parts_pace(size_t elem, int64_t other, double flop_per_byte);

/* How many operations of a 16-bit GEMM take as long as this one; 0 for types that are not known. */
double slr_parts_flop(const struct slr_gemm *gemm);

/* What a part costs beyond its columns, in columns: its launch, and the multiprocessors that idle
 * at its end. 0 where the GEMM's sizes are not known. */
double slr_parts_overhead(int64_t other, int64_t inner);

/* The same of a summand: its launch, and the time in which C of `elements` is read and written. */
double slr_parts_sum_overhead(size_t elem, double elements);

#endif
