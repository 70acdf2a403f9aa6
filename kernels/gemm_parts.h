/* Into which parts a GEMM that consumes a gather is cut, and what each waits for.
 *
 * The own shard's columns come first. After that the chunks in the order in which they arrive (kernels/ring.h: chunk q
 * of step 1, 2, .. nranks - 1, then chunk q + 1): whatever is expected to be there by the time the parts before are
 * done goes into the next group, at least one chunk, and each range of neighbouring columns of a group is one part. So
 * a gather that is quick against its GEMM costs two or three parts instead of one for each chunk, and a slow one is
 * still consumed chunk by chunk. The expectation only shapes the parts: each waits for the last chunk of its group,
 * whenever that comes.
 *
 * `pace` is the time that a column takes to arrive, in units of the time that its part of the GEMM takes; 0: every
 * chunk is a part of its own. Columns are stored columns of the gathered operand (kernels/gemm.h).
 */
#ifndef SLR_KERNELS_GEMM_PARTS_H
#define SLR_KERNELS_GEMM_PARTS_H

#include <stdbool.h>
#include "kernels/gemm.h"
#include "kernels/plan.h"

struct slr_part {
    int64_t col, cols;
    uint32_t chunk; /* to wait for, with the step that it arrives at; step 0: the own shard, nothing to wait for */
    int step;
};

/* A walk over the parts. */
struct slr_parts {
    struct slr_plan plan;
    struct slr_gemm_split split;
    int rank, nranks;
    double pace;
    bool own_given;
    int64_t begin, end; /* the present group: chunks by order of arrival */
    int step;           /* of the group, not given yet; nranks: the group is done */
    double now;         /* columns' time until the parts before the group are done */
    double arrived;     /* until the group's last chunk has arrived */
};

struct slr_parts slr_parts_of(const struct slr_plan *plan, const struct slr_gemm_split *split, int rank, int nranks,
                              double pace);

/* False: there are no more. No part is empty. */
bool slr_parts_next(struct slr_parts *p, struct slr_part *part);

/* Pace from the operand's element size, the GEMM's other outer size, and how many operations of a 16-bit GEMM the
 * device makes in the time in which it receives one byte. */
double slr_parts_pace(size_t elem, int64_t other, double flop_per_byte);

#endif
