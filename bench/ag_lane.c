/* SPDX-License-Identifier: Apache-2.0 */
/* A stream's matrices, and the operations on them: gather, something in between, GEMM. */
#include "ag_lt.h"
#include "ag_rank.h"

#include <library_types.h>
#include <stdlib.h>
#include <string.h>

enum { FILL_BYTES = 8 << 20 };

static const ncclDataType_t nccl_type[] = {
    [AG_BF16] = ncclBfloat16, [AG_FP16] = ncclFloat16, [AG_FP32] = ncclFloat32,
    [AG_FP64] = ncclFloat64,  [AG_INT8] = ncclInt8,
};

static int order(struct ag_rank *r, cudaEvent_t event, cudaStream_t first, cudaStream_t then)
{
    if (first == then)
        return 0;
    AG_CUDA(r, cudaEventRecord(event, first));
    AG_CUDA(r, cudaStreamWaitEvent(then, event, 0));
    return 0;
}

/* What the last iteration has allocated. */
static int free_scratch(struct ag_rank *r, struct ag_lane *lane)
{
    if (r->options->interpose_op != AG_ALLOC || !lane->scratch)
        return 0;
    AG_CUDA(r, cudaFreeAsync(lane->scratch, lane->stream));
    lane->scratch = NULL;
    return 0;
}

int ag_gather(struct ag_rank *r, struct ag_lane *lane)
{
    AG_TRY(free_scratch(r, lane));
    AG_TRY(order(r, lane->may_gather, lane->stream, lane->side));
    AG_NCCL(r, ncclAllGather(lane->shard, lane->gathered, r->data.shape.shard, nccl_type[r->options->dtype], lane->comm,
                             lane->side));
    return order(r, lane->has_gathered, lane->side, lane->stream);
}

int ag_between(struct ag_rank *r, struct ag_lane *lane)
{
    const struct ag_shape *s = &r->data.shape;
    const size_t bytes = s->gathered * s->element_bytes, column = (size_t)s->ld * s->element_bytes;
    switch (r->options->interpose_op) {
    case AG_MEMSET:
        AG_CUDA(r, cudaMemsetAsync(lane->scratch, 0, bytes, lane->stream));
        break;
    case AG_COPY:
        AG_CUDA(r, cudaMemcpyAsync(lane->scratch, lane->gathered, bytes, cudaMemcpyDeviceToDevice, lane->stream));
        break;
    case AG_WRITE:
        if (s->gemm)
            AG_CUDA(r,
                    cudaMemsetAsync((char *)lane->gathered + (size_t)(s->outer - 1) * column, 0, column, lane->stream));
        break;
    case AG_ALLOC:
        AG_CUDA(r, cudaMallocAsync(&lane->scratch, bytes, lane->stream));
        break;
    default:
        break;
    }
    return 0;
}

/* The operands of C(m x n) = op(A) * op(B), column-major; see --form. */
struct operands {
    cublasOperation_t op_a, op_b;
    const void *a, *b;
    void *c;
    long lda, ldb, ldc, m, n, k;
};

static struct operands operands_of(const struct ag_rank *r, const struct ag_lane *lane, int slot)
{
    const struct ag_shape *s = &r->data.shape;
    struct operands o = {.op_a = CUBLAS_OP_T, .op_b = CUBLAS_OP_N, .c = lane->c[slot]};
    const int bn = r->options->form == AG_BN;
    if (s->sums)
        o.op_a = CUBLAS_OP_N;
    o.a = bn ? lane->weight : lane->gathered;
    o.b = bn ? lane->gathered : lane->weight;
    o.lda = bn ? s->k : s->ld;
    o.ldb = bn ? s->ld : s->k;
    o.ldc = o.m = s->m;
    o.n = s->n;
    o.k = s->k;
    return o;
}

static int gemm_ex(struct ag_rank *r, cublasHandle_t blas, const struct operands *o)
{
    static const cudaDataType_t types[] = {
        [AG_BF16] = CUDA_R_16BF, [AG_FP16] = CUDA_R_16F, [AG_FP32] = CUDA_R_32F, [AG_FP64] = CUDA_R_64F};
    const cudaDataType_t type = types[r->options->dtype], c_type = types[r->data.shape.c_dtype];
    const int wide = r->options->dtype == AG_FP64;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    const double one = 1, beta = r->options->beta;
    const float one_single = 1, beta_single = (float)beta;
    const void *const alpha_at = wide ? (const void *)&one : &one_single;
    const void *const beta_at = wide ? (const void *)&beta : &beta_single;
    const int m = (int)o->m, n = (int)o->n, k = (int)o->k, lda = (int)o->lda, ldb = (int)o->ldb, ldc = (int)o->ldc;

    if (r->options->api == AG_GEMMEX && r->options->ilp64)
        AG_BLAS(r, cublasGemmEx_64(blas, o->op_a, o->op_b, o->m, o->n, o->k, alpha_at, o->a, type, o->lda, o->b, type,
                                   o->ldb, beta_at, o->c, c_type, o->ldc, compute, CUBLAS_GEMM_DEFAULT));
    else if (r->options->api == AG_GEMMEX)
        AG_BLAS(r, cublasGemmEx(blas, o->op_a, o->op_b, m, n, k, alpha_at, o->a, type, lda, o->b, type, ldb, beta_at,
                                o->c, c_type, ldc, compute, CUBLAS_GEMM_DEFAULT));
    else if (r->options->ilp64)
        AG_BLAS(r, cublasGemmStridedBatchedEx_64(blas, o->op_a, o->op_b, o->m, o->n, o->k, alpha_at, o->a, type, o->lda,
                                                 0, o->b, type, o->ldb, 0, beta_at, o->c, c_type, o->ldc, 0, 1, compute,
                                                 CUBLAS_GEMM_DEFAULT));
    else
        AG_BLAS(r, cublasGemmStridedBatchedEx(blas, o->op_a, o->op_b, m, n, k, alpha_at, o->a, type, lda, 0, o->b, type,
                                              ldb, 0, beta_at, o->c, c_type, ldc, 0, 1, compute, CUBLAS_GEMM_DEFAULT));
    return 0;
}

/* cublasSgemm, cublasDgemm, cublasHgemm: the same argument list in another type. */
#define TYPED_GEMM(name, function, type, from_double)                                                                  \
    static int name(struct ag_rank *r, cublasHandle_t blas, const struct operands *o)                                  \
    {                                                                                                                  \
        const type alpha = from_double(1), beta = from_double(r->options->beta);                                       \
        if (r->options->ilp64)                                                                                         \
            AG_BLAS(r, function##_64(blas, o->op_a, o->op_b, o->m, o->n, o->k, &alpha, o->a, o->lda, o->b, o->ldb,     \
                                     &beta, o->c, o->ldc));                                                            \
        else                                                                                                           \
            AG_BLAS(r, function(blas, o->op_a, o->op_b, (int)o->m, (int)o->n, (int)o->k, &alpha, o->a, (int)o->lda,    \
                                o->b, (int)o->ldb, &beta, o->c, (int)o->ldc));                                         \
        return 0;                                                                                                      \
    }

/* cublas_v2.h declares these only to C++, which has a type for half precision. */
#define DECLARE_HGEMM(name, integer)                                                                                   \
    cublasStatus_t name(cublasHandle_t, cublasOperation_t, cublasOperation_t, integer, integer, integer,               \
                        const uint16_t *, const void *, integer, const void *, integer, const uint16_t *, void *,      \
                        integer);
DECLARE_HGEMM(cublasHgemm, int)
DECLARE_HGEMM(cublasHgemm_64, int64_t)

static uint16_t half_of(double value)
{
    uint16_t half;
    ag_encode(AG_FP16, value, &half);
    return half;
}

TYPED_GEMM(gemm_s, cublasSgemm, float, (float))
TYPED_GEMM(gemm_d, cublasDgemm, double, (double))
TYPED_GEMM(gemm_h, cublasHgemm, uint16_t, half_of)

int ag_gemm(struct ag_rank *r, struct ag_lane *lane, int slot)
{
    const struct operands o = operands_of(r, lane, slot);
    switch (r->options->api) {
    case AG_SGEMM:
        return gemm_s(r, lane->blas, &o);
    case AG_DGEMM:
        return gemm_d(r, lane->blas, &o);
    case AG_HGEMM:
        return gemm_h(r, lane->blas, &o);
    case AG_LT:
    case AG_LT_BIAS:
        return ag_lt_gemm(r, lane, slot);
    default:
        return gemm_ex(r, lane->blas, &o);
    }
}

/* Fills device memory without a kernel: a block of small integers from the host, then copies of
 * what is there. What a GEMM multiplies changes its speed on real devices, so zeros would
 * flatter. */
static int fill(struct ag_rank *r, void *to, size_t bytes, const void *block)
{
    size_t done = bytes < FILL_BYTES ? bytes : FILL_BYTES;
    AG_CUDA(r, cudaMemcpy(to, block, done, cudaMemcpyHostToDevice));
    for (size_t next; done < bytes; done += next) {
        next = bytes - done < done ? bytes - done : done;
        AG_CUDA(r, cudaMemcpy((char *)to + done, to, next, cudaMemcpyDeviceToDevice));
    }
    return 0;
}

static int fill_lane(struct ag_rank *r, struct ag_lane *lane, void *block)
{
    const struct ag_shape *s = &r->data.shape;
    const size_t weight = s->gemm ? (size_t)s->k * (size_t)s->free_size : 0;
    ag_data_shard(&r->data, 0, r->rank, 0, FILL_BYTES / s->element_bytes, block);
    AG_TRY(fill(r, lane->gathered, s->gathered * s->element_bytes, block));
    AG_TRY(fill(r, lane->shard, s->shard * s->element_bytes, block));
    if (!weight)
        return 0;
    if (r->options->check == AG_OFF)
        return fill(r, lane->weight, weight * s->element_bytes, block);
    for (size_t first = 0, count; first < weight; first += count) {
        const size_t most = FILL_BYTES / s->element_bytes;
        count = weight - first < most ? weight - first : most;
        ag_data_weights(&r->data, r->rank, first, count, block);
        AG_CUDA(r, cudaMemcpy((char *)lane->weight + first * s->element_bytes, block, count * s->element_bytes,
                              cudaMemcpyHostToDevice));
    }
    return 0;
}

/* Output buffers and, when checking, what a burst needs to keep its iterations apart. */
static int make_slots(struct ag_rank *r, struct ag_lane *lane)
{
    const struct ag_shape *s = &r->data.shape;
    const int checks = r->options->check != AG_OFF;
    for (int slot = 0; slot < (checks ? r->options->burst : 1); slot++) {
        if (s->gemm) {
            AG_CUDA(r, cudaMalloc(&lane->c[slot], ag_c_elements(s) * s->c_bytes));
            if (!checks && !r->options->no_fill)
                AG_CUDA(r, cudaMemset(lane->c[slot], 0, ag_c_elements(s) * s->c_bytes));
        }
        if (checks) {
            AG_CUDA(r, cudaMalloc(&lane->kept[slot], s->gathered * s->element_bytes));
            AG_CUDA(r, cudaMallocHost(&lane->staged[slot], s->shard * s->element_bytes));
        }
    }
    return 0;
}

static int make_stream(struct ag_rank *r, int index)
{
    const long streams = r->options->streams;
    struct ag_lane *lane = &r->lanes[index];
    if (index >= streams) /* more communicators than streams: they share */
        lane->stream = r->lanes[index % streams].stream;
    else if (r->owns_streams)
        AG_CUDA(r, cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    lane->side = lane->stream;
    if (r->options->side_stream)
        AG_CUDA(r, cudaStreamCreateWithFlags(&lane->side, cudaStreamNonBlocking));
    return 0;
}

static int make_lane(struct ag_rank *r, int index, void *block)
{
    const struct ag_shape *s = &r->data.shape;
    struct ag_lane *lane = &r->lanes[index];
    lane->comm = r->comms[index % r->options->comms];
    AG_TRY(make_stream(r, index));
    const size_t gathered = s->gathered * s->element_bytes, shard = s->shard * s->element_bytes;
    AG_CUDA(r, cudaMalloc(&lane->gathered, gathered));
    lane->shard = (char *)lane->gathered + (size_t)r->rank * shard;
    if (!r->options->in_place)
        AG_CUDA(r, cudaMalloc(&lane->shard, shard));
    if (r->options->interpose_op == AG_MEMSET || r->options->interpose_op == AG_COPY)
        AG_CUDA(r, cudaMalloc(&lane->scratch, gathered));
    AG_CUDA(r, cudaEventCreateWithFlags(&lane->ended, cudaEventDisableTiming));
    AG_CUDA(r, cudaEventCreateWithFlags(&lane->may_gather, cudaEventDisableTiming));
    AG_CUDA(r, cudaEventCreateWithFlags(&lane->has_gathered, cudaEventDisableTiming));
    if (s->gemm) {
        AG_CUDA(r, cudaMalloc(&lane->weight, (size_t)s->k * (size_t)s->free_size * s->element_bytes));
        AG_BLAS(r, cublasCreate(&lane->blas));
        AG_BLAS(r, cublasSetStream(lane->blas, lane->stream));
        if (r->options->api >= AG_LT)
            AG_TRY(ag_lt_make(r, lane));
    }
    AG_TRY(make_slots(r, lane));
    return r->options->no_fill && r->options->check == AG_OFF ? 0 : fill_lane(r, lane, block);
}

int ag_lanes_make(struct ag_rank *r)
{
    const struct ag_options *o = r->options;
    void *block = malloc(FILL_BYTES);
    int result = block ? 0 : ag_failed(r, "malloc", "host", "out of memory");
    r->lane_count = (int)(o->streams > o->comms ? o->streams : o->comms);
    r->owns_streams = !o->default_stream;
    AG_CUDA(r, cudaEventCreateWithFlags(&r->fork, cudaEventDisableTiming));
    for (int i = 0; result == 0 && i < r->lane_count; i++)
        result = make_lane(r, i, block);
    free(block);
    if (result == 0)
        AG_CUDA(r, cudaDeviceSynchronize());
    return result;
}

static int free_lane(struct ag_rank *r, struct ag_lane *lane)
{
    if (lane->blas)
        AG_BLAS(r, cublasDestroy(lane->blas));
    AG_TRY(ag_lt_free(r, lane));
    AG_CUDA(r, cudaEventDestroy(lane->ended));
    AG_CUDA(r, cudaEventDestroy(lane->may_gather));
    AG_CUDA(r, cudaEventDestroy(lane->has_gathered));
    if (lane->side != lane->stream)
        AG_CUDA(r, cudaStreamDestroy(lane->side));
    AG_CUDA(r, cudaFree(lane->gathered));
    if (!r->options->in_place)
        AG_CUDA(r, cudaFree(lane->shard));
    AG_CUDA(r, cudaFree(lane->weight));
    AG_CUDA(r, cudaFree(lane->scratch));
    for (int slot = 0; slot < AG_MAX_BURST; slot++) {
        AG_CUDA(r, cudaFree(lane->c[slot]));
        AG_CUDA(r, cudaFree(lane->kept[slot]));
        AG_CUDA(r, cudaFreeHost(lane->staged[slot]));
    }
    return 0;
}

int ag_lanes_free(struct ag_rank *r)
{
    AG_CUDA(r, cudaDeviceSynchronize());
    for (int i = 0; i < r->lane_count; i++)
        AG_TRY(free_lane(r, &r->lanes[i]));
    for (int i = 0; r->owns_streams && i < r->options->streams; i++)
        AG_CUDA(r, cudaStreamDestroy(r->lanes[i].stream));
    AG_CUDA(r, cudaEventDestroy(r->fork));
    return 0;
}
