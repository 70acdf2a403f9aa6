/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/comm.h"
#include "plugin/produce/product.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/real.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/produce/product_parts.h"
#include "plugin/timeline/timeline.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of each communicator's `captured` */

/* Where the next operation of the stream comes in its capture. */
struct place {
    cuuint64_t capture; /* 0: it captures nothing, or can not be asked */
    const CUgraphNode *behind;
    size_t nodes;
};

static struct place place_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    struct place at = {0};
    if (!slr_real.cuStreamGetCaptureInfo ||
        slr_real.cuStreamGetCaptureInfo(stream, &status, &at.capture, NULL, &at.behind, NULL, &at.nodes) !=
            CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return (struct place){0};
    return at;
}

bool slr_captured_elsewhere(CUstream stream)
{
    return slr_capture_is_given(place_of(stream).capture);
}

/* What is there, which is not any more; NULL: nothing. */
static struct slr_product *exchange(struct slr_comm *c, struct slr_product *p)
{
    pthread_mutex_lock(&lock);
    struct slr_product *before = c->captured;
    c->captured = p;
    pthread_mutex_unlock(&lock);
    return before;
}

/* Nothing expects it any more. */
static void reset(struct slr_product *p)
{
    p->capture = 0;
    slr_timeline_capture_drop(p->timing);
    p->timing = NULL;
}

struct slr_product *slr_captured_of(struct slr_comm *c)
{
    struct slr_product *p = exchange(c, NULL);
    if (!p && (p = calloc(1, sizeof *p)) != NULL)
        p->comm = c;
    if (p)
        reset(p);
    return p;
}

bool slr_captured_begin(struct slr_product *p)
{
    if (!p->before && SLR_CU(cuEventCreate, &p->before, CU_EVENT_DISABLE_TIMING) != SLR_OK)
        return false;
    return SLR_CU(cuEventRecord, p->before, p->stream) == SLR_OK;
}

void slr_captured_end(struct slr_product *p)
{
    const struct place at = place_of(p->stream);
    if (at.nodes != 1) /* then it is in parts for nothing */
        return;
    p->last = at.behind[0];
    p->capture = at.capture;
}

/* Nothing in the graph stands behind it. */
static bool is_last(CUgraphNode node)
{
    size_t n = 1;
    return slr_real.cuGraphNodeGetDependentNodes &&
           slr_real.cuGraphNodeGetDependentNodes(node, NULL, NULL, &n) == CUDA_SUCCESS && n == 0;
}

static bool comes_next(struct slr_product *p, CUstream stream)
{
    const struct place at = place_of(stream);
    bool behind = false;
    for (size_t i = 0; i < at.nodes; i++)
        behind = behind || at.behind[i] == p->last;
    return behind && at.capture == p->capture && (at.nodes == 1 || is_last(p->last));
}

static void destroy(CUevent *event)
{
    if (*event)
        slr_real.cuEventDestroy(*event);
    *event = NULL;
}

static void free_product(struct slr_product *p, bool gone)
{
    reset(p);
    for (unsigned i = 0; i < SLR_PRODUCT_PARTS && !gone; i++)
        destroy(&p->event[i]);
    if (!gone)
        destroy(&p->before);
    free(p);
}

void slr_captured_give_back(struct slr_comm *c, struct slr_product *p)
{
    struct slr_product *other = exchange(c, p); /* of another thread's GEMM */
    if (other)
        free_product(other, false);
}

struct slr_product *slr_captured_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream)
{
    struct slr_product *p = exchange(c, NULL);
    if (p && !slr_reach_doubtful() && p->capture && p->c == send && p->bytes == bytes && comes_next(p, stream)) {
        p->capture = 0; /* once */
        return p;
    }
    if (p)
        slr_captured_give_back(c, p);
    return NULL;
}

void slr_captured_close(struct slr_comm *c, bool gone)
{
    struct slr_product *p = exchange(c, NULL);
    if (p)
        free_product(p, gone);
}
