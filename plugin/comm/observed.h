/* SPDX-License-Identifier: Apache-2.0 */
/* A driver call of the program's that could notice or change what slipring has put on streams, as the
 * gate decodes it (interpose/gate.def) before the driver makes it: once, for all that listen. These are,
 * in this order, products (produce/product.h) and pending gathers (pending/pending.h). */
#ifndef SLR_PLUGIN_COMM_OBSERVED_H
#define SLR_PLUGIN_COMM_OBSERVED_H

#include <cuda.h>
#include <stdbool.h>
#include "base/reason.h"

enum slr_act {
    SLR_ACT_NONE,      /* nothing that anybody could notice */
    SLR_ACT_OPERATION, /* put on `stream`, ordered against it, or asked of it */
    SLR_ACT_RECORD,    /* `event` on `stream`, with `flags` */
    SLR_ACT_WAIT,      /* of `stream` for `event`, with `flags` */
    SLR_ACT_EVENT_END, /* `event` is destroyed, or another process can record it from now on */
    SLR_ACT_ALLOC,     /* in the stream's order */
    SLR_ACT_FREE,      /* likewise: what begins at `memory` */
    SLR_ACT_QUERY,     /* whether `stream` is ready */
    SLR_ACT_NEXT,      /* what the next operation on `stream` would come behind, if it captures */
    SLR_ACT_HOST       /* the host, or the whole device, observes; of a blocking copy, `end` */
};

struct slr_observed {
    enum slr_act act;
    CUstream stream; /* as slr_stream_name() calls it */
    CUevent event;
    unsigned flags;
    CUdeviceptr memory;
    CUdeviceptr end[2]; /* where device memory is copied to and from; 0: no such copy, or the host's memory */
    bool unseen;        /* events may be recorded by it that are not told here */
    enum slr_reason why;
    const char *who; /* for the log */
};

#endif
