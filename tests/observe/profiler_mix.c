/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call NCCL in all the ways in which the profiler has to tell what belongs to which call.
 *
 *   profile_mix RANKS [open]     open: the communicator is not destroyed
 */
#include "../programs/ranks.h"

#include <string.h>

#define COUNT 256

static float *send, *recv;

static void gather(const struct rank *r, size_t count)
{
    NCCL(ncclAllGather(send, recv, count, ncclFloat, r->comm, r->stream));
}

static void group(const struct rank *r)
{
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(send, recv, COUNT, ncclFloat, ncclSum, r->comm, r->stream));
    gather(r, COUNT);     /* passed */
    gather(r, 3 * COUNT); /* passed, and NCCL would sort it before the smaller one */
    NCCL(ncclGroupEnd());
}

static void exchange(const struct rank *r)
{
    int to = (r->rank + 1) % r->nranks, from = (r->rank + r->nranks - 1) % r->nranks;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(send, COUNT, ncclFloat, to, r->comm, r->stream));
    NCCL(ncclRecv(recv, COUNT, ncclFloat, from, r->comm, r->stream));
    NCCL(ncclGroupEnd());
}

/* One call, run three times. */
static void replay(const struct rank *r)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    gather(r, 8192);
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphLaunch(exec, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

static void body(struct rank *r)
{
    bool stays_open = r->arg != NULL;
    ncclComm_t half;
    rank_open(r);
    size_t most = sizeof(float) * 8192 * (size_t)r->nranks;
    CUDA(cudaMalloc((void **)&send, most));
    CUDA(cudaMalloc((void **)&recv, most));
    gather(r, COUNT); /* call 1: below SLIPRING_MIN_BYTES */
    gather(r, 4096);  /* moved: no line */
    group(r);         /* calls 2 and 3 */
    NCCL(ncclBroadcast(send, recv, COUNT, ncclBfloat16, 0, r->comm, r->stream));
    exchange(r);
    replay(r);        /* call 4 */
    gather(r, COUNT); /* call 5 */
    NCCL(ncclCommSplit(r->comm, r->rank % 2, r->rank, &half, NULL));
    NCCL(ncclAllReduce(send, recv, COUNT, ncclUint8, ncclMax, half, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    NCCL(ncclCommDestroy(half));
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
    if (!stays_open)
        rank_close(r);
}

int main(int argc, char **argv)
{
    return ranks_run(argc > 1 ? atoi(argv[1]) : 2, 60, body, argc > 2 && !strcmp(argv[2], "open") ? argv[2] : NULL);
}
