/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as one built-in kernel: sizes, access ranges, cost, stream order and launch. */
#include "comm.h"
#include "profiler.h"

#include <stdlib.h>
#include <string.h>

struct plan {
    struct ncclComm *comm; /* a reference */
    struct op *ops;
    _Atomic int refs; /* the launch's and the kernel's; the latter stays for ever where a graph may run it again */
    uint64_t ticket;  /* the place in the communicator's order; 0: part of a graph, may run many times */
    struct profiled *profiled; /* of a launch outside of graphs; NULL: nobody wants to know */
};

struct plan_args {
    struct plan *plan;
};

static softgpuComputeOff_t compute_off;
static CUfunction function;
static CUresult registered;
static pthread_once_t once = PTHREAD_ONCE_INIT;

size_t type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

void ops_free(struct op *ops)
{
    for (struct op *next; ops; ops = next) {
        next = ops->next;
        comm_put(ops->comm);
        free(ops);
    }
}

void op_extents(const struct op *op, size_t *send, size_t *recv)
{
    size_t bytes = op->count * type_bytes(op->type), all = bytes * (size_t)op->comm->nranks;
    int is_root = op->comm->rank == op->root;
    const struct {
        size_t send, recv;
    } table[] = {
        [OP_ALL_GATHER] = {bytes, all},
        [OP_ALL_REDUCE] = {bytes, bytes},
        [OP_BROADCAST] = {is_root ? bytes : 0, bytes},
        [OP_REDUCE] = {bytes, is_root ? bytes : 0},
        [OP_REDUCE_SCATTER] = {all, bytes},
        [OP_GATHER] = {bytes, is_root ? all : 0},
        [OP_SCATTER] = {is_root ? all : 0, bytes},
        [OP_ALL_TO_ALL] = {all, all},
        [OP_SEND] = {bytes, 0},
        [OP_RECV] = {0, bytes},
    };
    *send = table[op->kind].send;
    *recv = table[op->kind].recv;
}

/* Bytes that a good algorithm receives over this rank's link. */
double op_link_bytes(const struct op *op)
{
    double bytes = (double)op->count * (double)type_bytes(op->type), n = op->comm->nranks;
    int is_root = op->comm->rank == op->root;
    switch (op->kind) {
    case OP_ALL_GATHER:
    case OP_ALL_TO_ALL:
        return bytes * (n - 1);
    case OP_ALL_REDUCE:
        return 2 * bytes * (n - 1) / n;
    case OP_REDUCE_SCATTER:
        return bytes * (n - 1);
    case OP_BROADCAST:
    case OP_SCATTER:
        return is_root ? 0 : bytes;
    case OP_REDUCE:
        return is_root ? bytes : 0;
    case OP_GATHER:
        return is_root ? bytes * (n - 1) : 0;
    case OP_SEND:
        return 0;
    case OP_RECV:
        return is_root ? 0 : bytes; /* `root` is the peer: nothing crosses a link to oneself */
    }
    return 0;
}

static double link_bytes(const void *args)
{
    double sum = 0;
    for (const struct op *op = ((const struct plan_args *)args)->plan->ops; op; op = op->next)
        sum += op_link_bytes(op) * tuner_scale(op);
    return sum;
}

static unsigned access_ranges(const void *args, struct softgpu_access *out, unsigned max)
{
    unsigned n = 0;
    for (const struct op *op = ((const struct plan_args *)args)->plan->ops; op; op = op->next) {
        size_t send, recv;
        op_extents(op, &send, &recv);
        if (recv && n < max)
            out[n++] = (struct softgpu_access){(CUdeviceptr)op->recv, recv, 1, recv, 1};
        if (send && n < max)
            out[n++] = (struct softgpu_access){(CUdeviceptr)op->send, send, 1, send, 0};
    }
    return n;
}

static unsigned long long meets(const void *args, const void **turn)
{
    const struct ncclComm *c = ((const struct plan_args *)args)->plan->comm;
    const struct block_header *b = c->block.hdr;
    unsigned long long id = 0;

    *turn = c;
    if (b)
        memcpy(&id, b->secret, sizeof id);
    return id;
}

/* Kernels of one communicator run in the order of their launch, whatever streams they are on. */
static void begin(struct plan *plan)
{
    struct ncclComm *c = plan->comm;
    pthread_mutex_lock(&c->lock);
    while ((c->running || (plan->ticket && c->done + 1 < plan->ticket)) && !atomic_load(&c->abort))
        pthread_cond_wait(&c->changed, &c->lock);
    c->running++;
    pthread_mutex_unlock(&c->lock);
}

static void end(struct plan *plan)
{
    struct ncclComm *c = plan->comm;
    pthread_mutex_lock(&c->lock);
    c->running--;
    if (plan->ticket > c->done)
        c->done = plan->ticket;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void plan_put(struct plan *plan)
{
    struct ncclComm *comm = plan->comm;
    if (atomic_fetch_sub(&plan->refs, 1) > 1)
        return;
    ops_free(plan->ops);
    free(plan);
    comm_put(comm);
}

static void run(void *args)
{
    struct plan *plan = ((struct plan_args *)args)->plan;
    struct ncclComm *c = plan->comm;
    struct profiled *profiled = plan->ticket ? plan->profiled : profiled_new(c, plan->ops);
    if (!plan->ticket)
        profiled_launched(profiled, plan->ops);
    begin(plan);
    profiled_begun(profiled);
    ncclResult_t rc = exchange_run(c, plan->ops, !compute_off());
    profiled_ended(profiled);
    if (rc != ncclSuccess) {
        int good = ncclSuccess;
        atomic_compare_exchange_strong(&c->async, &good, rc);
        if (!atomic_load(&c->abort) && !atomic_load(&c->revoked))
            block_poison(&c->block, ncclRemoteError);
    }
    end(plan);
    if (plan->ticket)
        plan_put(plan);
}

static const struct softgpu_kernel_desc kernel = {.name = "softgpu_nccl",
                                                  .arg_bytes = sizeof(struct plan_args),
                                                  .run = run,
                                                  .access = access_ranges,
                                                  .link_bytes = link_bytes,
                                                  .meets = meets};

static void register_kernel(void)
{
    const struct softdrv *drv = softdrv_get();
    compute_off = drv->compute_off;
    registered = drv->kernel_register(&kernel, &function);
}

/* True for the first operation on its stream. */
static int first_on_stream(const struct op *ops, const struct op *op)
{
    while (ops->stream != op->stream)
        ops = ops->next;
    return ops == op;
}

/* `to` waits for what is on `from` now. */
static CUresult stream_after(const struct softdrv *drv, CUstream to, CUstream from)
{
    CUevent event;
    CUresult rc = drv->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (rc != CUDA_SUCCESS)
        return rc;
    if ((rc = drv->cuEventRecord(event, from)) == CUDA_SUCCESS)
        rc = drv->cuStreamWaitEvent(to, event, 0);
    drv->cuEventDestroy(event);
    return rc;
}

/* The operations of a group may be on several streams: all of them wait for all others, before and after. */
static CUresult join_streams(const struct softdrv *drv, const struct op *ops, int before)
{
    CUstream main_stream = ops->stream;
    CUresult rc = CUDA_SUCCESS;
    for (const struct op *op = ops->next; op && rc == CUDA_SUCCESS; op = op->next)
        if (first_on_stream(ops, op))
            rc = before ? stream_after(drv, main_stream, op->stream) : stream_after(drv, op->stream, main_stream);
    return rc;
}

static int is_captured(const struct softdrv *drv, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return drv->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static uint64_t draw_ticket(struct ncclComm *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t ticket = ++c->issued;
    pthread_mutex_unlock(&c->lock);
    return ticket;
}

static void return_ticket(struct ncclComm *c)
{
    pthread_mutex_lock(&c->lock);
    c->issued--;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* The ticket is drawn and the kernel enqueued under one lock, so the order of tickets is that of the launches. */
static CUresult launch(const struct softdrv *drv, struct plan *plan)
{
    struct ncclComm *c = plan->comm;
    CUstream stream = plan->ops->stream;
    struct plan_args args = {plan};
    void *params[] = {&args};
    int captured = is_captured(drv, stream);
    CUresult rc = join_streams(drv, plan->ops, 1);
    if (rc != CUDA_SUCCESS) {
        plan_put(plan); /* for the kernel that will not run */
        return rc;
    }
    pthread_mutex_lock(&c->launch_lock);
    plan->ticket = captured ? 0 : draw_ticket(c);
    plan->profiled = captured ? NULL : profiled_new(c, plan->ops);
    struct profiled *profiled = plan->profiled;
    rc = drv->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    if (rc != CUDA_SUCCESS && !captured)
        return_ticket(c);
    pthread_mutex_unlock(&c->launch_lock);
    if (rc == CUDA_SUCCESS) {
        profiled_launched(profiled, plan->ops);
        return join_streams(drv, plan->ops, 0);
    }
    profiled_drop(profiled);
    plan_put(plan); /* for the kernel that will not run */
    return rc;
}

ncclResult_t plan_launch(struct ncclComm *comm, struct op *ops)
{
    const struct softdrv *drv = softdrv_get();
    struct plan *plan = calloc(1, sizeof *plan);
    pthread_once(&once, register_kernel);
    if (!plan || registered != CUDA_SUCCESS || !(plan->comm = comm_get(comm))) {
        free(plan);
        ops_free(ops);
        return nccl_warn(ncclInvalidUsage, "the communicator was destroyed inside the group");
    }
    for (struct op *op = ops; op; op = op->next) {
        ncclResult_t rc = tuner_choose(op);
        if (rc != ncclSuccess) {
            comm_put(plan->comm);
            free(plan);
            ops_free(ops);
            return rc;
        }
    }
    atomic_store(&plan->refs, 2);
    plan->ops = ops;
    CUcontext before = NULL;
    drv->cuCtxGetCurrent(&before);
    drv->cuCtxSetCurrent(comm->ctx);
    CUresult rc = launch(drv, plan);
    drv->cuCtxSetCurrent(before);
    plan_put(plan);
    if (rc != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "Cuda failure %d at the launch of a collective", (int)rc);
    return ncclSuccess;
}
