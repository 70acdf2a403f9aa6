/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that start others while they use CUDA: children that exec, children that only print, children that are such
 * programs themselves, and children whose destructors end what is the parent's. The parent's gathers stay exact, and the
 * children say nothing that is not theirs.
 *
 *   children         two ranks; each starts children between the call of a gather and its use
 *   children solo    what a child may be: two ranks in one process
 */
#include "forms.h"

#include <cuda.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARD ((size_t)100000)

enum kind {
    CHILD_EXEC,
    CHILD_PRINTS,
    CHILD_LEAVES,
    CHILD_SHELL,
    CHILD_SOLO,
    CHILD_ENDS_ALL,
    CHILD_USES_ALL,
    CHILD_OF_CHILD,
    CHILD_KINDS
};

static const char *const expected[CHILD_KINDS] = {"",       "child\n", "",        "shell\n",
                                                  "solo\n", "child\n", "child\n", "child\n"};

/* What is the parent's. */
static struct {
    struct gather g;
    cudaStream_t stream, other;
    cudaEvent_t event;
    cublasHandle_t blas;
    cudaGraphExec_t graph;
    ncclComm_t comm;
    void *registered, *product, *plain;
} parents;

/* As destructors do. CUDA answers that it is not there. */
static void end_all(void)
{
    cuStreamQuery(parents.stream);
    cuStreamDestroy(parents.other);
    cuStreamDestroy(parents.stream);
    cuEventDestroy(parents.event);
    cuGraphExecDestroy(parents.graph);
    cublasSetWorkspace(parents.blas, parents.plain, 1024);
    cublasSetStream(parents.blas, NULL);
    cublasDestroy(parents.blas);
    parents.blas = NULL; /* cuBLAS refuses that; an end of its own it does not survive twice */
    cuMemFree((CUdeviceptr)(uintptr_t)parents.plain);
    cuMemFree((CUdeviceptr)(uintptr_t)parents.g.send);
    cuMemFreeAsync((CUdeviceptr)(uintptr_t)parents.g.recv, parents.stream);
    cudaFree(parents.product);
    if (parents.registered)
        ncclCommDeregister(parents.comm, parents.registered);
    parents.registered = NULL;
    cuDevicePrimaryCtxRelease(0);
    cuDevicePrimaryCtxReset(0);
    cudaDeviceReset();
}

/* And as one that goes on with what it has. */
static void use_all(void)
{
    const float one = 1, zero = 0;
    const CUdeviceptr recv = (CUdeviceptr)(uintptr_t)parents.g.recv;
    CUdeviceptr p;
    CUgraph graph;
    cuMemAlloc(&p, (size_t)64 << 20);
    cuMemAllocAsync(&p, (size_t)64 << 20, parents.stream);
    cuMemcpyDtoH(parents.g.host, recv, SHARD);
    cuMemcpyDtoHAsync(parents.g.host, recv, SHARD, parents.stream);
    cuEventRecord(parents.event, parents.stream);
    cuStreamWaitEvent(parents.other, parents.event, 0);
    cuEventSynchronize(parents.event);
    cuGraphLaunch(parents.graph, parents.stream);
    cublasSgemm(parents.blas, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, parents.plain, 8, parents.plain, 8, &zero,
                parents.product, 8);
    cuStreamBeginCapture(parents.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamEndCapture(parents.stream, &graph);
    cuStreamSynchronize(parents.stream);
    cuCtxSynchronize();
}

static void leave(void)
{
    atexit(end_all); /* registered last: before all that libraries have registered */
    end_all();
    printf("child\n");
    exit(0);
}

static void be(enum kind kind)
{
    int status = 0;
    switch (kind) {
    case CHILD_EXEC:
        execl("/bin/true", "true", (char *)NULL);
        break;
    case CHILD_PRINTS:
        printf("child\n");
        exit(0);
    case CHILD_LEAVES:
        _exit(0);
    case CHILD_SHELL:
        execl("/bin/sh", "sh", "-c", "echo shell; /bin/true", (char *)NULL);
        break;
    case CHILD_SOLO:
        execl("/proc/self/exe", "children", "solo", (char *)NULL);
        break;
    case CHILD_USES_ALL:
        use_all();
        leave();
        break;
    case CHILD_ENDS_ALL:
        leave();
        break;
    case CHILD_OF_CHILD:
        if (fork() == 0)
            leave();
        wait(&status);
        exit(status);
    case CHILD_KINDS:
        break;
    }
    _exit(9);
}

/* What the child writes to stdout and stderr. */
static int run_child(enum kind kind, char *text, size_t room)
{
    int ends[2], status;
    size_t have = 0;
    ssize_t got;
    fflush(NULL);
    if (pipe(ends))
        DIE(3, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        be(kind);
    }
    close(ends[1]);
    while (have + 1 < room && (got = read(ends[0], text + have, room - have - 1)) > 0)
        have += (size_t)got;
    text[have] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return status;
}

/* A child that gathers is a job of its own, whose end slipring tells of. */
static void drop_closing_line(char *text)
{
    char *said = strstr(text, "all-gathers went over the ring");
    if (!said)
        return;
    char *end = strchr(said, '\n');
    while (said > text && said[-1] != '\n')
        said--;
    memmove(said, end ? end + 1 : "", end ? strlen(end + 1) + 1 : 1);
}

static void have_all(const struct rank *r, const struct gather *g)
{
    parents.g = *g;
    parents.stream = r->stream;
    parents.comm = r->comm;
    CUDA(cudaStreamCreateWithFlags(&parents.other, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&parents.event));
    CUDA(cudaMalloc(&parents.plain, 4096));
    CUDA(cudaMalloc(&parents.product, (size_t)4 << 20));
    BLAS(cublasCreate(&parents.blas));
    BLAS(cublasSetStream(parents.blas, r->stream));
    NCCL(ncclCommRegister(r->comm, g->send, g->shard, &parents.registered));
    nccl_connects(r->comm, r->stream);
    capture_begin(r->stream);
    NCCL(ncclAllGather(g->send, g->recv, g->shard, ncclInt8, r->comm, r->stream));
    parents.graph = graph_executable(capture_end(r->stream));
}

static void free_all(void)
{
    CUDA(cudaGraphExecDestroy(parents.graph));
    NCCL(ncclCommDeregister(parents.comm, parents.registered));
    BLAS(cublasDestroy(parents.blas));
    CUDA(cudaEventDestroy(parents.event));
    CUDA(cudaStreamDestroy(parents.other));
    CUDA(cudaFree(parents.plain));
    CUDA(cudaFree(parents.product));
}

/* What a child has done to the communicator is told within two looks at it. */
static void expect_alive(const struct rank *r, int kind)
{
    ncclResult_t state = ncclSuccess;
    if (kind < CHILD_ENDS_ALL)
        return;
    sleep_ms(150);
    NCCL(ncclCommGetAsyncError(r->comm, &state));
    EXPECT(state == ncclSuccess, "rank %d: with child %d the communicator has failed: %d", r->rank, kind, (int)state);
    if (state != ncclSuccess)
        exit(1);
}

static void body(struct rank *r)
{
    char text[4096];
    struct gather g;
    rank_open(r);
    gather_alloc(&g, r->rank, r->nranks, SHARD);
    have_all(r, &g);
    /* Each kind from both ranks. */
    for (int i = 0; i < 2 * CHILD_KINDS; i++) {
        const int kind = (i + r->rank * CHILD_KINDS / 2) % CHILD_KINDS;
        uint64_t seed = (uint64_t)i + 1;
        gather_load(&g, seed, r->stream);
        if (i % r->nranks == r->rank)
            hold(r->stream, 30);
        if (i % 3 == 2)
            CUDA(cudaGraphLaunch(parents.graph, r->stream));
        else
            gather_call(&g, r->comm, r->stream);
        int status = run_child((enum kind)kind, text, sizeof text);
        EXPECT(status == 0, "rank %d: child %d ended with %#x", r->rank, kind, (unsigned)status);
        if (kind == CHILD_SOLO)
            drop_closing_line(text);
        EXPECT(!strcmp(text, expected[kind]), "rank %d: child %d wrote \"%s\"", r->rank, kind, text);
        expect_alive(r, kind);
        gather_check(&g, seed, r->stream, "with a child");
    }
    free_all();
    gather_free(&g);
    rank_close(r);
}

static int solo(void)
{
    struct gather g[2];
    ncclComm_t comm[2];
    cudaStream_t s[2];
    NCCL(ncclCommInitAll(comm, 2, NULL));
    for (int d = 0; d < 2; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamCreate(&s[d]));
        gather_alloc(&g[d], d, 2, SHARD);
        gather_load(&g[d], 9, s[d]);
    }
    for (int i = 0; i < 2; i++) {
        NCCL(ncclGroupStart());
        for (int d = 0; d < 2; d++)
            gather_call(&g[d], comm[d], s[d]);
        NCCL(ncclGroupEnd());
    }
    for (int d = 0; d < 2; d++) {
        CUDA(cudaSetDevice(d));
        gather_check(&g[d], 9, s[d], "solo");
        NCCL(ncclCommDestroy(comm[d]));
    }
    puts("solo");
    return wrong_count() ? 1 : 0;
}

int main(int argc, char **argv)
{
    return argc > 1 && !strcmp(argv[1], "solo") ? solo() : forms_run(2, 60, body, NULL);
}
