/* SPDX-License-Identifier: Apache-2.0 */
/* A gathered matrix of 8-bit floating point (or another type) that a cublasLtMatmul with scale factors or an auxiliary
 * matrix consumes, as torch._scaled_mm and TransformerEngine call it.
 *
 *   fuse_narrow RANKS CASE [ROUNDS]        CASE is a name of the table below, or "list"
 *
 * Forms as in fuse.c: B/N  D = W' X, A/T  D = X' W, A/N  D = X W + D. X is gathered as bytes, and its scale factors by
 * a gather of their own where the case says so. Operands are small integers, factors powers of two: D is checked
 * against arithmetic on the host (but for GELU), and D, auxiliary matrix, gradient and largest value bit by bit against
 * the same call with nothing in flight. Three rounds, or more, with new data on the same, poisoned buffers. */
#include <string.h>
#include <unistd.h>
#include "fuse_narrow.h"

#define EVEN .cols = 32, .other = 48, .k = 64
#define UNEVEN .cols = 24, .other = 32, .k = 48 /* shards that do not begin where a part may */
#define BLOCKS .cols = 128, .other = 256, .k = 384
#define UNEVEN_BLOCKS .cols = 192, .other = 128, .k = 256
#define EPI(x) .epilogue = CUBLASLT_EPILOGUE_##x
#define F8 .x = E4M3, .w = E4M3, .d = BF16
#define B16 .x = BF16, .w = BF16, .d = BF16
#define BN .form = FORM_BN
#define AT .form = FORM_AT

static const struct narrow_case cases[] = {
    {"bn-tensor", BN, F8, EVEN, .scaling = TENSOR, .asked = true, .fast = true},
    {"at-tensor", AT, F8, EVEN, .scaling = TENSOR},
    {"bn-unscaled", BN, F8, EVEN, .scaling = NONE, .asked = true},
    {"bn-rows", BN, F8, EVEN, .scaling = ROWS, .asked = true, .fast = true},
    {"at-rows", AT, F8, EVEN, .scaling = ROWS, .asked = true},
    {"bn-rows-uneven", BN, F8, UNEVEN, .scaling = ROWS, .asked = true},
    {"at-rows-uneven", AT, F8, UNEVEN, .scaling = ROWS, .in_place = true},
    {"bn-rows-fp32", BN, .x = E4M3, .w = E5M2, .d = FP32, EVEN, .scaling = ROWS, .asked = true},
    {"at-rows-bias", AT, F8, EVEN, .scaling = ROWS, EPI(BIAS), .asked = true},
    {"bn-rows-bias", BN, F8, EVEN, .scaling = ROWS, EPI(RELU_BIAS), .asked = true, .in_place = true},
    {"bn-rows-before", BN, F8, EVEN, .scaling = ROWS, .scales = BEFORE, .asked = true},
    {"bn-rows-behind", BN, F8, EVEN, .scaling = ROWS, .scales = BEHIND, .asked = true},
    {"at-rows-behind", AT, F8, UNEVEN, .scaling = ROWS, .scales = BEHIND},
    {"bn-rows-elsewhere", BN, F8, EVEN, .scaling = ROWS, .scales = ELSEWHERE},
    {"bn-of-large", BN, F8, EVEN, .scaling = TENSOR, .scales = OF_LARGE},
    {"bn-to-fp8", BN, .x = E4M3, .w = E5M2, .d = E5M2, EVEN, .scaling = TENSOR, .d_scale = true, .asked = true},
    {"at-to-fp8", AT, .x = E4M3, .w = E4M3, .d = E4M3, EVEN, .scaling = TENSOR, .d_scale = true, .beta = 2},
    {"bn-c-apart", BN, F8, EVEN, .scaling = TENSOR, .beta = 2, .alpha_on_device = true},
    {"bn-amax", BN, .x = E4M3, .w = E4M3, .d = E4M3, EVEN, .scaling = TENSOR, .d_scale = true, .amax = true},
    {"bn-squares", BN, F8, BLOCKS, .scaling = SQUARES, .asked = true},
    {"at-squares", AT, F8, BLOCKS, .scaling = SQUARES},
    {"bn-squares-uneven", BN, F8, UNEVEN_BLOCKS, .scaling = SQUARES, .asked = true},
    {"bn-squares-few", BN, F8, EVEN, .scaling = SQUARES},
    {"bn-lines", BN, F8, BLOCKS, .scaling = LINES},
    {"bn-tiles", BN, F8, BLOCKS, .scaling = TILES, .asked = true},
    {"at-tiles-uneven", AT, F8, UNEVEN_BLOCKS, .scaling = TILES},
    {"an-tensor-add", .form = FORM_AN, .x = E4M3, .w = E4M3, .d = FP32, EVEN, .scaling = TENSOR, .beta = 1},
    {"an-uneven-add", .form = FORM_AN, .x = E4M3, .w = E4M3, .d = FP32, UNEVEN, .scaling = TENSOR, .beta = 1},
    {"an-tiles-add", .form = FORM_AN, .x = E4M3, .w = E4M3, .d = FP32, BLOCKS, .scaling = TILES, .beta = 1},
    {"bn-gelu-aux", BN, B16, EVEN, EPI(GELU_AUX_BIAS), .asked = true},
    {"at-gelu-aux", AT, B16, EVEN, EPI(GELU_AUX), .asked = true},
    {"bn-relu-aux", BN, B16, EVEN, EPI(RELU_AUX)},
    {"at-relu-aux", AT, B16, UNEVEN_BLOCKS, EPI(RELU_AUX_BIAS), .asked = true},
    {"at-relu-aux-few", AT, B16, EVEN, EPI(RELU_AUX)},
    {"bn-gelu-aux-fp8", BN, F8, EVEN, .scaling = TENSOR, EPI(GELU_AUX_BIAS), .asked = true},
    {"bn-gelu-aux-beta", BN, B16, EVEN, EPI(GELU_AUX), .beta = 2, .c_is_d = true},
    {"bn-dgelu", BN, B16, EVEN, EPI(DGELU), .asked = true},
    {"at-drelu", AT, B16, BLOCKS, EPI(DRELU)},
    {"at-dgelu-bgrad", AT, B16, EVEN, EPI(DGELU_BGRAD), .asked = true},
    {"at-drelu-bgrad", AT, B16, UNEVEN_BLOCKS, EPI(DRELU_BGRAD)},
    {"bn-drelu-bgrad", BN, B16, EVEN, EPI(DRELU_BGRAD)},
    {"bn-bgrada", BN, B16, EVEN, EPI(BGRADA)},
    {"at-bgrada", AT, B16, EVEN, EPI(BGRADA)},
    {"bn-bgradb", BN, B16, EVEN, EPI(BGRADB), .asked = true},
    {"at-bgradb", AT, B16, EVEN, EPI(BGRADB)},
};

/* Every rank does all rounds, whatever it finds. */
static uint64_t rounds = 3;
static bool wrong;
#define EXPECT(cond, ...) ((cond) ? (void)0 : (void)(wrong = true, fprintf(stderr, __VA_ARGS__), fputc('\n', stderr)))

static void check(const struct rank *r, const struct narrow_case *c, const struct shape *s, uint64_t seed,
                  const char *have)
{
    const size_t elem = elem_of(c->d);
    char want[4];
    if (c->epilogue & (CUBLASLT_EPILOGUE_GELU | 8 | 64))
        return;
    /* The large ones in part: all are compared below. */
    const int64_t cols = s->n > 100 ? 7 : 1, rows = s->n > 100 ? 5 : 1;
    for (int64_t col = 0; col < s->n; col += cols)
        for (int64_t row = 0; row < s->m; row += rows) {
            const float v = expected(c, s, seed, row, col);
            put_value(c->d, want, 0, v);
            const bool same = !memcmp(have + (size_t)(row + col * s->m) * elem, want, elem);
            EXPECT(same, "rank %d: %s: D(%ld,%ld) is not %g", r->rank, c->name, (long)row, (long)col, (double)v);
            if (!same)
                return;
        }
}

static void compare(const struct rank *r, const struct narrow_case *c, const char *what, const char *fused,
                    const char *whole, size_t bytes)
{
    char *have = malloc(bytes), *want = malloc(bytes);
    CUDA(cudaMemcpy(have, fused, bytes, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(want, whole, bytes, cudaMemcpyDeviceToHost));
    EXPECT(!memcmp(have, want, bytes), "rank %d: %s: %s differs from the whole GEMM's", r->rank, c->name, what);
    free(have);
    free(want);
}

struct second {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event;
};

static void gather_scales(const struct rank *r, const struct shape *s, const struct memory *mem, ncclComm_t comm,
                          cudaStream_t stream)
{
    NCCL(ncclAllGather(mem->sx_send + (size_t)r->rank * s->sx_shard, mem->sx, s->sx_shard / sizeof(float), ncclFloat32,
                       comm, stream));
}

/* Rank 0's come 30 ms late. */
static void gather_elsewhere(const struct rank *r, const struct shape *s, const struct memory *mem,
                             const struct second *other)
{
    if (r->rank == 0)
        usleep(30000);
    gather_scales(r, s, mem, other->comm, other->stream);
    CUDA(cudaEventRecord(other->event, other->stream));
    CUDA(cudaStreamWaitEvent(r->stream, other->event, 0));
}

/* What rank r sends is what it has got from the next one. */
static void gather_of_large(const struct rank *r, const struct shape *s, const struct memory *mem)
{
    const size_t next = (size_t)((r->rank + 1) % r->nranks);
    if (r->rank == 0)
        usleep(30000);
    NCCL(ncclAllGather(mem->recv + next * s->shard, mem->side, 64, ncclUint8, r->comm, r->stream));
}

static void check_of_large(const struct rank *r, const struct narrow_case *c, const struct memory *mem, uint64_t seed)
{
    uint8_t have[64], want[64];
    for (int owner = 0; owner < r->nranks; owner++) {
        CUDA(cudaMemcpy(have, mem->side + owner * 64, 64, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < 64; i++)
            put_value(c->x, want, i, (float)small(seed + (uint64_t)((owner + 1) % r->nranks), i));
        EXPECT(!memcmp(have, want, 64), "rank %d: %s: the small gather sent what had not come yet", r->rank, c->name);
    }
}

static void round_of(const struct rank *r, const struct narrow_case *c, const struct shape *s, const struct memory *mem,
                     cublasLtHandle_t handle, const struct second *other, uint64_t seed)
{
    const size_t bytes = s->d * elem_of(c->d);
    char *have = malloc(bytes);
    load(r, c, s, mem, seed);
    const char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard * elem_of(c->x) : mem->send;
    if (c->scales == BEFORE)
        gather_scales(r, s, mem, r->comm, r->stream);
    NCCL(ncclAllGather(send, mem->recv, s->shard * elem_of(c->x), c->fast ? ncclFloat8e4m3 : ncclUint8, r->comm,
                       r->stream));
    if (c->scales == BEHIND)
        gather_scales(r, s, mem, r->comm, r->stream);
    if (c->scales == ELSEWHERE)
        gather_elsewhere(r, s, mem, other);
    if (c->scales == OF_LARGE)
        gather_of_large(r, s, mem);
    matmul(c, s, mem, handle, &mem->fused, r->stream);
    CUDA(cudaMemcpyAsync(have, mem->fused.d, bytes, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    check(r, c, s, seed, have);
    if (c->scales == OF_LARGE)
        check_of_large(r, c, mem, seed);
    matmul(c, s, mem, handle, &mem->whole, r->stream);
    CUDA(cudaStreamSynchronize(r->stream));
    compare(r, c, "D", mem->fused.d, mem->whole.d, bytes);
    compare(r, c, "the auxiliary matrix", mem->fused.aux, mem->whole.aux, s->aux);
    compare(r, c, "the gradient", mem->fused.vector, mem->whole.vector, s->vector * 4);
    compare(r, c, "the largest value", mem->fused.amax, mem->whole.amax, 4);
    free(have);
}

static void body(struct rank *r)
{
    const struct narrow_case *c = r->arg;
    const struct shape s = shape_of(c, r->nranks);
    struct second other = {.comm = NULL};
    cublasLtHandle_t handle;
    rank_open(r);
    struct memory mem = allocate(c, &s);
    BLAS(cublasLtCreate(&handle));
    if (c->scales == ELSEWHERE) {
        NCCL(ncclCommSplit(r->comm, 0, r->rank, &other.comm, NULL));
        CUDA(cudaStreamCreateWithFlags(&other.stream, cudaStreamNonBlocking));
        CUDA(cudaEventCreateWithFlags(&other.event, cudaEventDisableTiming));
    }
    for (uint64_t round = 0; round < rounds; round++)
        round_of(r, c, &s, &mem, handle, &other, 1000 + 500 * round);
    if (other.comm) {
        CUDA(cudaEventDestroy(other.event));
        CUDA(cudaStreamDestroy(other.stream));
        NCCL(ncclCommDestroy(other.comm));
    }
    BLAS(cublasLtDestroy(handle));
    release(&mem);
    rank_close(r);
    if (wrong)
        exit(1);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0;
    if (argc > 3)
        rounds = strtoull(argv[3], NULL, 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc == 2 && !strcmp(argv[1], "list"))
            puts(cases[i].name);
        else if (argc >= 3 && n >= 1 && n <= 64 && !strcmp(argv[2], cases[i].name))
            return ranks_run(n, 60, body, (void *)(uintptr_t)&cases[i]);
    }
    if (argc == 2 && !strcmp(argv[1], "list"))
        return 0;
    fprintf(stderr, "usage: fuse_narrow RANKS CASE [ROUNDS] | fuse_narrow list\n");
    return 2;
}
