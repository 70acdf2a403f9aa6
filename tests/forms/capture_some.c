/* One rank records a gather in a graph, the other makes it. Both are told so by ncclCommGetAsyncError, in time, instead
 * of waiting for each other; the calls before it are right. Only under slipring: NCCL itself can do this.
 *
 *   capture_some CAPTURING-RANK LATER-CALLS      so many more gathers by the capturing rank
 */
#include "forms.h"

#include <time.h>

#define SHARD ((size_t)50000)
#define LIMIT_MS 8000

struct plan {
    int capturing, later;
};

static ncclResult_t await_error(ncclComm_t comm)
{
    ncclResult_t e = ncclSuccess;
    for (int ms = 0; ms < LIMIT_MS && e == ncclSuccess; ms += 10) {
        sleep_ms(10);
        NCCL(ncclCommGetAsyncError(comm, &e));
    }
    return e;
}

static void record(struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    gather_call(g, comm, stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g;
    cudaStream_t stream;
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    gather_alloc(&g, r->rank, r->nranks, SHARD);
    for (uint64_t i = 0; i < 3; i++) {
        gather_load(&g, i, stream);
        gather_call(&g, comm, stream);
        gather_check(&g, i, stream, "before");
    }
    if (r->rank == p->capturing)
        record(&g, comm, stream);
    bool refused = false;
    for (int i = 0; i < (r->rank == p->capturing ? p->later : 1) && !refused; i++)
        refused = ncclAllGather(g.send, g.recv, SHARD, ncclUint8, comm, stream) != ncclSuccess;
    EXPECT(refused || await_error(comm) != ncclSuccess, "rank %d: no error within %d ms", r->rank, LIMIT_MS);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamSynchronize(stream));
    gather_free(&g);
    CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    struct plan plan = {.capturing = argc == 3 ? atoi(argv[1]) : -1, .later = argc == 3 ? atoi(argv[2]) : 0};
    return argc == 3 ? forms_run(2, 30, body, &plan) : 2;
}
