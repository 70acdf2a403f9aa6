/* The wait of a free that the driver does not see. The rule is in blocks.h. */
#include <time.h>
#include "base/cu.h"
#include "cache/block_state.h"

/* What is allocated and freed so that the driver waits: less when memory is short. */
#define SCRATCH_MOST ((size_t)1 << 20)
#define SCRATCH_LEAST ((size_t)2 << 10)

/* The driver looks for captures when a synchronisation begins. So a capture waits until those that found none have
 * begun: until they have ended, but not for ever, as what they wait for may depend on the thread that captures. */
#define BEGIN_WAIT_MS 500

static _Atomic int captures; /* of the application, also those that are about to begin */
static _Atomic int syncs;    /* threads that synchronise a context, or are about to */

void slr_block_captures(int change)
{
    atomic_fetch_add(&captures, change);
    for (int ms = 0; change > 0 && ms < BEGIN_WAIT_MS && atomic_load(&syncs) > 0; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

bool slr_block_capturing(void)
{
    return atomic_load(&captures) > 0;
}

/* False: not done, because something captures. */
static bool synchronise(CUresult *r)
{
    atomic_fetch_add(&syncs, 1);
    bool allowed =
        !slr_block_capturing(); /* asked after the line above, as a capture asks after it has announced itself */
    if (allowed)
        *r = slr_real.cuCtxSynchronize();
    atomic_fetch_sub(&syncs, 1);
    return allowed;
}

static CUresult scratch(CUdeviceptr *p, int device)
{
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t bytes = SCRATCH_MOST; r == CUDA_ERROR_OUT_OF_MEMORY && bytes >= SCRATCH_LEAST; bytes /= 8)
        r = slr_real.cuMemAlloc(p, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(device, SCRATCH_MOST) > 0)
        r = slr_real.cuMemAlloc(p, SCRATCH_LEAST);
    return r;
}

static CUresult free_scratch(int device)
{
    CUdeviceptr p;
    CUresult r = scratch(&p, device);
    if (r != CUDA_SUCCESS)
        return r;
    r = slr_real.cuMemFree(p);
    if (r != CUDA_SUCCESS) /* a capture that forbids it has begun meanwhile */
        slr_block_driver_free(p);
    return r;
}

CUresult slr_block_settle(CUcontext ctx, int device)
{
    CUcontext old;
    CUresult r = slr_real.cuCtxPushCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!synchronise(&r))
        r = free_scratch(device);
    slr_real.cuCtxPopCurrent(&old);
    return r;
}

CUresult slr_block_driver_free(CUdeviceptr p)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    slr_swap_capture_mode(&mode);
    CUresult r = slr_real.cuMemFree(p);
    slr_swap_capture_mode(&mode);
    return r;
}
