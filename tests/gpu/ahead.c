/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of its peer a rank's graph launches return: `ahead GATHERS`, in the graph.
 *
 * Rank 0 launches it again and again; its peer makes its first launch when none of rank 0's has returned for two seconds,
 * or all have. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../programs/ranks.h"

enum { LAUNCHES = 400, SHARD = 1 << 20 };

static atomic_int *may_come, returned;

__attribute__((constructor)) static void make_shared(void)
{
    may_come = mmap(NULL, sizeof *may_come, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void *watch(void *unused)
{
    int before = -1;
    for (int still = 0; still < 20; usleep(100000)) {
        const int now = atomic_load(&returned);
        still = now == before ? still + 1 : 0;
        before = now;
    }
    printf("%d launches returned\n", before);
    atomic_store(may_come, 1);
    return unused;
}

static void body(struct rank *r)
{
    char *send, *recv;
    pthread_t watcher;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    rank_open(r);
    CUDA(cudaMalloc((void **)&send, SHARD));
    CUDA(cudaMalloc((void **)&recv, (size_t)SHARD * 2));
    NCCL(ncclAllGather(send, recv, SHARD, ncclUint8, r->comm, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < *(int *)r->arg; i++)
        NCCL(ncclAllGather(send, recv, SHARD, ncclUint8, r->comm, r->stream));
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphLaunch(exec, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CHECK(r->rank != 0 || pthread_create(&watcher, NULL, watch, NULL) == 0, "no thread");
    while (r->rank != 0 && !atomic_load(may_come))
        usleep(1000);
    for (int i = 0; i < LAUNCHES; i++) {
        CUDA(cudaGraphLaunch(exec, r->stream));
        atomic_fetch_add(&returned, 1);
    }
    CUDA(cudaStreamSynchronize(r->stream));
    if (r->rank == 0)
        pthread_join(watcher, NULL);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
    rank_close(r);
}

int main(int argc, char **argv)
{
    int gathers = argc == 2 ? atoi(argv[1]) : 0;
    return gathers > 0 ? ranks_run(2, 60, body, &gathers) : 2;
}
