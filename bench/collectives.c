/* SPDX-License-Identifier: Apache-2.0 */
/* The five collectives that NCCL tunes, again and again, each checked: for `slipring tune`, its
 * table, and tests of NCCL plugins. A plain NCCL program that knows nothing of slipring. Rank 0
 * prints the median time of each, by events. */
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/programs/ranks.h"

#define OPTIONS_FILE "bench/collectives.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { FUNCS = 5, MOST_SIZES = 16 };
static const char *const names[FUNCS] = {"allgather", "allreduce", "broadcast", "reduce", "reducescatter"};
enum func { ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER };

/* What the lists among the options say. */
struct plan {
    struct options options;
    bool func[FUNCS];
    size_t bytes[MOST_SIZES];
    int sizes;
};

struct work {
    struct rank *r;
    const struct options *o;
    const struct plan *plan;
    float *send, *recv, *host;
    size_t largest; /* elements of the larger side */
    cudaEvent_t begin, end;
    float *ms; /* [func][size][round] */
    /* The pending GEMM. */
    cublasHandle_t blas;
    cudaStream_t side;
    float *matrix;
    _Atomic int released;
    int gemms;
};

#define MATRIX 64

static float *slot(const struct work *w, int f, int s, int round)
{
    return &w->ms[((size_t)f * (size_t)w->plan->sizes + (size_t)s) * (size_t)w->o->rounds + (size_t)round];
}

/* What a rank sends in a round: one small whole number, so that sums are exact. */
static float value(int rank, int round)
{
    return (float)(rank + 1 + round % 13);
}

static float sum(int nranks, int round)
{
    float total = 0;
    for (int r = 0; r < nranks; r++)
        total += value(r, round);
    return total;
}

/* Elements that this rank sends and receives, of `all` on the larger side. */
static void extents(const struct work *w, enum func f, size_t all, size_t *send, size_t *recv)
{
    size_t part = all / (size_t)w->r->nranks;
    *send = f == ALL_GATHER ? part : f == REDUCE_SCATTER ? part * (size_t)w->r->nranks : all;
    *recv = f == ALL_GATHER ? part * (size_t)w->r->nranks : f == REDUCE_SCATTER ? part : all;
}

static void call(struct work *w, enum func f, size_t all)
{
    struct rank *r = w->r;
    size_t part = all / (size_t)r->nranks;
    switch (f) {
    case ALL_GATHER:
        NCCL(ncclAllGather(w->send, w->recv, part, ncclFloat, r->comm, r->stream));
        break;
    case ALL_REDUCE:
        NCCL(ncclAllReduce(w->send, w->recv, all, ncclFloat, ncclSum, r->comm, r->stream));
        break;
    case BROADCAST:
        NCCL(ncclBroadcast(w->send, w->recv, all, ncclFloat, 0, r->comm, r->stream));
        break;
    case REDUCE:
        NCCL(ncclReduce(w->send, w->recv, all, ncclFloat, ncclSum, 0, r->comm, r->stream));
        break;
    case REDUCE_SCATTER:
        NCCL(ncclReduceScatter(w->send, w->recv, part, ncclFloat, ncclSum, r->comm, r->stream));
        break;
    }
}

static float expected(const struct work *w, enum func f, size_t i, size_t all, int round)
{
    size_t part = all / (size_t)w->r->nranks;
    return f == ALL_GATHER  ? value((int)(i / part), round)
           : f == BROADCAST ? value(0, round)
                            : sum(w->r->nranks, round);
}

static void fill(struct work *w, size_t n, int round)
{
    for (size_t i = 0; i < n; i++)
        w->host[i] = value(w->r->rank, round);
    CUDA(cudaMemcpyAsync(w->send, w->host, n * sizeof(float), cudaMemcpyHostToDevice, w->r->stream));
    CUDA(cudaMemsetAsync(w->recv, 0xff, w->largest * sizeof(float), w->r->stream));
    CUDA(cudaStreamSynchronize(w->r->stream));
}

static void check(struct work *w, enum func f, size_t all, int round)
{
    size_t send, recv;
    extents(w, f, all, &send, &recv);
    if (f == REDUCE && w->r->rank != 0)
        return;
    CUDA(cudaMemcpyAsync(w->host, w->recv, recv * sizeof(float), cudaMemcpyDeviceToHost, w->r->stream));
    CUDA(cudaStreamSynchronize(w->r->stream));
    for (size_t i = 0; i < recv; i++)
        CHECK(w->host[i] == expected(w, f, i, all, round),
              "rank %d, %s of %zu bytes, round %d: element %zu is %g, not %g", w->r->rank, names[f],
              all * sizeof(float), round, i, (double)w->host[i], (double)expected(w, f, i, all, round));
}

/* Holds the side stream until the all-gather has been called: the GEMM behind it can not be over by
 * then. */
static void hold(void *p)
{
    struct work *w = p;
    time_t end = time(NULL) + 3; /* whatever the driver does meanwhile, it goes on */
    while (!w->released && time(NULL) < end)
        sched_yield();
}

static void gemm_on_side(struct work *w)
{
    const float one = 1, zero = 0;
    float *a = w->matrix, *b = a + MATRIX * MATRIX, *c = b + MATRIX * MATRIX;
    BLAS(cublasSgemm(w->blas, CUBLAS_OP_N, CUBLAS_OP_N, MATRIX, MATRIX, MATRIX, &one, a, MATRIX, b, MATRIX, &zero, c,
                     MATRIX));
}

static void pend_gemm(struct work *w)
{
    w->released = 0;
    CUDA(cudaLaunchHostFunc(w->side, hold, w));
    gemm_on_side(w);
}

static void one_call(struct work *w, enum func f, int s, int round)
{
    size_t all = w->plan->bytes[s] / sizeof(float), send, recv;
    bool checked = round < 2 || round % 16 == 0 || round == w->o->rounds - 1;
    bool gemm = f == ALL_GATHER && round >= 2 && w->gemms < w->o->gemm; /* kernels are loaded by then */
    float *ms = slot(w, (int)f, s, round);
    extents(w, f, all, &send, &recv);
    if (checked)
        fill(w, send, round);
    if (gemm)
        pend_gemm(w);
    CUDA(cudaEventRecord(w->begin, w->r->stream));
    call(w, f, all);
    CUDA(cudaEventRecord(w->end, w->r->stream));
    if (gemm) {
        w->released = 1;
        w->gemms++;
        CUDA(cudaStreamSynchronize(w->side));
    }
    CUDA(cudaEventSynchronize(w->end));
    CUDA(cudaEventElapsedTime(ms, w->begin, w->end));
    if (checked)
        check(w, f, all, round);
}

/* All of a round in one group, on one stream; only that they work is seen. */
static void grouped(struct work *w, int s, int round)
{
    size_t all = w->plan->bytes[s] / sizeof(float);
    (void)round;
    NCCL(ncclGroupStart());
    for (int f = 0; f < FUNCS; f++)
        if (w->plan->func[f])
            call(w, (enum func)f, all);
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(w->r->stream));
}

static void run_all(struct work *w)
{
    for (int round = 0; round < w->o->rounds; round++)
        for (int s = 0; s < w->plan->sizes; s++) {
            for (int f = 0; f < FUNCS && !w->o->group; f++)
                if (w->plan->func[f])
                    one_call(w, (enum func)f, s, round);
            if (w->o->group)
                grouped(w, s, round);
        }
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void print(struct work *w)
{
    for (int f = 0; f < FUNCS; f++)
        for (int s = 0; s < w->plan->sizes && w->plan->func[f]; s++) {
            float *list = slot(w, f, s, 0);
            qsort(list, (size_t)w->o->rounds, sizeof *list, ascending);
            printf("%-13s %10zu bytes  median %10.1f us\n", names[f], w->plan->bytes[s],
                   (double)list[w->o->rounds / 2] * 1e3);
        }
}

static void open_gemm(struct work *w)
{
    if (!w->o->gemm)
        return;
    CUDA(cudaStreamCreateWithFlags(&w->side, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&w->matrix, 3 * MATRIX * MATRIX * sizeof(float)));
    CUDA(cudaMemset(w->matrix, 0, 3 * MATRIX * MATRIX * sizeof(float)));
    BLAS(cublasCreate(&w->blas));
    BLAS(cublasSetStream(w->blas, w->side));
    CUDA(cudaDeviceSynchronize());
    gemm_on_side(w);
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    const struct options *o = &p->options;
    struct work w = {.r = r, .o = o, .plan = p};
    char host[64];
    if (o->one_gpu) { /* NCCL 2.28 refuses two ranks on one GPU of one host */
        snprintf(host, sizeof host, "collectives-rank-%d", r->rank);
        setenv("NCCL_HOSTID", host, 1);
        CUDA(cudaSetDevice(0));
    }
    rank_open(r);
    for (int s = 0; s < p->sizes; s++)
        w.largest = p->bytes[s] / sizeof(float) > w.largest ? p->bytes[s] / sizeof(float) : w.largest;
    CUDA(cudaMalloc((void **)&w.send, w.largest * sizeof(float)));
    CUDA(cudaMalloc((void **)&w.recv, w.largest * sizeof(float)));
    CUDA(cudaMemset(w.send, 0, w.largest * sizeof(float)));
    w.host = malloc(w.largest * sizeof(float));
    w.ms = calloc((size_t)FUNCS * (size_t)p->sizes * (size_t)o->rounds, sizeof *w.ms);
    CHECK(w.host && w.ms, "no memory");
    CUDA(cudaEventCreate(&w.begin));
    CUDA(cudaEventCreate(&w.end));
    open_gemm(&w);
    CUDA(cudaDeviceSynchronize()); /* the fills are on a stream that does not wait for them */
    run_all(&w);
    if (r->rank == 0 && !o->group)
        print(&w);
    if (w.blas) {
        BLAS(cublasDestroy(w.blas));
        CUDA(cudaStreamDestroy(w.side));
        CUDA(cudaFree(w.matrix));
    }
    CUDA(cudaEventDestroy(w.begin));
    CUDA(cudaEventDestroy(w.end));
    CUDA(cudaFree(w.send));
    CUDA(cudaFree(w.recv));
    free(w.host);
    free(w.ms);
    rank_close(r);
}

static bool parse_bytes(struct plan *p)
{
    const char *text = p->options.bytes;
    char *end = NULL;
    for (p->sizes = 0; p->sizes < MOST_SIZES; text = end + 1) {
        p->bytes[p->sizes] = strtoull(text, &end, 10);
        if (end == text || p->bytes[p->sizes] < sizeof(float) * (size_t)p->options.ranks || (*end && *end != ','))
            return false;
        p->sizes++;
        if (!*end)
            return true;
    }
    return false;
}

static bool parse_funcs(struct plan *p)
{
    const char *text = p->options.func;
    for (size_t n; *text; text += n + (text[n] == ',')) {
        int f = 0;
        n = strcspn(text, ",");
        while (f < FUNCS && (strlen(names[f]) != n || strncmp(names[f], text, n) != 0))
            f++;
        if (f == FUNCS)
            return false;
        p->func[f] = true;
    }
    return true;
}

/* Of "RANK:...": what stands behind the colon, when it is for this rank. */
static char *for_rank(char *word, int rank)
{
    char *colon = strchr(word, ':');
    return colon && atoi(word) == rank ? colon + 1 : NULL;
}

static bool all_have(const struct words *w, const char *what)
{
    for (size_t i = 0; i < w->count; i++)
        if (!strchr(w->word[i], ':') || !strstr(w->word[i], what))
            return false;
    return true;
}

static struct plan plan;

/* Before anything of CUDA or NCCL runs in the rank. */
static void begin(int rank)
{
    const struct options *o = &plan.options;
    for (size_t i = 0; i < o->rank_env.count; i++)
        if (for_rank(o->rank_env.word[i], rank))
            putenv(for_rank(o->rank_env.word[i], rank));
    for (size_t i = 0; i < o->rank_folder.count; i++)
        if (for_rank(o->rank_folder.word[i], rank) && chdir(for_rank(o->rank_folder.word[i], rank)) != 0)
            perror(o->rank_folder.word[i]);
}

int main(int argc, char **argv)
{
    struct options *o = &plan.options;
    int rest = options_parse(option_rows, OPTIONS_FIRST, o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    if (!parse_bytes(&plan))
        return options_wrong(option_rows, "--bytes: up to %d sizes, each at least a float for each rank, not %s",
                             MOST_SIZES, o->bytes);
    if (!parse_funcs(&plan))
        return options_wrong(option_rows, "--func: names parted by commas, not %s", o->func);
    if (!all_have(&o->rank_env, "=") || !all_have(&o->rank_folder, ":"))
        return options_wrong(option_rows, "--rank-env takes RANK:NAME=VALUE, --rank-folder RANK:FOLDER");
    if (o->one_gpu) {
        setenv("NCCL_NET", "Socket", 0);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    }
    ranks_begin = begin;
    return ranks_run((int)o->ranks, (int)o->seconds, body, &plan);
}
