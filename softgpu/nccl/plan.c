/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as one built-in kernel: sizes, access ranges, cost, stream order and launch. */
#include "comm.h"
#include "profiler.h"

#include <stdlib.h>
#include <string.h>

struct plan {
    struct ncclComm *comm; /* a reference */
    struct op *ops;
    _Atomic int refs; /* the launch's, and the kernel's: until it has run, or until the graph is gone that may run it */
    int captured;     /* part of a graph: runs at each launch of it */
    int loose;        /* and in no order but the graph's */
    struct profiled *profiled; /* of a launch outside of graphs; NULL: nobody wants to know */
};

struct plan_args {
    struct plan *plan;
    uint64_t ticket; /* the place in the communicator's order */
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

/* How much of it crosses the network. Of a ring over all ranks, of which as many channels enter a host as it has ranks, by
 * each one's own adapter: one of these. */
static double net_part(const struct op *op)
{
    const struct block *b = &op->comm->block;
    const uint64_t own = b->slots[op->comm->rank].info.host_hash;
    int here = 0;
    if (op->kind == OP_RECV || op->kind == OP_SEND)
        return b->slots[op->root].info.host_hash != own;
    for (int r = 0; r < op->comm->nranks; r++)
        here += b->slots[r].info.host_hash == own;
    return here == op->comm->nranks ? 0 : 1.0 / here;
}

static double bytes_of(const void *args, int net)
{
    double sum = 0;
    for (const struct op *op = ((const struct plan_args *)args)->plan->ops; op; op = op->next) {
        const double part = net_part(op);
        sum += op_link_bytes(op) * tuner_scale(op) * (net ? part : 1 - part);
    }
    return sum;
}

static double link_bytes(const void *args)
{
    return bytes_of(args, 0);
}

static double net_bytes(const void *args)
{
    return bytes_of(args, 1);
}

#define USUAL_CTAS 16 /* that SOFTGPU_COLLECTIVE_SHARE is for */

static double share(const void *args)
{
    const int most = ((const struct plan_args *)args)->plan->comm->max_ctas;
    return most > 0 && most < USUAL_CTAS ? (double)most / USUAL_CTAS : 1;
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

    *turn = ((const struct plan_args *)args)->plan->loose ? (const void *)((const struct plan_args *)args)->plan : c;
    if (b)
        memcpy(&id, b->secret, sizeof id);
    return id;
}

/* The calls that queue kernels decide the order in which they run, whatever streams and graphs they are in. What is in the
 * body of a conditional node is queued when it runs, maybe behind what has to wait for it. */
static void queued(void *args)
{
    struct plan_args *a = args;
    struct ncclComm *c = a->plan->comm;
    if (a->plan->loose) {
        a->ticket = 0;
        return;
    }
    pthread_mutex_lock(&c->lock);
    a->ticket = ++c->issued;
    pthread_mutex_unlock(&c->lock);
}

static void begin(struct ncclComm *c, uint64_t ticket)
{
    pthread_mutex_lock(&c->lock);
    while ((c->running || c->done + 1 < ticket) && !atomic_load(&c->abort))
        pthread_cond_wait(&c->changed, &c->lock);
    c->running++;
    pthread_mutex_unlock(&c->lock);
}

static void end(struct ncclComm *c, uint64_t ticket)
{
    pthread_mutex_lock(&c->lock);
    c->running--;
    if (ticket > c->done)
        c->done = ticket;
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

/* The last graph that holds the kernel is gone. */
static void forgotten(void *arg)
{
    struct plan *plan = arg;
    struct ncclComm *c = plan->comm;
    pthread_mutex_lock(&c->lock);
    c->in_graphs--;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    plan_put(plan);
}

static void run(void *args)
{
    struct plan_args *a = args;
    struct plan *plan = a->plan;
    struct ncclComm *c = plan->comm;
    struct profiled *profiled = plan->captured ? profiled_new(c, plan->ops) : plan->profiled;
    if (plan->captured)
        profiled_launched(profiled, plan->ops);
    begin(c, a->ticket);
    profiled_begun(profiled);
    ncclResult_t rc = exchange_run(c, plan->ops, !compute_off());
    profiled_ended(profiled);
    if (rc != ncclSuccess) {
        comm_failed(c, rc);
        if (!atomic_load(&c->abort) && !atomic_load(&c->revoked))
            block_poison(&c->block, ncclRemoteError);
    }
    end(c, a->ticket);
    if (!plan->captured)
        plan_put(plan);
}

static const struct softgpu_kernel_desc kernel = {.name = "softgpu_nccl",
                                                  .arg_bytes = sizeof(struct plan_args),
                                                  .run = run,
                                                  .access = access_ranges,
                                                  .link_bytes = link_bytes,
                                                  .net_bytes = net_bytes,
                                                  .share = share,
                                                  .queued = queued,
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

/* The operations of a group may be on several streams: all of them wait for all others, before and after. */
static CUresult join_streams(const struct op *ops, int before)
{
    CUstream main_stream = ops->stream;
    CUresult rc = CUDA_SUCCESS;
    for (const struct op *op = ops->next; op && rc == CUDA_SUCCESS; op = op->next)
        if (first_on_stream(ops, op))
            rc = before ? stream_after(main_stream, op->stream) : stream_after(op->stream, main_stream);
    return rc;
}

static CUresult launch_kernel(const struct softdrv *drv, struct plan *plan)
{
    struct plan_args args = {.plan = plan};
    void *params[] = {&args};
    const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, .hStream = plan->ops->stream};
    return drv->cuLaunchKernelEx(&config, function, params, NULL);
}

/* From now on the kernel is the graph's. */
static CUresult give_to_graph(struct plan *plan, const struct captured *c)
{
    pthread_mutex_lock(&plan->comm->lock);
    plan->comm->in_graphs++;
    pthread_mutex_unlock(&plan->comm->lock);
    CUresult rc = captured_keep(c, forgotten, plan);
    if (rc != CUDA_SUCCESS)
        forgotten(plan);
    return rc;
}

/* One launch at a time, so that all work of the communicator is in one order. */
static CUresult launch_in_order(const struct softdrv *drv, struct plan *plan, struct captured *c)
{
    CUstream stream = plan->ops->stream;
    CUresult rc = join_streams(plan->ops, 1);
    if (rc == CUDA_SUCCESS)
        rc = capture_order_before(plan->comm, c, stream);
    plan->captured = c->graph != NULL;
    plan->loose = plan->captured && !captures_are_ordered();
    plan->profiled = plan->captured ? NULL : profiled_new(plan->comm, plan->ops);
    struct profiled *profiled = plan->profiled;
    if (rc == CUDA_SUCCESS)
        rc = launch_kernel(drv, plan);
    if (rc != CUDA_SUCCESS) {
        profiled_drop(profiled);
        plan_put(plan); /* for the kernel that will not run */
        return rc;
    }
    if (plan->captured)
        rc = give_to_graph(plan, c);
    else
        profiled_launched(profiled, plan->ops);
    return rc == CUDA_SUCCESS ? capture_order_after(plan->comm, c, stream) : rc;
}

static CUresult launch(const struct softdrv *drv, struct plan *plan)
{
    struct captured captured;
    CUresult rc = captured_on(plan->ops->stream, &captured);
    if (rc != CUDA_SUCCESS) {
        plan_put(plan);
        return rc;
    }
    pthread_mutex_lock(&plan->comm->launch_lock);
    rc = launch_in_order(drv, plan, &captured);
    pthread_mutex_unlock(&plan->comm->launch_lock);
    return rc == CUDA_SUCCESS ? join_streams(plan->ops, 0) : rc;
}

static ncclResult_t prepare(struct ncclComm *comm, struct op *ops)
{
    for (struct op *op = ops; op; op = op->next) {
        ncclResult_t rc = tuner_choose(op);
        if (rc != ncclSuccess)
            return rc;
    }
    return connect_meet(comm, ops);
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
    CUcontext before = NULL;
    drv->cuCtxGetCurrent(&before);
    drv->cuCtxSetCurrent(comm->ctx);
    ncclResult_t ready = prepare(comm, ops);
    if (ready != ncclSuccess) {
        drv->cuCtxSetCurrent(before);
        comm_put(plan->comm);
        free(plan);
        ops_free(ops);
        return ready;
    }
    atomic_store(&plan->refs, 2);
    plan->ops = ops;
    CUresult rc = launch(drv, plan);
    drv->cuCtxSetCurrent(before);
    plan_put(plan);
    if (rc != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "Cuda failure %d at the launch of a collective", (int)rc);
    return ncclSuccess;
}
