/* SPDX-License-Identifier: Apache-2.0 */
/* A gathered matrix and the GEMM that consumes it, checked element by element against integer arithmetic.
 *
 *   fuse RANKS CASE        CASE is a name of the table below, or "list"
 *
 * The gathered matrix X has `cols` columns of k elements on each rank. Forms: B/N  C = W' X (split by columns), A/T  C
 * = X' W (split by rows), and the two that sum over the gathered dimension: B/T  C = W' X' and A/N  C = X W, W having
 * as many rows as X has columns. Three rounds with new data on the same buffers: a late or early read shows.
 */
#include "fuse.h"

#include <string.h>

/* Its form with edges has a name of its own before CUDA 13. */
#if CUDART_VERSION < 13000
#define capture_info cudaStreamGetCaptureInfo_v3
#else
#define capture_info cudaStreamGetCaptureInfo
#endif

/* name, api, form, cols, other, k, pad, beta, between, default stream, in place, C in send, other stream, W across */
static const struct gemm_case cases[] = {
    {"bn", API_EX_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"at", API_EX_BF16, FORM_AT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bn-odd", API_EX_BF16, FORM_BN, 7, 33, 51, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"at-odd", API_S, FORM_AT, 7, 33, 51, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bn-beta", API_S, FORM_BN, 16, 40, 64, 0, 2, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"at-beta", API_EX_BF16, FORM_AT, 16, 40, 64, 0, 2, BETWEEN_NOTHING, 0, 1, 0, 0, 0},
    {"bn-in-place", API_EX_FP16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 1, 0, 0, 0},
    {"bn-64", API_EX64_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"sgemm", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"sgemm-64", API_S64, FORM_AT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"dgemm", API_D, FORM_AT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"hgemm", API_H, FORM_BN, 24, 40, 64, 0, 2, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"strided-batch-1", API_SB_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"strided-batch-2", API_SB2_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bn-shared", API_SB4_B_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"at-shared", API_SB4_A_BF16, FORM_AT, 7, 36, 51, 0, 2, BETWEEN_NOTHING, 0, 1, 0, 0, 0},
    {"bn-shared-beta", API_SB4_B_BF16, FORM_BN, 7, 36, 51, 0, 2, BETWEEN_NOTHING, 0, 0, 0, 1, 0},
    {"an-shared-add", API_SB4_A_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bt-shared-add", API_SB4_B_BF16, FORM_BT, 7, 36, 51, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"shared-c-in-send", API_SB4_B_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 1, 0, 0},
    {"tf32", API_EX_TF32, FORM_AT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"device-scalars", API_EX_DEVICE, FORM_BN, 24, 40, 64, 0, 2, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"default-stream", API_EX_BF16, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 1, 0, 0, 0, 0},
    {"pad", API_EX_BF16, FORM_BN, 24, 40, 64, 8, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"uneven", API_S, FORM_BN, 0, 40, 63, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"b-transposed", API_S, FORM_BT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"a-plain", API_S, FORM_AN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bt-add", API_EX_BF16, FORM_BT, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"bt-add-across", API_EX_BF16, FORM_BT, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 1, 0, 0, 1},
    {"an-add", API_EX_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"an-add-across", API_EX_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"bt-add-odd", API_EX_FP16, FORM_BT, 7, 33, 51, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"an-add-odd", API_S, FORM_AN, 7, 33, 51, 0, 1, BETWEEN_NOTHING, 0, 1, 0, 0, 1},
    {"an-add-64", API_EX64_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"an-add-batch-1", API_SB_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"bt-add-tf32", API_EX_TF32, FORM_BT, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"an-add-dgemm", API_D, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 1, 0, 0, 0, 0},
    {"an-add-other-stream", API_EX_BF16, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 1, 1},
    {"an-add-large", API_EX_BF16, FORM_AN, 96, 64, 1024, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"an-add-beside", API_EX_BF16, FORM_AN, 96, 64, 1024, 0, 1, BETWEEN_LARGE_GEMM, 0, 0, 0, 0, 1},
    {"an-add-beside-small", API_EX_BF16, FORM_AN, 96, 64, 1024, 0, 1, BETWEEN_OTHER_GEMM, 0, 0, 0, 0, 1},
    {"bt-add-large", API_S, FORM_BT, 96, 64, 1024, 0, 1, BETWEEN_NOTHING, 0, 1, 0, 0, 1},
    {"an-beta-2", API_EX_BF16, FORM_AN, 24, 40, 64, 0, 2, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"bt-beta-0", API_S, FORM_BT, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 1},
    {"an-add-hgemm", API_H, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"an-add-device", API_EX_DEVICE, FORM_AN, 24, 40, 64, 0, 1, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"an-c-in-send", API_S, FORM_AN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 1, 0, 0},
    {"memset-between", API_EX_BF16, FORM_BN, 24, 40, 64, 0, 2, BETWEEN_MEMSET_C, 0, 0, 0, 0, 0},
    {"copy-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_COPY_RECV, 0, 0, 0, 0, 0},
    {"event-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_EVENT, 0, 0, 0, 0, 0},
    {"sync-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_SYNC, 0, 0, 0, 0, 0},
    {"other-gemm-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_OTHER_GEMM, 0, 0, 0, 0, 0},
    {"reading-gemm-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_READING_GEMM, 0, 0, 0, 0, 0},
    {"c-in-send", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 1, 0, 0},
    {"c-in-send-other-stream", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 1, 1, 0},
    {"question-between", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_QUESTION, 0, 0, 0, 0, 0},
    {"c-in-send-written", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_SENDING_GEMM, 0, 0, 1, 0, 0},
    {"other-stream", API_S, FORM_BN, 24, 40, 64, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 1, 0},
    {"large", API_S, FORM_BN, 96, 64, 1024, 0, 0, BETWEEN_NOTHING, 0, 0, 0, 0, 0},
    {"large-at", API_EX_BF16, FORM_AT, 96, 64, 1024, 0, 2, BETWEEN_NOTHING, 0, 1, 0, 0, 0},
};

enum { LARGE = 1152 }; /* the sizes of a large GEMM */
enum { FIRST = 1000 }; /* the first round's seed */

struct shape {
    int64_t total, ld;   /* columns of the gathered matrix; its leading dimension */
    size_t count, shard; /* elements and bytes of one rank's shard */
    int64_t m, n, k;     /* of the GEMM */
};

struct memory {
    char *send, *recv, *weight, *c;    /* device; C may lie in `send` */
    char *side;                        /* a copy of recv, for BETWEEN_COPY_RECV */
    size_t gathered, weights, outputs; /* bytes */
};

/* For the plain forms the gathered memory is read as an inner x k' matrix of the same bytes. */
static struct shape shape_of(const struct gemm_case *c, int nranks)
{
    struct shape s = {.k = c->k, .ld = c->k + c->pad};
    s.total = c->cols ? c->cols * nranks : 2 * nranks;
    s.count = (size_t)(c->cols ? c->cols : 2) * (size_t)s.ld;
    if (!c->cols) { /* k x total elements in all, but total does not divide by the ranks */
        s.total = 2 * nranks - 1;
        s.count = (size_t)(s.k * s.total + nranks - 1) / (size_t)nranks;
    }
    s.shard = s.count * api_elem(c->api);
    bool plain = c->form == FORM_BT || c->form == FORM_AN;
    int64_t along = plain ? s.ld : s.total;
    s.m = c->form == FORM_BN || c->form == FORM_BT ? c->other : along;
    s.n = c->form == FORM_BN || c->form == FORM_BT ? along : c->other;
    if (plain)
        s.k = s.total;
    return s;
}

static int x_at(uint64_t seed, const struct shape *s, size_t i)
{
    return small(seed + i / s->count, i % s->count);
}

/* The elements of the gathered matrix and of the weights, each made once. */
struct operands {
    int8_t *x, *w;
};

static struct operands make_operands(const struct gemm_case *c, const struct shape *s, size_t gathered, uint64_t seed)
{
    size_t weights = (size_t)(c->other * s->k);
    struct operands o = {.x = malloc(gathered), .w = malloc(weights)};
    CHECK(o.x && o.w, "no memory");
    for (size_t i = 0; i < gathered; i++)
        o.x[i] = (int8_t)x_at(seed, s, i);
    for (size_t i = 0; i < weights; i++)
        o.w[i] = (int8_t)small(seed + 77, i);
    return o;
}

UNWATCHED static double expected(const struct gemm_case *c, const struct shape *s, const struct operands *o,
                                 int64_t row, int64_t col, double old)
{
    bool x_is_b = c->form == FORM_BN || c->form == FORM_BT, plain = c->form == FORM_BT || c->form == FORM_AN;
    int64_t along = x_is_b ? col : row, step = plain ? s->ld : 1;
    int64_t across = x_is_b ? row : col, w_step = c->w_across ? c->other : 1;
    const int8_t *x = o->x + (plain ? along : along * s->ld), *w = o->w + (c->w_across ? across : across * s->k);
    int sum = 0;
    for (int64_t p = 0; p < s->k; p++)
        sum += x[p * step] * w[p * w_step];
    return (double)sum + c->beta * old;
}

static double old_c(const struct gemm_case *c, uint64_t seed, size_t i)
{
    return c->between == BETWEEN_MEMSET_C ? 0 : small(seed + 99, i);
}

static void check_c(const struct rank *r, const struct gemm_case *c, const struct shape *s, uint64_t seed,
                    const void *host)
{
    struct operands o = make_operands(c, s, s->count * (size_t)r->nranks, seed);
    for (int64_t col = 0; col < s->n; col++)
        for (int64_t row = 0; row < s->m; row++) {
            size_t i = (size_t)(col * s->m + row);
            double want = expected(c, s, &o, row, col, c->beta != 0 ? old_c(c, seed, i) : 0),
                   have = get(c->api, host, i);
            CHECK(want == have, "rank %d: %s: C(%ld,%ld) is %g, expected %g", r->rank, c->name, (long)row, (long)col,
                  have, want);
        }
    free(o.x);
    free(o.w);
}

static void upload(enum api api, char *device, size_t n, uint64_t seed, bool is_c, cudaStream_t stream)
{
    size_t elem = is_c ? api_elem_c(api) : api_elem(api);
    char *host = malloc(n * elem);
    for (size_t i = 0; i < n; i++)
        put(api, host, i, small(seed, i), is_c);
    CUDA(cudaMemcpyAsync(device, host, n * elem, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(host);
}

static void load(const struct rank *r, const struct gemm_case *c, const struct shape *s, const struct memory *mem,
                 uint64_t seed)
{
    CUDA(cudaMemsetAsync(mem->recv, 0x7f, mem->gathered, r->stream));
    char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard : mem->send;
    upload(c->api, send, s->count, seed + (uint64_t)r->rank, false, r->stream);
    upload(c->api, mem->weight, (size_t)(c->other * s->k), seed + 77, false, r->stream);
    if (!c->c_in_send)
        upload(c->api, mem->c, (size_t)(s->m * s->n), seed + 99, true, r->stream);
}

static void do_between(const struct rank *r, const struct gemm_case *c, const struct shape *s, const struct memory *mem,
                       cublasHandle_t h, bool first)
{
    cudaEvent_t ev;
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *behind;
    cudaGraph_t graph;
    size_t n;
    switch (c->between) {
    case BETWEEN_MEMSET_C:
        CUDA(cudaMemsetAsync(mem->c, 0, mem->outputs, r->stream));
        break;
    case BETWEEN_COPY_RECV:
        CUDA(cudaMemcpyAsync(mem->side, mem->recv, mem->gathered, cudaMemcpyDeviceToDevice, r->stream));
        break;
    case BETWEEN_EVENT:
        CUDA(cudaEventCreate(&ev));
        CUDA(cudaEventRecord(ev, r->stream));
        CUDA(cudaEventSynchronize(ev));
        CUDA(cudaMemcpy(mem->side, mem->recv, mem->gathered, cudaMemcpyDeviceToDevice));
        CUDA(cudaEventDestroy(ev));
        break;
    case BETWEEN_SYNC:
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaMemcpy(mem->side, mem->recv, mem->gathered, cudaMemcpyDeviceToDevice));
        break;
    case BETWEEN_OTHER_GEMM:
        gemm(c->api, h, false, false, 4, 4, 4, mem->weight, 4, mem->weight, 4, 0, mem->side, 4);
        break;
    case BETWEEN_LARGE_GEMM:
        gemm(c->api, h, false, false, LARGE, LARGE, LARGE, mem->side, LARGE, mem->side, LARGE, 0,
             mem->side + LARGE * LARGE * sizeof(double), LARGE);
        break;
    case BETWEEN_READING_GEMM:
        gemm(c->api, h, false, false, 4, 4, 4, mem->weight, 4, mem->recv + 64, 4, 0, mem->side, 4);
        break;
    case BETWEEN_SENDING_GEMM:
        if (!first)
            gemm(c->api, h, false, false, 4, 4, 4, mem->weight, 4, mem->weight, 4, 0, mem->send, 4);
        break;
    case BETWEEN_QUESTION:
        CUDA(capture_info(r->stream, &status, NULL, &graph, &behind, NULL, &n));
        break;
    case BETWEEN_NOTHING:
        break;
    }
    (void)s;
}

static void check_side(const struct rank *r, const struct gemm_case *c, const struct shape *s, const struct memory *mem,
                       uint64_t seed)
{
    if (c->between != BETWEEN_COPY_RECV && c->between != BETWEEN_EVENT && c->between != BETWEEN_SYNC)
        return;
    char *host = malloc(mem->gathered), *want = malloc(mem->gathered);
    CUDA(cudaMemcpy(host, mem->side, mem->gathered, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < s->count * (size_t)r->nranks; i++)
        put(c->api, want, i, x_at(seed, s, i), false);
    CHECK(!memcmp(host, want, mem->gathered), "rank %d: %s: what stood between saw an incomplete gather", r->rank,
          c->name);
    free(host);
    free(want);
}

static ncclDataType_t nccl_type(enum api api)
{
    return api == API_D                  ? ncclFloat64
           : api_type(api) == CUDA_R_32F ? ncclFloat32
           : api_type(api) == CUDA_R_16F ? ncclFloat16
                                         : ncclBfloat16;
}

static void multiply(const struct gemm_case *c, const struct shape *s, const struct memory *mem, cublasHandle_t h)
{
    bool x_is_b = c->form == FORM_BN || c->form == FORM_BT;
    int64_t ldw = c->w_across ? c->other : s->k;
    if (x_is_b)
        gemm(c->api, h, !c->w_across, c->form == FORM_BT, s->m, s->n, s->k, mem->weight, ldw, mem->recv, s->ld, c->beta,
             mem->c, s->m);
    else
        gemm(c->api, h, c->form == FORM_AT, c->w_across, s->m, s->n, s->k, mem->recv, s->ld, mem->weight, ldw, c->beta,
             mem->c, s->m);
}

static void round_of(const struct rank *r, const struct gemm_case *c, const struct shape *s, const struct memory *mem,
                     cublasHandle_t h, cudaStream_t compute, uint64_t seed)
{
    load(r, c, s, mem, seed);
    const char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard : mem->send;
    NCCL(ncclAllGather(send, mem->recv, s->count, nccl_type(c->api), r->comm, r->stream));
    do_between(r, c, s, mem, h, seed == FIRST);
    if (c->streams_cross) {
        cudaEvent_t ev;
        CUDA(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
        CUDA(cudaEventRecord(ev, r->stream));
        CUDA(cudaStreamWaitEvent(compute, ev, 0));
        CUDA(cudaEventDestroy(ev));
    }
    multiply(c, s, mem, h);
    char *host = malloc(mem->outputs);
    CUDA(cudaMemcpyAsync(host, mem->c, mem->outputs, cudaMemcpyDeviceToHost, compute));
    CUDA(cudaStreamSynchronize(compute));
    check_c(r, c, s, seed, host);
    check_side(r, c, s, mem, seed);
    free(host);
    /* Peers still read this rank's shard while it goes on: new data must not reach them early. */
}

static struct memory allocate(const struct rank *r, const struct gemm_case *c, const struct shape *s)
{
    struct memory mem = {.gathered = s->shard * (size_t)r->nranks};
    mem.weights = (size_t)(c->other * s->k) * api_elem(c->api);
    mem.outputs = (size_t)(s->m * s->n) * api_elem_c(c->api);
    CUDA(cudaMalloc((void **)&mem.recv, mem.gathered));
    const size_t side = c->between == BETWEEN_LARGE_GEMM ? 2 * LARGE * LARGE * sizeof(double) : mem.gathered;
    CUDA(cudaMalloc((void **)&mem.side, side));
    CUDA(cudaMemset(mem.side, 0, side));
    CUDA(cudaMalloc((void **)&mem.weight, mem.weights));
    CUDA(cudaMalloc((void **)&mem.send, s->shard + mem.outputs));
    if (c->c_in_send)
        mem.c = mem.send;
    else
        CUDA(cudaMalloc((void **)&mem.c, mem.outputs));
    return mem;
}

static void body(struct rank *r)
{
    const struct gemm_case *c = r->arg;
    struct shape s = shape_of(c, r->nranks);
    rank_open(r);
    cudaStream_t own = r->stream, compute = own;
    if (c->default_stream)
        r->stream = compute = NULL;
    if (c->streams_cross)
        CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    struct memory mem = allocate(r, c, &s);
    cublasHandle_t h;
    BLAS(cublasCreate(&h));
    BLAS(cublasSetStream(h, compute));
    gemm_prepare(c->api, h, c->beta);
    for (uint64_t round = 0; round < 3; round++)
        round_of(r, c, &s, &mem, h, compute, FIRST + 500 * round);
    BLAS(cublasDestroy(h));
    CUDA(cudaFree(mem.recv));
    CUDA(cudaFree(mem.side));
    CUDA(cudaFree(mem.weight));
    if (!c->c_in_send)
        CUDA(cudaFree(mem.c));
    CUDA(cudaFree(mem.send));
    r->stream = own;
    rank_close(r);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc == 2 && !strcmp(argv[1], "list"))
            puts(cases[i].name);
        else if (argc == 3 && n >= 1 && n <= 64 && !strcmp(argv[2], cases[i].name))
            return ranks_run(n, 60, body, (void *)(uintptr_t)&cases[i]);
    }
    if (argc == 2 && !strcmp(argv[1], "list"))
        return 0;
    fprintf(stderr, "usage: fuse RANKS CASE | fuse list\n");
    return 2;
}
