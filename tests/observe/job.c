/* SPDX-License-Identifier: Apache-2.0 */
/* A job of two ranks as users have them, which goes well or badly: in each step an all-gather, and a GEMM that reads
 * what was gathered; plain NCCL and cuBLAS.
 *
 *   job WAY STEPS
 *
 *   fine      nothing is wrong
 *   slow      rank 1 computes much more before each call
 *   late      rank 1's host does something else before each call
 *   small     the gathers are of SMALL rows
 *   killed    rank 1 is killed in the middle
 *   exit      rank 1 ends by _exit
 *   no-gemm   nothing reads what was gathered
 *   graph     the steps are launches of a CUDA graph
 *
 * JOB_RANK1: NAME=VALUE in the environment of rank 1 alone. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../programs/ranks.h"

enum { RANKS = 2, COLUMNS = 128, ROWS = 512, SMALL = 256, SLOW = 8, LATE_MS = 10, WARM = 3 };

static const char *way;

static bool is_way(const char *name)
{
    return strcmp(way, name) == 0;
}

struct work {
    struct rank *r;
    cublasHandle_t blas;
    uint16_t *send, *x, *w;
    float *y;
    int rows; /* of x, which all ranks gather together */
};

static void multiply(const struct work *w)
{
    const float one = 1, zero = 0;
    BLAS(cublasGemmEx(w->blas, CUBLAS_OP_T, CUBLAS_OP_N, COLUMNS, w->rows, COLUMNS, &one, w->w, CUDA_R_16BF, COLUMNS,
                      w->x, CUDA_R_16BF, COLUMNS, &zero, w->y, CUDA_R_32F, COLUMNS, CUBLAS_COMPUTE_32F,
                      CUBLAS_GEMM_DEFAULT));
}

static void step(const struct work *w)
{
    const size_t shard = (size_t)w->rows / RANKS * COLUMNS;
    NCCL(ncclAllGather(w->send, w->x, shard, ncclBfloat16, w->r->comm, w->r->stream));
    if (!is_way("no-gemm"))
        multiply(w);
}

/* What this rank does before a step. */
static void before(const struct work *w, int i, int steps)
{
    if (w->r->rank == 0)
        return;
    if (is_way("late"))
        nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000L}, NULL);
    for (int k = 0; k < SLOW && is_way("slow"); k++)
        multiply(w);
    if (is_way("killed") && i == steps / 2)
        raise(SIGKILL);
}

/* Where a rank is killed as frameworks do: an error of the communicator ends the other one. */
static void wait_for(const struct work *w)
{
    ncclResult_t error = ncclSuccess;
    while (is_way("killed") && cudaStreamQuery(w->r->stream) == cudaErrorNotReady) {
        NCCL(ncclCommGetAsyncError(w->r->comm, &error));
        if (error != ncclSuccess) {
            NCCL(ncclCommAbort(w->r->comm));
            exit(1);
        }
    }
    CUDA(cudaStreamSynchronize(w->r->stream));
}

static void loop(const struct work *w, int steps)
{
    for (int i = 0; i < steps; i++) {
        before(w, i, steps);
        step(w);
        wait_for(w);
    }
}

static void replay(const struct work *w, int steps)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(w->r->stream, cudaStreamCaptureModeThreadLocal));
    step(w);
    CUDA(cudaStreamEndCapture(w->r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < steps; i++) {
        CUDA(cudaGraphLaunch(exec, w->r->stream));
        wait_for(w);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

static void run(struct rank *r, int steps)
{
    struct work w = {.r = r, .rows = is_way("small") ? SMALL : ROWS};
    const size_t all = (size_t)w.rows * COLUMNS;
    rank_open(r);
    BLAS(cublasCreate(&w.blas));
    BLAS(cublasSetStream(w.blas, r->stream));
    CUDA(cudaMalloc((void **)&w.send, all / RANKS * sizeof *w.send));
    CUDA(cudaMalloc((void **)&w.x, all * sizeof *w.x));
    CUDA(cudaMalloc((void **)&w.w, COLUMNS * COLUMNS * sizeof *w.w));
    CUDA(cudaMalloc((void **)&w.y, all * sizeof *w.y));
    CUDA(cudaMemset(w.send, 0, all / RANKS * sizeof *w.send));
    CUDA(cudaMemset(w.w, 0, COLUMNS * COLUMNS * sizeof *w.w));
    CUDA(cudaDeviceSynchronize());
    loop(&w, is_way("graph") ? WARM : steps);
    if (is_way("graph"))
        replay(&w, steps);
    if (is_way("exit") && r->rank == 1)
        _exit(0);
    BLAS(cublasDestroy(w.blas));
    rank_close(r);
}

/* Of a process that knows its rank; the id comes, or goes, by the pipe. */
static int be(int rank, int steps, const int pipe_fd[2])
{
    struct rank r = {.rank = rank, .nranks = RANKS};
    rank_place(rank, RANKS);
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&r.id));
        CHECK(write(pipe_fd[1], &r.id, sizeof r.id) == (ssize_t)sizeof r.id, "the id: %s", strerror(errno));
    } else {
        CHECK(read(pipe_fd[0], &r.id, sizeof r.id) == (ssize_t)sizeof r.id, "the id: %s", strerror(errno));
    }
    run(&r, steps);
    return 0;
}

/* A new program, so that LD_PRELOAD may be rank 1's own. */
static void begin(char **argv, int rank, const int pipe_fd[2])
{
    char number[3][12];
    char *own = getenv("JOB_RANK1");
    snprintf(number[0], sizeof number[0], "%d", rank);
    snprintf(number[1], sizeof number[1], "%d", pipe_fd[0]);
    snprintf(number[2], sizeof number[2], "%d", pipe_fd[1]);
    if (own && rank == 1)
        putenv(own);
    execl("/proc/self/exe", argv[0], argv[1], argv[2], number[0], number[1], number[2], (char *)NULL);
    DIE(2, "exec: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    int pipe_fd[2], status, worst = 0;
    CHECK(argc == 3 || argc == 6, "usage: job WAY STEPS");
    way = argv[1];
    if (argc == 6)
        return be(atoi(argv[3]), atoi(argv[2]), (int[]){atoi(argv[4]), atoi(argv[5])});
    CHECK(pipe(pipe_fd) == 0, "pipe: %s", strerror(errno));
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0)
            begin(argv, rank, pipe_fd);
    while (wait(&status) > 0)
        worst = status > worst ? status : worst;
    return worst != 0;
}
