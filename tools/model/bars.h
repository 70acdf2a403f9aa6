/* SPDX-License-Identifier: Apache-2.0 */
/* What is drawn for a rank, in lanes and rows: bars of one row do not overlap. For the timeline and
 * the trace. */
#ifndef SLR_TOOLS_BARS_H
#define SLR_TOOLS_BARS_H

#include "tools/model/model.h"

enum bar_lane { BAR_GATHER, BAR_APP, BAR_PUBLISH, BAR_PULL, BAR_COPY, BAR_NCCL, BAR_PROFILER, BAR_LANES };
extern const char *const bar_lane_names[BAR_LANES];

/* One of gather, span and other is set; they point into the model. */
struct bar {
    int64_t begin, end;
    const struct member *member;
    const struct gather *gather;
    const struct span *span;
    const struct collective *other;
    uint32_t row; /* within the lane */
    uint8_t lane;
};

struct bars {
    VEC(struct bar) list; /* by lane, then begin */
    uint32_t rows[BAR_LANES];
};

/* What of a rank lies in [from, to]. Bars that overlap by no more than `slack` ns may share a row,
 * and waits shorter than a quarter of that are left out. The caller frees with bars_free. */
void bars_find(struct bars *b, const struct model *m, uint32_t rank, int64_t from, int64_t to, int64_t slack);
void bars_free(struct bars *b);

/* "pull from 3": what a bar is, in words. Returns `buf`. */
const char *bar_name(const struct bar *b, char *buf, size_t size);

#endif
