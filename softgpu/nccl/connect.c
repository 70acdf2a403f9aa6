/* SPDX-License-Identifier: Apache-2.0 */
/* The first collective of each kind connects its ranks, inside of the call (SOFTGPU_NCCL_CONNECT): NCCL makes the
 * connections of an algorithm when it is first used (NCCL_RUNTIME_CONNECT), by messages between the hosts.
 *
 * Ranks of one process get access to each other's devices then (cudaDeviceEnablePeerAccess), which a capture forbids as
 * it does an allocation. Once they have it, the connections of other kinds can be made there as well. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10

enum { CONNECTED, MEETS, MEETS_AND_LOADS }; /* SOFTGPU_NCCL_CONNECT */

static int mode;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_mode(void)
{
    const char *value = getenv("SOFTGPU_NCCL_CONNECT"), *at_runtime = getenv("NCCL_RUNTIME_CONNECT");
    const int early = at_runtime && strcmp(at_runtime, "0") == 0;
    mode = early ? CONNECTED : value ? atoi(value) : MEETS;
}

static int connects(const struct op *op)
{
    pthread_once(&once, read_mode);
    return mode != CONNECTED && op->kind != OP_SEND && op->kind != OP_RECV;
}

static uint32_t bits_of(const struct ncclComm *c, const struct op *ops)
{
    uint32_t bits = 0;
    for (const struct op *op = ops; op; op = op->next)
        if (op->comm == c && connects(op))
            bits |= 1u << op->kind;
    return bits;
}

void connect_announce(const struct op *ops)
{
    for (const struct op *op = ops; op; op = op->next) {
        struct ncclComm *c = op->comm;
        if (!connects(op))
            continue;
        if (!(atomic_fetch_or(&block_me(&c->block)->connects, 1u << op->kind) & 1u << op->kind))
            block_ring_all(&c->block);
    }
}

/* A rank that has not come; -1: all have. */
static int missing(const struct ncclComm *c, uint32_t bits)
{
    for (int r = 0; r < c->nranks; r++)
        if ((atomic_load(&c->block.slots[r].connects) & bits) != bits)
            return r;
    return -1;
}

static ncclResult_t ended(struct ncclComm *c, int rank)
{
    if (atomic_load(&c->abort))
        return ncclInternalError;
    if (atomic_load(&c->revoked))
        return ncclInvalidUsage;
    if (atomic_load(&c->block.hdr->poison))
        return ncclRemoteError;
    return !softdrv_get()->nccl_blind() && block_rank_gone(&c->block, rank) ? ncclRemoteError : ncclSuccess;
}

static ncclResult_t await_all(struct ncclComm *c, uint32_t bits)
{
    for (;;) {
        uint32_t seen = atomic_load(&block_me(&c->block)->bell);
        int rank = missing(c, bits);
        ncclResult_t rc = rank < 0 ? ncclSuccess : ended(c, rank);
        if (rank < 0 || rc != ncclSuccess)
            return rc;
        block_wait(&c->block, seen, WAIT_MS);
    }
}

static void nothing(void *args)
{
    (void)args;
}

/* Waits for all work of the context, as the first launch of a kernel does (SOFTGPU_LAZY). */
static CUresult load(const struct op *op)
{
    static const struct softgpu_kernel_desc kernel = {.name = "softgpu_nccl_connect", .run = nothing, .lazy = 1};
    const struct softdrv *drv = softdrv_get();
    struct captured captured;
    CUfunction function;
    CUstream stream;
    CUresult rc = captured_on(op->stream, &captured);
    if (rc != CUDA_SUCCESS || captured.graph)
        return rc;
    if ((rc = drv->kernel_register(&kernel, &function)) != CUDA_SUCCESS ||
        (rc = drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS)
        return rc;
    rc = drv->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    drv->cuStreamDestroy(stream);
    return rc;
}

static int shares_process(const struct ncclComm *c)
{
    const struct rank_slot *slots = c->block.slots;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank && slots[r].info.pid == slots[c->rank].info.pid)
            return 1;
    return 0;
}

/* From this rank's device to another's, unless it has that already. */
static CUresult take_access(const struct softdrv *drv, const struct ncclComm *c, CUdevice device)
{
    int can = 0;
    CUcontext other, before = NULL;
    CUresult rc = drv->cuDeviceCanAccessPeer(&can, c->device, device);
    if (rc != CUDA_SUCCESS || !can || (rc = drv->cuDevicePrimaryCtxRetain(&other, device)) != CUDA_SUCCESS)
        return rc;
    drv->cuCtxGetCurrent(&before);
    drv->cuCtxSetCurrent(c->ctx);
    rc = drv->cuCtxEnablePeerAccess(other, 0);
    drv->cuCtxSetCurrent(before);
    drv->cuDevicePrimaryCtxRelease(device);
    return rc == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : rc;
}

static ncclResult_t take_all_access(const struct ncclComm *c)
{
    const struct rank_slot *slots = c->block.slots;
    for (int r = 0; r < c->nranks; r++)
        if (slots[r].info.pid == slots[c->rank].info.pid && slots[r].info.device != c->device &&
            take_access(softdrv_get(), c, slots[r].info.device) != CUDA_SUCCESS)
            return nccl_warn(ncclInternalError, "failed to peer with device %d", slots[r].info.device);
    return ncclSuccess;
}

ncclResult_t connect_meet(struct ncclComm *c, const struct op *ops)
{
    const uint32_t bits = bits_of(c, ops), connected = atomic_load(&c->connected);
    if ((connected & bits) == bits)
        return ncclSuccess;
    if (!connected && shares_process(c) && softdrv_get()->capture_forbids())
        return nccl_warn(ncclInternalError, "failed to peer with another device: operation not permitted when stream "
                                            "is capturing");
    if (mode == MEETS_AND_LOADS && load(ops) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "a kernel can not be loaded");
    ncclResult_t rc = connected ? ncclSuccess : take_all_access(c);
    if (rc == ncclSuccess)
        rc = await_all(c, bits);
    if (rc == ncclSuccess)
        atomic_fetch_or(&c->connected, bits);
    return rc;
}
