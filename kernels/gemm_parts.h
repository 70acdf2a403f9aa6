/* SPDX-License-Identifier: Apache-2.0 */
/* Into which parts a GEMM that consumes a gather is cut, and what each waits for.
 *
 * The rule: the gathered operand is cut at the same columns on every rank. So all ranks make the
 * same parts, a part being (first column, columns); only their order differs, and not even that
 * where they are summands. Each element of C is then computed by the same cuBLAS calls on all ranks,
 * of the same shape and with addresses that are aligned alike, and replicas of a result stay equal
 * (docs/numerics.md says what that takes). The cut is computed from facts that are equal on all
 * ranks: the plan, the ranks, the GEMM's shape, SLIPRING_FLOP_PER_BYTE, and a wanted number of parts.
 *
 * With a wanted number (`split.parts`) the operand is cut into so many parts of equal size, whatever
 * lies where: a part may take the end of one shard and the beginning of the next. Fewer, larger parts
 * than shards fill the device better where a shard's part of C is not a whole number of waves of
 * tiles. Which number is best can only be measured. Borders are multiples of up to 256 columns; the
 * order on a rank is that in which the last bytes of the parts arrive.
 *
 * Without one, every shard is cut alike, the own shard too, and no part lies in two shards:
 *
 *   range i of a shard   its chunks [a, b) (kernels/plan.h), as columns: a column across two chunks
 *                        belongs to the later one, and a border within a shard is moved down to a
 *                        multiple of up to 256 columns, so that parts fill whole tiles and begin at
 *                        aligned addresses
 *   part                 one range of one shard
 *   order on a rank      the ranges of the own shard, which wait for nothing; then, range by range,
 *                        those of the shards that arrive at step 1, 2, .. nranks - 1
 *                        (kernels/ring.h), each behind the last chunk that it reads
 *
 * How many ranges: few, as each part costs something beyond its columns, but a part can not begin
 * before its data is there, and what arrives last is computed behind the gather. Of all ways to cut
 * a shard between its chunks (eight groups of them when there are more), that one is taken which is
 * expected to be done first, at the pace given and at half of it, added; of equal ones that with
 * the fewest parts. The pace given is a careful one: when all goes well, the data comes twice as
 * fast. The expectation only shapes the parts; each waits for its data, whenever that comes.
 *
 * Parts that are summands (gemm_sum.h) follow one another in the order of the ranks' shards on every
 * rank, because the order of a sum decides its bits. They are few, as each reads and writes all of
 * C: the shard of rank 0, which comes last to rank 1, is cut at the borders that are expected to be
 * best for rank 1, and all that lies behind the last border is one part, over several shards. No
 * cut at all may be best: then the GEMM is not worth it. `head` is the time that the gather has had
 * already, beside other GEMMs, in columns' time of this one.
 *
 *   shards    |        0        |    1    |    2    |    3    |
 *   parts     [  a  ][                   b                    ]
 *
 * With a wanted number they are equal parts as well, in the order of the columns.
 *
 * `split.quantum`: every part begins at a multiple of it. Where the shards do not, the operand is cut
 * into equal parts; and where that leaves one part, the GEMM is not worth it.
 *
 * `pace` is the time that a column takes to arrive, in units of the time that its part of the GEMM
 * takes; 0: every chunk is a range of its own, of summands as well. Columns are stored columns of the gathered operand
 * (kernels/gemm.h).
 */
#ifndef SLR_KERNELS_GEMM_PARTS_H
#define SLR_KERNELS_GEMM_PARTS_H

#include <stdbool.h>
#include "kernels/gemm.h"
#include "kernels/plan.h"

struct slr_part {
    int64_t col, cols;
};

/* A walk over the parts. */
struct slr_parts {
    struct slr_plan plan;
    struct slr_gemm_split split;
    int rank, nranks;
    /* The cut: groups of `chunks` chunks, and bit i: there is a border behind group i. */
    uint32_t chunks, groups;
    uint64_t borders; /* groups <= 64; with more, behind every one */
    int64_t grain;    /* borders within a shard are multiples of it */
    /* The walk: groups [begin, end) are the present range, of the shard that arrives at `step`; 0
     * is the own shard. */
    uint32_t begin, end;
    int step;
    /* The walk over equal parts: (arrival, index) of the latest one, and how many there were. */
    uint64_t latest;
    uint32_t taken;
    /* Of summands: the present range begins in the shard of rank `owner`; those of the first
     * `cut_shards` ranks are cut. */
    int owner, cut_shards;
};

struct slr_parts slr_parts_of(const struct slr_plan *plan, const struct slr_gemm_split *split, int rank, int nranks,
                              double pace);

/* Of a walk at its beginning: there is more than one part. */
bool slr_parts_several(struct slr_parts walk);

/* False: there are no more. No part is empty. */
bool slr_parts_next(struct slr_parts *walk, struct slr_part *part);

/* Whether the part reads of the shard that arrives at `step`; 0: the own one. Then *chunk is the last
 * of that shard's chunks that it reads. */
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
