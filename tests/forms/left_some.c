/* One rank leaves a gather to NCCL, the other makes it: the first records it in a graph, or makes it in a region of
 * slipring's API, alone or in a group. Both are told so by ncclCommGetAsyncError, in time, instead of waiting for each
 * other; the calls before it are right. Only under slipring: NCCL itself can do this.
 *
 *   left_some capture|region|group LEAVING-RANK LATER-CALLS      so many more gathers by the leaving rank
 */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include <string.h>
#include <time.h>
#include "forms.h"

#define SHARD ((size_t)50000)
#define LIMIT_MS 8000

struct plan {
    const char *how;
    int leaving, later;
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

static void in_region(struct gather *g, ncclComm_t comm, cudaStream_t stream, bool group)
{
    if (group)
        NCCL(ncclGroupStart());
    CHECK(slipring_loaded() && slipring_region_begin(SLIPRING_REGION_GATHERS) == 0, "no slipring here");
    gather_call(g, comm, stream);
    CHECK(slipring_region_end() == 0, "the region does not end");
    if (group)
        NCCL(ncclGroupEnd());
}

static void leave(const struct plan *p, struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    if (strcmp(p->how, "capture") == 0)
        record(g, comm, stream);
    else
        in_region(g, comm, stream, strcmp(p->how, "group") == 0);
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
    if (r->rank == p->leaving)
        leave(p, &g, comm, stream);
    bool refused = false;
    for (int i = 0; i < (r->rank == p->leaving ? p->later : 1) && !refused; i++)
        refused = ncclAllGather(g.send, g.recv, SHARD, ncclUint8, comm, stream) != ncclSuccess;
    EXPECT(refused || await_error(comm) != ncclSuccess, "rank %d: no error within %d ms", r->rank, LIMIT_MS);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamSynchronize(stream));
    gather_free(&g);
    CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct plan plan = {.how = argv[1], .leaving = atoi(argv[2]), .later = atoi(argv[3])};
    return forms_run(2, 30, body, &plan);
}
