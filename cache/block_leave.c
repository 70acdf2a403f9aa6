/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that were freed in the order of a stream, until the stream has come there. They are BUSY, but in the table: who
 * looks at one there copies it, so it is written to under the lock. */
#include <stdatomic.h>
#include "base/real.h"
#include "base/status.h"
#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/captures.h"

/* As a thread that gives blocks back may take (block_trim.c). What the streams wait for may depend on the
 * waiting thread. */
#define LEAVE_WAIT_MS 2000

/* A host function on the stream would need no list, but it waits for the program's host functions,
 * and they may wait for the stream. */
static struct slr_block *_Atomic leaving; /* written under the lock */
static uint64_t ends, frees;              /* of streams, and in their order; under the lock */

static void list(struct slr_block *b)
{
    b->next = atomic_load(&leaving);
    atomic_store(&leaving, b);
}

static struct slr_block *take_leaving(uint64_t *ended)
{
    if (!atomic_load(&leaving))
        return NULL;
    slr_block_lock();
    struct slr_block *chain = atomic_exchange(&leaving, NULL);
    *ended = ends;
    slr_block_unlock();
    return chain;
}

/* While it was off the list, from when `ends` was `ended`, nobody told it that its stream ends. */
static void list_again(struct slr_block *b, uint64_t ended)
{
    slr_block_lock();
    if (ended != ends)
        b->freed_on = CU_STREAM_PER_THREAD;
    list(b);
    slr_block_unlock();
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

static void keep_one(struct slr_block *b)
{
    slr_block_lock();
    b->next = NULL;
    b->freed = NULL;
    if (b->gone)
        slr_block_drop(b);
    else
        slr_block_to_free(b);
    slr_block_unlock();
}

/* What is not worth keeping goes as what is idle does. */
void slr_block_keep_left(void)
{
    uint64_t ended = 0;
    struct slr_block *chain = take_leaving(&ended);
    while (chain) {
        struct slr_block *b = chain;
        chain = b->next;
        if (has_left(b))
            keep_one(b);
        else
            list_again(b, ended);
    }
}

/* A default stream is another one in each context, and a thread's in each thread. */
static CUstream stream_freed_on(const struct slr_block *b, CUstream stream)
{
    CUcontext ctx = NULL;
    const bool own = slr_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx == b->ctx;
    return !own ? CU_STREAM_PER_THREAD : stream == CU_STREAM_LEGACY ? NULL : stream;
}

CUresult slr_block_leave(struct slr_block *b, CUstream stream)
{
    CUevent freed = NULL;
    const CUstream on = stream_freed_on(b, stream);
    CUresult r =
        slr_real.cuEventQuery ? slr_real.cuEventCreate(&freed, CU_EVENT_DISABLE_TIMING) : CUDA_ERROR_NOT_SUPPORTED;
    if (r != CUDA_SUCCESS)
        return r;
    r = slr_real.cuEventRecord(freed, stream);
    if (r != CUDA_SUCCESS) {
        slr_real.cuEventDestroy(freed);
        return r;
    }
    slr_block_lock();
    b->freed = freed;
    b->freed_on = on;
    b->freed_nr = ++frees;
    list(b);
    slr_block_unlock();
    return r;
}

/* ---- taken, and waited for ---- */

static bool fits(const struct slr_block *b, int device, size_t bytes)
{
    return b->device == device && !b->gone && b->size >= bytes && slr_class_index(b->size) == slr_class_index(bytes);
}

unsigned slr_block_leaving(int device, size_t bytes)
{
    unsigned n = 0;
    for (const struct slr_block *b = atomic_load(&leaving); b; b = b->next)
        n += fits(b, device, bytes);
    return n;
}

/* Of a chain: what was freed last on the stream. */
static struct slr_block *latest(struct slr_block *b, int device, size_t bytes, CUstream stream)
{
    struct slr_block *latest = NULL;
    for (; b; b = b->next)
        if (b->freed_nr > (latest ? latest->freed_nr : 0) && b->freed_on == stream && fits(b, device, bytes))
            latest = b;
    return latest;
}

static void unlist(struct slr_block *b)
{
    struct slr_block *before = atomic_load(&leaving);
    if (before == b)
        atomic_store(&leaving, b->next);
    while (before != b && before->next != b)
        before = before->next;
    if (before != b)
        before->next = b->next;
    b->next = NULL;
}

struct slr_block *slr_block_take_freed_on(int device, size_t bytes, CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD)
        return NULL;
    struct slr_block *kept = latest(slr_block_devices[device].free.head[slr_class_index(bytes)], device, bytes, stream);
    struct slr_block *leaves = latest(atomic_load(&leaving), device, bytes, stream);
    if (leaves && !(kept && kept->freed_nr > leaves->freed_nr)) {
        unlist(leaves);
        return leaves;
    }
    if (kept)
        slr_block_to_busy(kept);
    return kept;
}

void slr_block_taken(struct slr_block *b)
{
    slr_block_lock();
    const CUevent freed = b->gone ? NULL : b->freed;
    b->freed = NULL;
    slr_block_unlock();
    if (freed)
        slr_real.cuEventDestroy(freed);
}

void slr_block_stream_ends(CUstream stream)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    ends++;
    for (struct slr_block *b = atomic_load(&leaving); b; b = b->next)
        if (b->freed_on == stream)
            b->freed_on = CU_STREAM_PER_THREAD;
    slr_block_unlock();
}

static bool any_leaves(int device)
{
    slr_block_lock();
    const struct slr_block *b = atomic_load(&leaving);
    while (b && device >= 0 && b->device != device)
        b = b->next;
    slr_block_unlock();
    return b != NULL;
}

bool slr_block_await_left(int device)
{
    const uint64_t end = slr_now_ms() + LEAVE_WAIT_MS;
    if (!any_leaves(device))
        return false;
    do {
        slr_sleep_ms(1);
        slr_block_keep_left();
    } while (any_leaves(device) && slr_now_ms() < end);
    return true;
}
