/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul on a gathered matrix, as PyTorch's linear layers call it: descriptors made for the call, the algorithm
 * of the heuristic or none.
 *
 *   fuse_lt RANKS CASE        CASE is a name of the table below, or "list"
 *
 * D = epilogue(op(A) op(B) + beta C + bias) from small integers. Forms as in fuse.c: B/N  D = W' X, A/T  D = X' W, and
 * B/T  D = W' X', A/N  D = X W, X being gathered. Checked against integer arithmetic (but for GELU), and bit by bit against the same call with nothing
 * in flight. Three rounds with new data on the same buffers.
 */
#include <cublasLt.h>
#include <string.h>
#include "fuse.h"

enum where { ELSEWHERE, IN_SEND, IN_RECV };
enum { WORKSPACE = 1 << 20, C_PAD = 3 };

struct lt_case {
    const char *name;
    enum api type; /* API_EX_BF16, API_H or API_S: bf16, fp16 or fp32 for all matrices and the bias */
    enum form form;
    int64_t cols, other, k; /* gathered columns on each rank; columns of W; rows of X, and of W in forms B/N and A/T */
    double beta;
    uint32_t epilogue; /* 0: the default one */
    bool tf32, in_place, device_scalars, default_stream;
    bool c_apart;     /* C is not D, and has another leading dimension */
    bool asked;       /* the algorithm is the heuristic's, not NULL */
    size_t workspace; /* bytes */
    int batch;        /* > 1: the columns of X in so many matrices; form B/N */
    enum where in[4]; /* of C, D, bias, workspace */
    bool between;     /* a copy of the gathered matrix before the GEMM */
};
enum { OF_C, OF_D, OF_BIAS, OF_WORKSPACE };

#define BF16 .type = API_EX_BF16
#define FP16 .type = API_H
#define FP32 .type = API_S
#define BN .form = FORM_BN
#define AT .form = FORM_AT
#define BT .form = FORM_BT
#define AN .form = FORM_AN
#define EVEN .cols = 24, .other = 40, .k = 64
#define ODD .cols = 7, .other = 33, .k = 51
#define EPI(x) .epilogue = CUBLASLT_EPILOGUE_##x
#define ASKED(bytes) .asked = true, .workspace = bytes

static const struct lt_case cases[] = {
    {"bn", BF16, BN, EVEN},
    {"at", BF16, AT, EVEN},
    {"bn-fp16", FP16, BN, EVEN, ASKED(WORKSPACE)},
    {"at-fp32", FP32, AT, EVEN, ASKED(WORKSPACE)},
    {"bn-tf32", FP32, BN, EVEN, ASKED(WORKSPACE), .tf32 = true},
    {"bn-odd", BF16, BN, ODD, ASKED(WORKSPACE)},
    {"at-odd", FP32, AT, ODD},
    {"bn-beta", FP16, BN, EVEN, .beta = 2},
    {"bn-c-apart", BF16, BN, EVEN, .beta = 2, .c_apart = true},
    {"at-c-apart", FP32, AT, ODD, .beta = 2, .c_apart = true},
    {"bn-bias", BF16, BN, EVEN, EPI(BIAS), ASKED(WORKSPACE)},
    {"at-bias", BF16, AT, EVEN, EPI(BIAS), ASKED(WORKSPACE)},
    {"bn-relu", FP32, BN, ODD, EPI(RELU)},
    {"at-relu-bias", FP16, AT, EVEN, EPI(RELU_BIAS), ASKED(WORKSPACE), .in_place = true},
    {"bn-gelu-bias", BF16, BN, EVEN, EPI(GELU_BIAS), ASKED(WORKSPACE)},
    {"at-gelu", FP16, AT, EVEN, EPI(GELU)},
    {"at-gelu-bias", BF16, AT, ODD, EPI(GELU_BIAS)},
    {"device-scalars", BF16, BN, EVEN, .beta = 2, .device_scalars = true},
    {"default-stream", BF16, BN, EVEN, EPI(BIAS), ASKED(WORKSPACE), .default_stream = true},
    /* The whole is a multiple of 8 wide, a part is not: the algorithm without workspace does not take it. */
    {"algo-refused", BF16, BN, ASKED(0), .cols = 12, .other = 40, .k = 64},
    /* Parts of D begin at addresses that the whole's algorithm does not take. */
    {"algo-misaligned", FP16, AT, ASKED(0), .cols = 8, .other = 40, .k = 64},
    {"large", FP32, BN, EPI(RELU_BIAS), ASKED(WORKSPACE), .cols = 96, .other = 64, .k = 1024},
    {"large-at", FP16, AT, EPI(BIAS), ASKED(WORKSPACE), .cols = 96, .other = 64, .k = 1024, .in_place = true},
    {"batch", BF16, BN, EVEN, .batch = 2},
    {"an-add", FP32, AN, EVEN, .beta = 1},
    {"bt-add", FP32, BT, EVEN, ASKED(WORKSPACE), .beta = 1, .in_place = true},
    {"an-add-odd", FP32, AN, ODD, ASKED(WORKSPACE), .beta = 1, .tf32 = true},
    {"bt-add-c-apart", FP32, BT, ODD, .beta = 1, .c_apart = true},
    {"an-add-large", FP32, AN, ASKED(WORKSPACE), .beta = 1, .cols = 96, .other = 64, .k = 1024},
    {"an-beta-0", FP32, AN, EVEN},
    {"an-add-bias", FP32, AN, EVEN, EPI(BIAS), .beta = 1},
    {"an-add-fp16", FP16, AN, EVEN, .beta = 1},
    {"an-add-device", FP32, AN, EVEN, .beta = 1, .device_scalars = true},
    {"gelu-aux", BF16, BN, EVEN, EPI(GELU_AUX_BIAS)},
    {"between", BF16, BN, EVEN, .between = true},
    {"c-in-recv", BF16, BN, EVEN, .beta = 2, .c_apart = true, .in = {[OF_C] = IN_RECV}},
    {"d-in-send", BF16, BN, EVEN, .in = {[OF_D] = IN_SEND}},
    {"bias-in-recv", BF16, AT, EVEN, EPI(BIAS), .in = {[OF_BIAS] = IN_RECV}},
    {"workspace-in-send", BF16, BN, EVEN, ASKED(1 << 16), .in = {[OF_WORKSPACE] = IN_SEND}},
};

/* Sizes in elements. */
struct shape {
    size_t shard, x, w, d, c, elem;
    int64_t m, n, inner, ldc;
    int batch;
};

static bool on_a(const struct lt_case *c)
{
    return c->form == FORM_AT || c->form == FORM_AN;
}

/* Over the gathered dimension. */
static bool sums(const struct lt_case *c)
{
    return c->form == FORM_BT || c->form == FORM_AN;
}

static struct shape shape_of(const struct lt_case *c, int nranks)
{
    struct shape s = {.elem = api_elem(c->type), .batch = c->batch ? c->batch : 1};
    s.shard = (size_t)(c->cols * c->k);
    s.x = s.shard * (size_t)nranks;
    const int64_t all = c->cols * nranks, along = sums(c) ? c->k : all;
    s.inner = sums(c) ? all : c->k;
    s.w = (size_t)(c->other * s.inner);
    s.m = on_a(c) ? along : c->other;
    s.n = on_a(c) ? c->other : along;
    s.ldc = s.m + (c->c_apart ? C_PAD : 0);
    s.d = (size_t)(s.m * s.n);
    s.c = (size_t)(s.ldc * s.n);
    return s;
}

struct memory {
    char *send, *recv, *weight, *bias, *c, *d, *whole, *aux, *workspace, *side;
    float *scalars; /* alpha, beta on the device */
};

static void *device(size_t bytes)
{
    void *p;
    CUDA(cudaMalloc(&p, bytes));
    return p;
}

static char *placed(const struct lt_case *c, const struct memory *mem, int what, size_t bytes)
{
    return c->in[what] == IN_SEND ? mem->send : c->in[what] == IN_RECV ? mem->recv : device(bytes);
}

static struct memory allocate(const struct lt_case *c, const struct shape *s)
{
    const float scalars[2] = {1, (float)c->beta};
    struct memory mem = {.send = device(WORKSPACE), .recv = device(s->x * s->elem)};
    mem.weight = device(s->w * s->elem);
    mem.d = placed(c, &mem, OF_D, s->d * s->elem);
    mem.c = c->c_apart ? placed(c, &mem, OF_C, s->c * s->elem) : mem.d;
    mem.bias = placed(c, &mem, OF_BIAS, (size_t)s->m * s->elem);
    mem.workspace = placed(c, &mem, OF_WORKSPACE, WORKSPACE);
    mem.whole = device(s->d * s->elem);
    mem.aux = device(s->d * s->elem);
    mem.side = device(s->x * s->elem);
    mem.scalars = device(sizeof scalars);
    to_device(mem.scalars, scalars, sizeof scalars);
    return mem;
}

static void release(const struct lt_case *c, const struct memory *mem)
{
    const bool own_c = c->c_apart && c->in[OF_C] == ELSEWHERE;
    void *const all[] = {mem->send,
                         mem->recv,
                         mem->weight,
                         c->in[OF_D] == ELSEWHERE ? mem->d : NULL,
                         own_c ? mem->c : NULL,
                         c->in[OF_BIAS] == ELSEWHERE ? mem->bias : NULL,
                         c->in[OF_WORKSPACE] == ELSEWHERE ? mem->workspace : NULL,
                         mem->whole,
                         mem->aux,
                         mem->side,
                         mem->scalars};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA(cudaFree(all[i]));
}

static cublasLtMatrixLayout_t layout(const struct lt_case *c, const struct shape *s, int64_t rows, int64_t cols,
                                     int64_t ld, bool batched)
{
    cublasLtMatrixLayout_t l;
    int64_t stride = batched ? ld * cols / s->batch : 0;
    BLAS(cublasLtMatrixLayoutCreate(&l, api_type(c->type), (uint64_t)rows, (uint64_t)(batched ? cols / s->batch : cols),
                                    ld));
    if (s->batch > 1) {
        BLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &s->batch, sizeof s->batch));
        BLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    }
    return l;
}

#define SET(desc, id, value)                                                                                           \
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##id, &(value), sizeof(value)))

static cublasLtMatmulDesc_t operation(const struct lt_case *c, const struct shape *s, const struct memory *mem)
{
    cublasLtMatmulDesc_t d;
    const int32_t trans = CUBLAS_OP_T, plain = CUBLAS_OP_N, mode = CUBLASLT_POINTER_MODE_DEVICE;
    BLAS(cublasLtMatmulDescCreate(&d, c->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (c->form == FORM_AN)
        SET(d, TRANSA, plain);
    else
        SET(d, TRANSA, trans);
    if (c->form == FORM_BT)
        SET(d, TRANSB, trans);
    if (c->device_scalars)
        SET(d, POINTER_MODE, mode);
    if (c->epilogue)
        SET(d, EPILOGUE, c->epilogue);
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        SET(d, BIAS_POINTER, mem->bias);
    if (c->epilogue & 128) {
        SET(d, EPILOGUE_AUX_POINTER, mem->aux);
        SET(d, EPILOGUE_AUX_LD, s->m);
    }
    return d;
}

/* D of the case's problem at `d`, and C at `in`. */
static void matmul(const struct lt_case *c, const struct shape *s, const struct memory *mem, cublasLtHandle_t handle,
                   const void *in, void *d, cudaStream_t stream)
{
    const bool bn = !on_a(c), a_plain = c->form == FORM_AN, b_trans = c->form == FORM_BT;
    const int64_t k = s->inner;
    const float alpha = 1, beta = (float)c->beta;
    const void *a = bn ? mem->weight : mem->recv, *b = bn ? mem->recv : mem->weight;
    const void *pa = c->device_scalars ? mem->scalars : &alpha, *pb = c->device_scalars ? mem->scalars + 1 : &beta;
    cublasLtMatmulDesc_t op = operation(c, s, mem);
    cublasLtMatrixLayout_t la = a_plain ? layout(c, s, s->m, k, s->m, false) : layout(c, s, k, s->m, k, false),
                           lb = b_trans ? layout(c, s, s->n, k, s->n, true) : layout(c, s, k, s->n, k, true),
                           lc = layout(c, s, s->m, s->n, s->ldc, true), ld = layout(c, s, s->m, s->n, s->m, true);
    cublasLtMatmulHeuristicResult_t found = {.workspaceSize = 0};
    if (c->asked) {
        cublasLtMatmulPreference_t pref;
        int count = 0;
        BLAS(cublasLtMatmulPreferenceCreate(&pref));
        BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &c->workspace,
                                                  sizeof c->workspace));
        BLAS(cublasLtMatmulAlgoGetHeuristic(handle, op, la, lb, lc, ld, pref, 1, &found, &count));
        CHECK(count == 1, "%s: no algorithm", c->name);
        BLAS(cublasLtMatmulPreferenceDestroy(pref));
    }
    BLAS(cublasLtMatmul(handle, op, pa, a, la, b, lb, pb, in, lc, d, ld, c->asked ? &found.algo : NULL,
                        c->workspace ? mem->workspace : NULL, c->workspace, stream));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatrixLayoutDestroy(ld));
    BLAS(cublasLtMatmulDescDestroy(op));
}

static void upload(const struct lt_case *c, char *to, size_t n, uint64_t seed, cudaStream_t stream)
{
    char *host = malloc(n * api_elem(c->type));
    for (size_t i = 0; i < n; i++)
        put(c->type, host, i, small(seed, i), false);
    CUDA(cudaMemcpyAsync(to, host, n * api_elem(c->type), cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(host);
}

enum { SEED_W = 77, SEED_C = 99, SEED_BIAS = 111 };

static void load(const struct rank *r, const struct lt_case *c, const struct shape *s, const struct memory *mem,
                 uint64_t seed)
{
    char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard * s->elem : mem->send;
    CUDA(cudaMemsetAsync(mem->recv, 0x7f, s->x * s->elem, r->stream));
    upload(c, mem->weight, s->w, seed + SEED_W, r->stream);
    if (c->in[OF_D] == ELSEWHERE)
        upload(c, mem->d, s->d, seed + SEED_C, r->stream);
    upload(c, mem->whole, s->d, seed + SEED_C, r->stream);
    if (c->c_apart && c->in[OF_C] == ELSEWHERE)
        upload(c, mem->c, s->c, seed + SEED_C, r->stream);
    if (c->in[OF_BIAS] == ELSEWHERE)
        upload(c, mem->bias, (size_t)s->m, seed + SEED_BIAS, r->stream);
    upload(c, send, s->shard, seed + (uint64_t)r->rank, r->stream);
}

/* Element i of the gathered matrix. */
static int x_at(const struct shape *s, uint64_t seed, size_t i)
{
    return small(seed + i / s->shard, i % s->shard);
}

/* The elements of the gathered matrix and of the weights, each made once. */
struct operands {
    int8_t *x, *w;
};

static struct operands make_operands(const struct shape *s, uint64_t seed)
{
    struct operands o = {.x = malloc(s->x), .w = malloc(s->w)};
    CHECK(o.x && o.w, "no memory");
    for (size_t i = 0; i < s->x; i++)
        o.x[i] = (int8_t)x_at(s, seed, i);
    for (size_t i = 0; i < s->w; i++)
        o.w[i] = (int8_t)small(seed + SEED_W, i);
    return o;
}

UNWATCHED static int expected(const struct lt_case *c, const struct shape *s, const struct operands *o, uint64_t seed,
                              int64_t row, int64_t col)
{
    const int64_t along = on_a(c) ? row : col, step = sums(c) ? c->k : 1;
    const int8_t *x = o->x + (sums(c) ? along : along * c->k), *w = o->w + (on_a(c) ? col : row) * s->inner;
    const size_t in_c = (size_t)(col * s->ldc + row);
    int sum = 0;
    for (int64_t p = 0; p < s->inner; p++)
        sum += x[p * step] * w[p];
    if (c->beta != 0)
        sum += (int)c->beta * (c->in[OF_C] == IN_RECV ? x_at(s, seed, in_c) : small(seed + SEED_C, in_c));
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        sum += c->in[OF_BIAS] == IN_RECV ? x_at(s, seed, (size_t)row) : small(seed + SEED_BIAS, (uint64_t)row);
    return c->epilogue & CUBLASLT_EPILOGUE_RELU && sum < 0 ? 0 : sum;
}

/* Sums are exact in the case's type: with k = 64 and values from -2 to 2 they stay far below 256. */
static void check(const struct rank *r, const struct lt_case *c, const struct shape *s, uint64_t seed, const char *have)
{
    if (c->epilogue & CUBLASLT_EPILOGUE_GELU)
        return;
    char want[8];
    struct operands o = make_operands(s, seed);
    for (int64_t col = 0; col < s->n; col++)
        for (int64_t row = 0; row < s->m; row++) {
            const size_t i = (size_t)(col * s->m + row);
            put(c->type, want, 0, expected(c, s, &o, seed, row, col), false);
            CHECK(!memcmp(have + i * s->elem, want, s->elem), "rank %d: %s: D(%ld,%ld) is not %d", r->rank, c->name,
                  (long)row, (long)col, expected(c, s, &o, seed, row, col));
        }
    free(o.x);
    free(o.w);
}

static ncclDataType_t nccl_type(enum api type)
{
    return type == API_S ? ncclFloat32 : type == API_H ? ncclFloat16 : ncclBfloat16;
}

static void round_of(const struct rank *r, const struct lt_case *c, const struct shape *s, const struct memory *mem,
                     cublasLtHandle_t handle, uint64_t seed)
{
    const size_t bytes = s->d * s->elem;
    char *have = malloc(bytes), *want = malloc(bytes);
    load(r, c, s, mem, seed);
    const char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard * s->elem : mem->send;
    NCCL(ncclAllGather(send, mem->recv, s->shard, nccl_type(c->type), r->comm, r->stream));
    if (c->between)
        CUDA(cudaMemcpyAsync(mem->side, mem->recv, s->x * s->elem, cudaMemcpyDeviceToDevice, r->stream));
    matmul(c, s, mem, handle, mem->c, mem->d, r->stream);
    CUDA(cudaMemcpyAsync(have, mem->d, bytes, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    check(r, c, s, seed, have);
    matmul(c, s, mem, handle, c->c_apart ? mem->c : mem->whole, mem->whole, r->stream);
    CUDA(cudaMemcpyAsync(want, mem->whole, bytes, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CHECK(!memcmp(have, want, bytes), "rank %d: %s: differs from the whole GEMM", r->rank, c->name);
    free(have);
    free(want);
}

static void body(struct rank *r)
{
    const struct lt_case *c = r->arg;
    const struct shape s = shape_of(c, r->nranks);
    cublasLtHandle_t handle;
    rank_open(r);
    cudaStream_t own = r->stream;
    if (c->default_stream)
        r->stream = NULL;
    struct memory mem = allocate(c, &s);
    BLAS(cublasLtCreate(&handle));
    for (uint64_t round = 0; round < 3; round++)
        round_of(r, c, &s, &mem, handle, 1000 + 500 * round);
    BLAS(cublasLtDestroy(handle));
    release(c, &mem);
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
    fprintf(stderr, "usage: fuse_lt RANKS CASE | fuse_lt list\n");
    return 2;
}
