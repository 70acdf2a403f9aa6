/* SPDX-License-Identifier: Apache-2.0 */
/* A plain NCCL, cuBLAS and cudart program in a steady state, whose calls bench/gather_calls counts. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/programs/ranks.h"

#define OPTIONS_FILE "bench/call_forms.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { ROWS = 64, OUT = 16, QUEUED = 8, EVENTS = 4 };
enum { LEAST = 4 << 20 };    /* bytes of an allocation: large enough for slipring to know it */
enum { ALONE, GEMM, EVENT }; /* the choices of --form */

/* What a tool is told to look at: not merged, not inlined. */
#ifdef __clang__
#define COUNTED __attribute__((noinline)) static void
#else
#define COUNTED __attribute__((noinline, noclone)) static void
#endif

struct step {
    struct rank *r;
    const struct options *o;
    float *send, *recv, *weight, *out, *scratch;
    cublasHandle_t blas;
    cudaStream_t side; /* of the gather; the rank's stream is the GEMM's */
    cudaEvent_t before[EVENTS], behind[EVENTS];
    unsigned number;
};

/* The event that the watching thread asks for, as PyTorch's watchdog does. */
static _Atomic(cudaEvent_t) watched;
static _Atomic bool over;

COUNTED counted_gather(struct step *s)
{
    NCCL(ncclAllGather(s->send, s->recv, (size_t)s->o->columns * ROWS, ncclFloat32, s->r->comm, s->side));
}

COUNTED counted_record(cudaEvent_t event, cudaStream_t stream)
{
    CUDA(cudaEventRecord(event, stream));
}

COUNTED counted_wait(cudaStream_t stream, cudaEvent_t event)
{
    CUDA(cudaStreamWaitEvent(stream, event, 0));
}

/* PyTorch asks before each collective, and its allocator for the events of what other streams have
 * used. */
COUNTED counted_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    CUDA(cudaStreamIsCapturing(stream, &status));
}

COUNTED counted_query(cudaEvent_t event)
{
    cudaError_t e = cudaEventQuery(event);
    if (e != cudaSuccess && e != cudaErrorNotReady)
        CUDA(e);
}

/* Something else on the GEMM's stream while the gather is on its way. */
COUNTED counted_other(struct step *s)
{
    CUDA(cudaMemsetAsync(s->scratch, 0, sizeof(float), s->r->stream));
}

COUNTED counted_gemm(struct step *s)
{
    const float one = 1, zero = 0;
    const int columns = (int)s->o->columns * s->r->nranks;
    BLAS(cublasGemmEx(s->blas, CUBLAS_OP_T, CUBLAS_OP_N, OUT, columns, ROWS, &one, s->weight, CUDA_R_32F, ROWS, s->recv,
                      CUDA_R_32F, ROWS, &zero, s->out, CUDA_R_32F, OUT, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static void event_form(struct step *s, cudaEvent_t before, cudaEvent_t behind)
{
    counted_capturing(s->r->stream);
    counted_record(before, s->r->stream);
    counted_wait(s->side, before);
    counted_gather(s);
    counted_record(behind, s->side);
    atomic_store(&watched, behind);
    counted_query(behind);
    counted_other(s);
    counted_wait(s->r->stream, behind);
    if (!s->o->no_gemm)
        counted_gemm(s);
}

/* One iteration of the program. */
static void make_step(struct step *s)
{
    const unsigned at = s->number++ % EVENTS;
    if (s->o->form == EVENT) {
        event_form(s, s->before[at], s->behind[at]);
        return;
    }
    counted_gather(s);
    if (s->o->form == GEMM)
        counted_gemm(s);
}

/* What gather_calls looks for. */
COUNTED counted_steps(struct step *s)
{
    make_step(s);
}

/* No rank is far ahead of the others, and the streams are never idle. */
static void keep_step(struct step *s)
{
    if (s->number % QUEUED == 0)
        CUDA(cudaDeviceSynchronize());
}

static void *watch(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        cudaEvent_t event = atomic_load(&watched);
        if (event)
            counted_query(event);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

static void *allocate(size_t bytes)
{
    void *p = NULL;
    CUDA(cudaMalloc(&p, bytes > LEAST ? bytes : LEAST));
    CUDA(cudaMemset(p, 0, bytes));
    return p;
}

static void prepare(struct step *s)
{
    const size_t shard = (size_t)s->o->columns * ROWS * sizeof(float), all = shard * (size_t)s->r->nranks;
    s->recv = allocate(all);
    s->send = s->o->in_place ? s->recv + (size_t)s->r->rank * shard / sizeof(float) : allocate(shard);
    s->weight = allocate(ROWS * OUT * sizeof(float));
    s->scratch = allocate(sizeof(float));
    s->out = allocate(all / ROWS * OUT);
    for (int i = 0; i < EVENTS; i++) {
        CUDA(cudaEventCreateWithFlags(&s->before[i], cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&s->behind[i], cudaEventDisableTiming));
    }
    s->side = s->r->stream;
    if (s->o->form == EVENT)
        CUDA(cudaStreamCreateWithFlags(&s->side, cudaStreamNonBlocking));
    BLAS(cublasCreate(&s->blas));
    BLAS(cublasSetStream(s->blas, s->r->stream));
    CUDA(cudaDeviceSynchronize());
}

/* Until peers have mapped the buffers and places are trusted, which takes ticks and calls. */
static void settle(struct step *s)
{
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 4 * QUEUED; i++) {
            make_step(s);
            keep_step(s);
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static void body(struct rank *r)
{
    struct step s = {.r = r, .o = r->arg};
    pthread_t watcher;
    rank_open(r);
    prepare(&s);
    settle(&s);
    if (s.o->form == EVENT && pthread_create(&watcher, NULL, watch, NULL) != 0)
        DIE(3, "no thread");
    for (long i = 0; i < s.o->steps; i++) {
        counted_steps(&s);
        keep_step(&s);
    }
    atomic_store(&over, true);
    if (s.o->form == EVENT)
        pthread_join(watcher, NULL);
    CUDA(cudaDeviceSynchronize());
    BLAS(cublasDestroy(s.blas));
    rank_close(r);
}

int main(int argc, char **argv)
{
    static struct options o;
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    return ranks_run((int)o.ranks, (int)o.seconds, body, &o);
}
