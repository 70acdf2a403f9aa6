/* The five collectives that NCCL tunes, again and again, each checked: for `slipring tune`, its table, and tests of
 * NCCL plugins. A plain NCCL program that knows nothing of slipring.
 *
 *   collectives [--ranks N] [--rounds N] [--bytes N[,N]...] [--func NAME[,NAME]...] [--one-gpu] [--gemm N] [--group]
 *               [--seconds N] [--rank-env RANK:NAME=VALUE]... [--rank-folder RANK:FOLDER]...
 *
 * --bytes   of the larger side: what all ranks gather together (65536,4194304)
 * --func    of allgather, allreduce, broadcast, reduce, reducescatter (all)
 * --one-gpu all ranks share the first device: NCCL_HOSTID for each, over loopback sockets
 * --gemm N  during each of the first N all-gathers a GEMM is pending on another stream
 * --rank-env  a variable in one rank's environment alone; too late for what a library reads when it is loaded
 * --rank-folder  one rank's working directory
 * --group   each round is one group
 *
 * Rank 0 prints the median time of each, by events. Exit status: 0, 1 wrong result, 2 wrong use, 3 a call failed, 4
 * time is up. */
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/e2e/ranks.h"

enum { FUNCS = 5, MOST_SIZES = 16, MOST_ENV = 16, MOST_ROUNDS = 1 << 20 };
static const char *const names[FUNCS] = {"allgather", "allreduce", "broadcast", "reduce", "reducescatter"};
enum func { ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER };

struct options {
    int ranks, rounds, gemms, seconds;
    bool one_gpu, group, func[FUNCS];
    char *rank_env[MOST_ENV]; /* RANK:NAME=VALUE */
    int rank_envs;
    char *rank_folder[MOST_ENV]; /* RANK:FOLDER */
    int rank_folders;
    size_t bytes[MOST_SIZES];
    int sizes;
};

struct work {
    struct rank *r;
    const struct options *o;
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
    return &w->ms[((size_t)f * (size_t)w->o->sizes + (size_t)s) * (size_t)w->o->rounds + (size_t)round];
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

/* Holds the side stream until the all-gather has been called: the GEMM behind it can not be over by then. */
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
    size_t all = w->o->bytes[s] / sizeof(float), send, recv;
    bool checked = round < 2 || round % 16 == 0 || round == w->o->rounds - 1;
    bool gemm = f == ALL_GATHER && round >= 2 && w->gemms < w->o->gemms; /* kernels are loaded by then */
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
    size_t all = w->o->bytes[s] / sizeof(float);
    (void)round;
    NCCL(ncclGroupStart());
    for (int f = 0; f < FUNCS; f++)
        if (w->o->func[f])
            call(w, (enum func)f, all);
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(w->r->stream));
}

static void run_all(struct work *w)
{
    for (int round = 0; round < w->o->rounds; round++)
        for (int s = 0; s < w->o->sizes; s++) {
            for (int f = 0; f < FUNCS && !w->o->group; f++)
                if (w->o->func[f])
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
        for (int s = 0; s < w->o->sizes && w->o->func[f]; s++) {
            float *list = slot(w, f, s, 0);
            qsort(list, (size_t)w->o->rounds, sizeof *list, ascending);
            printf("%-13s %10zu bytes  median %10.1f us\n", names[f], w->o->bytes[s],
                   (double)list[w->o->rounds / 2] * 1e3);
        }
}

static void open_gemm(struct work *w)
{
    if (!w->o->gemms)
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
    const struct options *o = r->arg;
    struct work w = {.r = r, .o = o};
    char host[64];
    if (o->one_gpu) { /* NCCL 2.28 refuses two ranks on one GPU of one host */
        snprintf(host, sizeof host, "collectives-rank-%d", r->rank);
        setenv("NCCL_HOSTID", host, 1);
        CUDA(cudaSetDevice(0));
    }
    rank_open(r);
    for (int s = 0; s < o->sizes; s++)
        w.largest = o->bytes[s] / sizeof(float) > w.largest ? o->bytes[s] / sizeof(float) : w.largest;
    CUDA(cudaMalloc((void **)&w.send, w.largest * sizeof(float)));
    CUDA(cudaMalloc((void **)&w.recv, w.largest * sizeof(float)));
    CUDA(cudaMemset(w.send, 0, w.largest * sizeof(float)));
    w.host = malloc(w.largest * sizeof(float));
    w.ms = calloc((size_t)FUNCS * (size_t)o->sizes * (size_t)o->rounds, sizeof *w.ms);
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

static int bad(const char *what)
{
    fprintf(stderr, "collectives: %s: see the head of bench/collectives.c\n", what);
    return 2;
}

static bool number(const char *text, long low, long high, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    *out = (int)n;
    return *text && !*end && n >= low && n <= high;
}

static bool parse_bytes(struct options *o, const char *text)
{
    char *end = NULL;
    for (o->sizes = 0; o->sizes < MOST_SIZES; text = end + 1) {
        o->bytes[o->sizes] = strtoull(text, &end, 10);
        if (end == text || o->bytes[o->sizes] < sizeof(float) * (size_t)o->ranks || (*end && *end != ','))
            return false;
        o->sizes++;
        if (!*end)
            return true;
    }
    return false;
}

static bool parse_funcs(struct options *o, const char *text)
{
    memset(o->func, 0, sizeof o->func);
    for (size_t n; *text; text += n + (text[n] == ',')) {
        int f = 0;
        n = strcspn(text, ",");
        while (f < FUNCS && (strlen(names[f]) != n || strncmp(names[f], text, n) != 0))
            f++;
        if (f == FUNCS)
            return false;
        o->func[f] = true;
    }
    return true;
}

static bool parse_one(struct options *o, const char *arg, char *value)
{
    if (!strcmp(arg, "--ranks"))
        return number(value, 1, 64, &o->ranks);
    if (!strcmp(arg, "--rounds"))
        return number(value, 1, MOST_ROUNDS, &o->rounds);
    if (!strcmp(arg, "--gemm"))
        return number(value, 0, MOST_ROUNDS, &o->gemms);
    if (!strcmp(arg, "--seconds"))
        return number(value, 1, 3600, &o->seconds);
    if (!strcmp(arg, "--rank-env") && o->rank_envs < MOST_ENV && strchr(value, ':') && strchr(value, '=')) {
        o->rank_env[o->rank_envs++] = value;
        return true;
    }
    if (!strcmp(arg, "--rank-folder") && o->rank_folders < MOST_ENV && strchr(value, ':')) {
        o->rank_folder[o->rank_folders++] = value;
        return true;
    }
    if (!strcmp(arg, "--bytes"))
        return parse_bytes(o, value);
    return !strcmp(arg, "--func") && parse_funcs(o, value);
}

static struct options options = {.ranks = 2,
                                 .rounds = 20,
                                 .seconds = 120,
                                 .func = {true, true, true, true, true},
                                 .bytes = {65536, 4194304},
                                 .sizes = 2};

/* Before anything of CUDA or NCCL runs in the rank. */
static void begin(int rank)
{
    for (int i = 0; i < options.rank_envs; i++)
        if (atoi(options.rank_env[i]) == rank)
            putenv(strchr(options.rank_env[i], ':') + 1);
    for (int i = 0; i < options.rank_folders; i++)
        if (atoi(options.rank_folder[i]) == rank && chdir(strchr(options.rank_folder[i], ':') + 1) != 0)
            perror(options.rank_folder[i]);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--one-gpu"))
            options.one_gpu = true;
        else if (!strcmp(argv[i], "--group"))
            options.group = true;
        else if (i + 1 == argc || !parse_one(&options, argv[i], argv[i + 1]))
            return bad(argv[i]);
        else
            i++;
    }
    if (options.one_gpu) {
        setenv("NCCL_NET", "Socket", 0);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    }
    ranks_begin = begin;
    return ranks_run(options.ranks, options.seconds, body, &options);
}
