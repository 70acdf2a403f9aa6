/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/block_leave.h"

#include <stdatomic.h>
#include "base/cu.h"
#include "cache/block_state.h"

/* A host function on the stream would need no list, but it waits for the program's host functions,
 * and they may wait for the stream. */
static struct slr_block *_Atomic leaving; /* written under the lock */

static void add(struct slr_block *b)
{
    slr_block_lock();
    b->next = atomic_load(&leaving);
    atomic_store(&leaving, b);
    slr_block_unlock();
}

static struct slr_block *take_all(void)
{
    if (!atomic_load(&leaving))
        return NULL;
    slr_block_lock();
    struct slr_block *chain = atomic_exchange(&leaving, NULL);
    slr_block_unlock();
    return chain;
}

static bool is_gone(const struct slr_block *b)
{
    slr_block_lock();
    bool gone = b->gone;
    slr_block_unlock();
    return gone;
}

/* Whether the stream has come to the free. What is gone went with its context, and so did the
 * event. */
static bool has_left(const struct slr_block *b)
{
    CUcontext old;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (is_gone(b) || slr_real.cuCtxPushCurrent(b->ctx) != CUDA_SUCCESS)
        return true;
    slr_swap_capture_mode(&mode);
    CUresult r = slr_real.cuEventQuery(b->freed);
    if (r != CUDA_ERROR_NOT_READY)
        slr_real.cuEventDestroy(b->freed);
    slr_swap_capture_mode(&mode);
    slr_real.cuCtxPopCurrent(&old);
    return r != CUDA_ERROR_NOT_READY;
}

static void keep(struct slr_block *b)
{
    slr_block_lock();
    if (b->gone)
        slr_block_drop(b);
    else
        slr_block_to_free(b);
    slr_block_unlock();
}

void slr_block_keep_left(void)
{
    struct slr_block *chain = take_all();
    while (chain) {
        struct slr_block *b = chain;
        chain = b->next;
        b->next = NULL;
        (has_left(b) ? keep : add)(b);
    }
}

CUresult slr_block_leave(struct slr_block *b, CUstream stream)
{
    CUresult r =
        slr_real.cuEventQuery ? slr_real.cuEventCreate(&b->freed, CU_EVENT_DISABLE_TIMING) : CUDA_ERROR_NOT_SUPPORTED;
    if (r != CUDA_SUCCESS)
        return r;
    r = slr_real.cuEventRecord(b->freed, stream);
    if (r == CUDA_SUCCESS)
        add(b);
    else
        slr_real.cuEventDestroy(b->freed);
    return r;
}
