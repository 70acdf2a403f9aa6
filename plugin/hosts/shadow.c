/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/hosts/shadow.h"

#include "base/settings.h"
#include "base/wait.h"

void slr_shadow_prepare(struct slr_shadow *s)
{
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

enum slr_status slr_shadow_open(struct slr_shadow *s, int ranks)
{
    s->ranks = ranks;
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &s->stream, CU_STREAM_NON_BLOCKING, 0));
    if (!slr_real.cuMemAllocAsync || !slr_real.cuMemFreeAsync)
        return SLR_ABSENT;
    SLR_TRY(SLR_CU(cuMemAllocAsync, &s->memory, ((size_t)ranks + 1) * SLR_SHADOW_BYTES, s->stream));
    return SLR_CU(cuStreamSynchronize, s->stream);
}

#define STOP_WAIT_MS 1000
#define EXIT_WAIT_MS 3000

static _Atomic int due;  /* turns that have been taken, and are not over */
static _Atomic int used; /* of these, those that have begun */
static _Atomic bool stopped;

bool slr_shadow_goes_on(const struct slr_shadow *s)
{
    return !atomic_load(&s->ended) && !atomic_load(&stopped);
}

static bool goes_on(const struct slr_shadow *s, uint64_t deadline)
{
    return slr_shadow_goes_on(s) && slr_now_ms() < deadline;
}

ncclResult_t slr_shadow_await(const struct slr_shadow *s, ncclComm_t comm, ncclResult_t r, uint64_t deadline)
{
    if (r != ncclSuccess && r != ncclInProgress)
        return r;
    while (slr_real.ncclCommGetAsyncError(comm, &r) == ncclSuccess && r == ncclInProgress && goes_on(s, deadline))
        slr_sleep_ms(1);
    return r;
}

bool slr_shadow_await_stream(const struct slr_shadow *s, CUstream stream, ncclComm_t comm, uint64_t deadline)
{
    CUresult now;
    while ((now = slr_real.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && goes_on(s, deadline)) {
        ncclResult_t r = ncclSuccess;
        slr_sleep_ms(1);
        if (slr_real.ncclCommGetAsyncError(comm, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress))
            return false;
    }
    return now == CUDA_SUCCESS;
}

bool slr_shadow_exchange(struct slr_shadow *s, const void *own, void *all, size_t bytes, uint64_t deadline)
{
    const CUdeviceptr mine = s->memory + (size_t)s->ranks * bytes;
    if (slr_real.cuMemcpyAsync(mine, (CUdeviceptr)(uintptr_t)own, bytes, s->stream) != CUDA_SUCCESS)
        return false;
    const ncclResult_t r = slr_real.ncclAllGather((const void *)(uintptr_t)mine, (void *)(uintptr_t)s->memory, bytes,
                                                  ncclUint8, s->comm, (cudaStream_t)s->stream);
    if (slr_shadow_await(s, s->comm, r, deadline) != ncclSuccess ||
        !slr_shadow_await_stream(s, s->stream, s->comm, deadline))
        return false;
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)all;
    return slr_real.cuMemcpyAsync(to, s->memory, (size_t)s->ranks * bytes, s->stream) == CUDA_SUCCESS &&
           slr_shadow_await_stream(s, s->stream, s->comm, SLR_NO_DEADLINE);
}

/* ---- turns ---- */

uint64_t slr_shadow_take(struct slr_shadow *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t turn = s->taken++;
    atomic_fetch_add(&due, 1);
    pthread_mutex_unlock(&s->lock);
    return turn;
}

/* Under the lock. */
static void await_turn(struct slr_shadow *s, uint64_t turn)
{
    while (s->over != turn && !atomic_load(&s->ended))
        pthread_cond_wait(&s->changed, &s->lock);
}

bool slr_shadow_begin(struct slr_shadow *s, uint64_t turn)
{
    pthread_mutex_lock(&s->lock);
    await_turn(s, turn);
    atomic_fetch_add(&used, 1); /* before it is asked */
    const bool begun = slr_shadow_goes_on(s);
    if (begun)
        s->user = turn + 1;
    else
        atomic_fetch_sub(&used, 1);
    pthread_mutex_unlock(&s->lock);
    return begun;
}

void slr_shadow_over(struct slr_shadow *s, uint64_t turn)
{
    pthread_mutex_lock(&s->lock);
    await_turn(s, turn);
    s->over = turn + 1;
    if (s->user == turn + 1) {
        s->user = 0;
        atomic_fetch_sub(&used, 1);
    }
    atomic_fetch_sub(&due, 1);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the end ---- */

static bool is_idle(struct slr_shadow *s)
{
    pthread_mutex_lock(&s->lock);
    const bool idle = s->over == s->taken;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

void slr_shadow_finish(struct slr_shadow *s)
{
    const uint64_t deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    while (!is_idle(s) && goes_on(s, deadline))
        slr_sleep_ms(1);
}

bool slr_shadow_end(struct slr_shadow *s)
{
    pthread_mutex_lock(&s->lock);
    const bool unfinished = s->over != s->taken || atomic_load(&s->ended);
    atomic_store(&s->ended, true);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return unfinished;
}

void slr_shadows_stop(void)
{
    for (int ms = 0; ms < EXIT_WAIT_MS && atomic_load(&due) > 0; ms++)
        slr_sleep_ms(1);
    atomic_store(&stopped, true);
    for (int ms = 0; ms < STOP_WAIT_MS && atomic_load(&used) > 0; ms++)
        slr_sleep_ms(1);
}

void slr_shadow_close(struct slr_shadow *s, bool abort)
{
    pthread_mutex_lock(&s->lock);
    while (s->user)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (s->comm)
        abort ? slr_real.ncclCommAbort(s->comm) : slr_real.ncclCommDestroy(s->comm);
    /* In the order of the stream: cuMemFree would wait for all that the device is doing. */
    if (s->memory)
        slr_real.cuMemFreeAsync(s->memory, s->stream);
    if (s->stream)
        slr_real.cuStreamDestroy(s->stream);
    s->comm = NULL;
    s->stream = NULL;
    s->memory = 0;
}
