/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's collective and point-to-point calls: argument checks, then the group. */
#include "comm.h"

#define REDUCES 1  /* the operation does arithmetic */
#define HAS_ROOT 2 /* `root` (or peer) must be a rank */

struct call {
    const char *name;
    enum op_kind kind;
    int flags;
};

static ncclResult_t check_types(const struct call *call, const struct op *op)
{
    if (!type_bytes(op->type))
        return nccl_warn(ncclInvalidArgument, "%s : invalid type %d", call->name, (int)op->type);
    if (!(call->flags & REDUCES))
        return ncclSuccess;
    if ((unsigned)op->redop >= ncclNumOps)
        return nccl_warn(ncclInvalidArgument, "%s : invalid reduction operation %d", call->name, (int)op->redop);
    if (op->type == ncclFloat8e4m3 || op->type == ncclFloat8e5m2)
        return nccl_warn(ncclInvalidArgument, "%s : no fp8 arithmetic on this device", call->name);
    return ncclSuccess;
}

static ncclResult_t check_buffers(const struct call *call, const struct op *op)
{
    size_t send, recv;
    op_extents(op, &send, &recv);
    if ((send && !op->send) || (recv && !op->recv))
        return nccl_warn(ncclInvalidArgument, "%s : %s argument is NULL", call->name,
                         send && !op->send ? "sendbuff" : "recvbuff");
    return ncclSuccess;
}

static ncclResult_t check(const struct call *call, const struct op *op)
{
    ncclResult_t rc = check_types(call, op);
    if (rc != ncclSuccess)
        return rc;
    if ((call->flags & HAS_ROOT) && (op->root < 0 || op->root >= op->comm->nranks))
        return nccl_warn(ncclInvalidArgument, "%s : invalid root or peer %d (there are %d ranks)", call->name, op->root,
                         op->comm->nranks);
    return check_buffers(call, op);
}

static ncclResult_t submit(const struct call *call, struct op op, ncclComm_t comm)
{
    ncclResult_t rc = comm_get_ready(comm, call->name, &op.comm);
    if (rc != ncclSuccess)
        return group_note_error(rc);
    op.kind = call->kind;
    rc = check(call, &op);
    if (rc == ncclSuccess && op.count)
        return group_note_error(group_submit_op(&op));
    comm_put(op.comm);
    return group_note_error(rc);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    static const struct call call = {"AllGather", OP_ALL_GATHER, 0};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclAllGather);

ncclResult_t ncclToComeAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream)
{
    return pncclAllGather(send, recv, count, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop,
                           ncclComm_t comm, cudaStream_t stream)
{
    static const struct call call = {"AllReduce", OP_ALL_REDUCE, REDUCES};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .redop = redop, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclAllReduce);

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop,
                               ncclComm_t comm, cudaStream_t stream)
{
    static const struct call call = {"ReduceScatter", OP_REDUCE_SCATTER, REDUCES};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .redop = redop, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclReduceScatter);

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    static const struct call call = {"Reduce", OP_REDUCE, REDUCES | HAS_ROOT};
    struct op op = {
        .send = send, .recv = recv, .count = count, .type = type, .redop = redop, .root = root, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclReduce);

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    static const struct call call = {"Broadcast", OP_BROADCAST, HAS_ROOT};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .root = root, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclBroadcast);

/* Through the exported name, as in NCCL: an interposer sees a nested call. */
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}
NCCL_ALIAS(ncclBcast);

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream)
{
    static const struct call call = {"Gather", OP_GATHER, HAS_ROOT};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .root = root, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclGather);

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream)
{
    static const struct call call = {"Scatter", OP_SCATTER, HAS_ROOT};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .root = root, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclScatter);

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream)
{
    static const struct call call = {"AlltoAll", OP_ALL_TO_ALL, 0};
    struct op op = {.send = send, .recv = recv, .count = count, .type = type, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclAlltoAll);

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    static const struct call call = {"Send", OP_SEND, HAS_ROOT};
    struct op op = {.send = send, .count = count, .type = type, .root = peer, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclSend);

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    static const struct call call = {"Recv", OP_RECV, HAS_ROOT};
    struct op op = {.recv = recv, .count = count, .type = type, .root = peer, .stream = stream};
    return submit(&call, op, comm);
}
NCCL_ALIAS(ncclRecv);

/* Only the built-in operations exist here; saying so is better than a wrong sum. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    (void)op, (void)scalar, (void)type, (void)residence, (void)comm;
    return group_note_error(nccl_warn(ncclInvalidUsage, "RedOpCreatePreMulSum : not supported by this software GPU"));
}
NCCL_ALIAS(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    (void)comm;
    return nccl_warn(ncclInvalidArgument, "RedOpDestroy : operation %d is not a user-created one", (int)op);
}
NCCL_ALIAS(ncclRedOpDestroy);

/* With a configuration of the call, of which nothing is modelled. By the second names, which nobody interposes: NCCL
 * does not call one of these by the other. */
static ncclResult_t check_config(const ncclCollConfig_t *config)
{
    if (!config || (config->magic == 0xcafebeef && config->size >= sizeof *config))
        return ncclSuccess;
    return nccl_warn(ncclInvalidArgument, "ncclCollConfig_t was not made with NCCL_COLLCONFIG_INITIALIZER");
}

#define CONFIGURED(fn, params, args)                                                                                   \
    ncclResult_t fn##Config params                                                                                     \
    {                                                                                                                  \
        const ncclResult_t rc = check_config(config);                                                                  \
        return rc == ncclSuccess ? p##fn args : group_note_error(rc);                                                  \
    }                                                                                                                  \
    NCCL_ALIAS(fn##Config)
CONFIGURED(ncclAllGather,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
            const ncclCollConfig_t *config),
           (send, recv, count, type, comm, stream));
CONFIGURED(ncclAllReduce,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, redop, comm, stream));
CONFIGURED(ncclReduceScatter,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, redop, comm, stream));
