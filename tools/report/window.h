/* SPDX-License-Identifier: Apache-2.0 */
/* Which few gathers a picture shows: consecutive calls out of the steady state, of usual length. */
#ifndef SLR_TOOLS_WINDOW_H
#define SLR_TOOLS_WINDOW_H

#include "tools/report/report.h"

struct window {
    uint32_t comm;
    bool pass;
    uint64_t first, last; /* calls */
    int64_t begin, end;   /* of all their spans, on all ranks */
    size_t windows, like; /* that could be chosen; of those, with the same way of ending */
};

/* False: there is no traced gather. */
bool window_find(struct window *w, const struct report *r);

#endif
