/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks (kernels/scatter.h) on a GPU: are they exact, and how much memory do few blocks move?
 *
 * Exact: all types, numbers of ranks, alignments and special values of tests/unit/reduce_cases.h, compared bit by bit
 * with the CPU; copies likewise; a sum of more than 2^32 elements; the same bits with any number of blocks. Then tables:
 * GB/s read and written, by the number of blocks; with a second GPU, GB/s copied from there.
 *
 * It is built with the tests. Without cmake:
 *
 *   gcc -std=gnu11 -O2 -D_GNU_SOURCE -DSLIPRING_VERSION='"0"' -DSLR_REDUCE_PTX='"kernels/reduce.ptx"' -I. \
 *     -I /usr/local/cuda/include -I FOLDER_OF_NCCL_H tests/gpu/reduce.c kernels/reduce.c kernels/reduce_ptx.S base/[^n]*.c \
 *     -o reduce -ldl -lm -lpthread
 *
 * usage: reduce [--quick | --table]
 *   --quick   small sizes, as on the software GPU
 *   --table   only the tables
 */
#include "kernels/reduce_args.h"
#include "kernels/scatter.h"
#include "tests/unit/reduce_cases.h"

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuCtxEnablePeerAccess)                                                                                           \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuGetErrorName)                                                                                                  \
    X(cuThreadExchangeStreamCaptureMode)                                                                               \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemGetInfo)                                                                                                    \
    X(cuMemcpyHtoDAsync)                                                                                               \
    X(cuMemcpyDtoH)                                                                                                    \
    X(cuMemcpyDtoDAsync)                                                                                               \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamSynchronize)                                                                                             \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuEventElapsedTime)                                                                                              \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleUnload)                                                                                                  \
    X(cuModuleGetFunction)                                                                                             \
    X(cuFuncGetAttribute)                                                                                              \
    X(cuLaunchKernel)

#include "driver.h"

static CUstream stream;
static struct slr_reduce kernels;
static int failures;
static bool quick;

static void say(bool right, const char *what, const char *why)
{
    printf("%-40s %s%s\n", what, right ? "exact" : "WRONG: ", right ? "" : why);
    failures += !right;
}

static CUcontext open_device(void)
{
    CUdevice device;
    CUcontext ctx;
    char name[100] = "";
    load_driver();
#define REAL(fn) slr_real.fn = cu.fn
    REAL(cuGetErrorName);
    REAL(cuThreadExchangeStreamCaptureMode);
    REAL(cuModuleLoadData);
    REAL(cuModuleUnload);
    REAL(cuModuleGetFunction);
    REAL(cuFuncGetAttribute);
    REAL(cuLaunchKernel);
    *(void **)&slr_real.cuFuncLoad = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuFuncLoad");
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDeviceGetName(name, sizeof name, device));
    CHECK(cu.cuDevicePrimaryCtxRetain(&ctx, device));
    CHECK(cu.cuCtxSetCurrent(ctx));
    CHECK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    double begin = now_us();
    if (slr_reduce_load(&kernels) != SLR_OK) {
        fprintf(stderr, "reduce: the kernels can not be loaded\n");
        exit(1);
    }
    printf("%s; kernels loaded in %.0f ms\n\n", name, (now_us() - begin) / 1e3);
    return ctx;
}

static void sum(int type, CUdeviceptr out, CUdeviceptr also, const CUdeviceptr *in, int n, size_t count, float divisor,
                unsigned blocks)
{
    const void *from[SLR_REDUCE_RANKS];
    for (int r = 0; r < n; r++)
        from[r] = (const void *)in[r];
    if (slr_reduce(&kernels, stream, (enum slr_reduce_type)type, (void *)out, (void *)also, from, n, count, divisor,
                   blocks) != SLR_OK) {
        fprintf(stderr, "reduce: the launch failed\n");
        exit(1);
    }
}

/* ---- exact ---- */

static CUdeviceptr arena_device;
static size_t arena_bytes;

static void run_case(const struct reduce_case *c, unsigned char *arena, size_t bytes)
{
    CUdeviceptr in[CASE_RANKS];
    if (bytes > arena_bytes) {
        if (arena_bytes)
            CHECK(cu.cuMemFree(arena_device));
        CHECK(cu.cuMemAlloc(&arena_device, bytes));
        arena_bytes = bytes;
    }
    CHECK(cu.cuMemcpyHtoDAsync(arena_device, arena, bytes, stream));
    for (int r = 0; r < c->n; r++)
        in[r] = arena_device + case_at(c, r);
    sum(c->type, arena_device + case_at(c, c->n), c->also ? arena_device + case_at(c, c->n + 1) : 0, in, c->n, c->count,
        c->divisor, c->blocks);
    CHECK(cu.cuStreamSynchronize(stream));
    CHECK(cu.cuMemcpyDtoH(arena, arena_device, bytes));
}

static void all_cases(int type)
{
    char what[64];
    const char *wrong = case_try_all(type, run_case);
    snprintf(what, sizeof what, "%s, all cases", case_type_names[type]);
    say(!wrong, what, wrong ? wrong : "");
    struct reduce_case large = {
        .type = type, .n = 8, .count = quick ? 70001 : 5000011, .divisor = 8, .in_place = 3, .also_at = -1};
    wrong = case_try(&large, run_case);
    snprintf(what, sizeof what, "%s, %zu elements of 8 ranks", case_type_names[type], large.count);
    say(!wrong, what, wrong ? wrong : "");
}

/* The first `bytes` of m again and again, up to `all`. */
static void repeat(CUdeviceptr m, size_t bytes, size_t all)
{
    for (size_t have = bytes; have < all;) {
        size_t n = all - have < have ? all - have : have;
        CHECK(cu.cuMemcpyDtoDAsync(m + have, m, n, stream));
        have += n;
    }
}

enum { PERIOD = 1 << 20 }; /* elements */

/* Whether each PERIOD of m has these values, and the rest of m as many of them. */
static bool repeats(CUdeviceptr m, const void *values, size_t bytes, size_t all)
{
    char *seen = malloc(bytes);
    bool same = true;
    for (size_t at = 0; at < all && same; at += bytes) {
        size_t n = all - at < bytes ? all - at : bytes;
        CHECK(cu.cuMemcpyDtoH(seen, m + at, n));
        same = !memcmp(seen, values, n);
    }
    free(seen);
    return same;
}

/* The result in place of the second contribution. */
static void more_than_four_gib(void)
{
    const size_t count = (quick ? 0 : (size_t)4096 * PERIOD) + PERIOD + 77, bytes = count * 2, period = PERIOD * 2;
    struct reduce_case c = {
        .type = CASE_BF16, .n = 2, .count = PERIOD, .divisor = 1, .span = period, .in_place = -1, .also_at = -1};
    unsigned char *values = malloc(3 * period + CASE_GUARD);
    size_t free_bytes, total;
    CUdeviceptr in[2];
    uint64_t seed = 3;

    CHECK(cu.cuMemGetInfo(&free_bytes, &total));
    if (free_bytes < 2 * bytes + ((size_t)1 << 30)) {
        printf("%-40s left out: there is no room\n", "more than 2^32 elements");
        free(values);
        return;
    }
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < PERIOD; i++)
            case_store(c.type, values + case_at(&c, r), i, case_spread(c.type, case_random(&seed)));
    for (size_t i = 0; i < PERIOD; i++)
        case_store(c.type, values + case_at(&c, 2), i, case_sum(&c, values, i));
    for (int r = 0; r < 2; r++) {
        CHECK(cu.cuMemAlloc(&in[r], bytes));
        CHECK(cu.cuMemcpyHtoDAsync(in[r], values + case_at(&c, r), period, stream));
        repeat(in[r], period, bytes);
    }
    sum(c.type, in[1], 0, in, 2, count, 1, 16);
    CHECK(cu.cuStreamSynchronize(stream));
    say(repeats(in[1], values + case_at(&c, 2), period, bytes), quick ? "many elements" : "more than 2^32 elements",
        "");
    say(repeats(in[0], values + case_at(&c, 0), period, bytes), "and its other contribution", "was changed");
    for (int r = 0; r < 2; r++)
        CHECK(cu.cuMemFree(in[r]));
    free(values);
}

static void same_bits(void)
{
    enum { N = 8 };
    const size_t count = (quick ? 1 << 16 : 1 << 24) + 13, bytes = count * 2;
    uint16_t *values = malloc(bytes), *first = malloc(bytes), *again = malloc(bytes);
    CUdeviceptr in[N], out;
    uint64_t seed = 5;
    bool same = true;
    for (int r = 0; r < N; r++) {
        for (size_t i = 0; i < count; i++)
            values[i] = (uint16_t)case_spread(CASE_BF16, case_random(&seed));
        CHECK(cu.cuMemAlloc(&in[r], bytes));
        CHECK(cu.cuMemcpyHtoDAsync(in[r], values, bytes, stream));
        CHECK(cu.cuStreamSynchronize(stream)); /* `values` is used again */
    }
    CHECK(cu.cuMemAlloc(&out, bytes));
    for (unsigned run = 0; run < 20; run++) {
        CHECK(cu.cuMemsetD8Async(out, 0x55, bytes, stream));
        sum(CASE_BF16, out, 0, in, N, count, 1, 1 + run * 7);
        CHECK(cu.cuStreamSynchronize(stream));
        CHECK(cu.cuMemcpyDtoH(run ? again : first, out, bytes));
        same = same && (!run || !memcmp(first, again, bytes));
    }
    say(same, "the same bits with 1 to 134 blocks", "");
    for (int r = 0; r < N; r++)
        CHECK(cu.cuMemFree(in[r]));
    CHECK(cu.cuMemFree(out));
    free(values);
    free(first);
    free(again);
}

/* ---- how fast ---- */

/* GB/s read and written by sums of n contributions; the best of several. */
static double rate(CUdeviceptr out, const CUdeviceptr *in, int n, size_t bytes, unsigned blocks)
{
    enum { ROUNDS = 5, EACH = 4 };
    CUevent begin, end;
    double best = 0;
    CHECK(cu.cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cu.cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (int round = 0; round < ROUNDS; round++) {
        float ms = 0;
        CHECK(cu.cuEventRecord(begin, stream));
        for (int i = 0; i < EACH; i++)
            sum(CASE_BF16, out, 0, in, n, bytes / 2, 1, blocks);
        CHECK(cu.cuEventRecord(end, stream));
        CHECK(cu.cuStreamSynchronize(stream));
        CHECK(cu.cuEventElapsedTime(&ms, begin, end));
        double gbs = (double)bytes * (n + 1) * EACH / ((double)ms * 1e6);
        best = gbs > best ? gbs : best;
    }
    return best;
}

static void table(void)
{
    enum { MOST = 8 };
    static const unsigned blocks[] = {1, 2, 4, 8, 16, 32, 64, 128};
    const size_t bytes = quick ? 1 << 20 : 64 << 20, gap = 4096;
    CUdeviceptr in[MOST], off[MOST], m;
    CHECK(cu.cuMemAlloc(&m, (bytes + gap) * (MOST + 1)));
    CHECK(cu.cuMemsetD8Async(m, 0, (bytes + gap) * (MOST + 1), stream));
    CUdeviceptr out = m + (bytes + gap) * MOST;
    for (int r = 0; r < MOST; r++) {
        in[r] = m + (bytes + gap) * (size_t)r;
        off[r] = in[r] + 2 * (CUdeviceptr)r;
    }
    printf("\nGB/s read and written, bf16, contributions of %zu MiB\n\n", bytes >> 20);
    printf("| blocks | 2 contributions | 8 contributions | 8, not aligned alike |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        printf("| %u | %.0f | %.0f | %.0f |\n", blocks[i], rate(out, in, 2, bytes, blocks[i]),
               rate(out, in, MOST, bytes, blocks[i]), rate(out, off, MOST, bytes, blocks[i]));
    CHECK(cu.cuMemFree(m));
}

/* GB/s; the best of several. */
static double copy_rate(CUdeviceptr to, CUdeviceptr from, size_t bytes, unsigned blocks)
{
    const CUdeviceptr in[] = {from};
    CUevent begin, end;
    double best = 0;
    CHECK(cu.cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cu.cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (int round = 0; round < 5; round++) {
        float ms = 0;
        CHECK(cu.cuEventRecord(begin, stream));
        for (int i = 0; i < 4; i++)
            sum(CASE_BYTE, to, 0, in, 1, bytes, 1, blocks);
        CHECK(cu.cuEventRecord(end, stream));
        CHECK(cu.cuStreamSynchronize(stream));
        CHECK(cu.cuEventElapsedTime(&ms, begin, end));
        const double gbs = (double)bytes * 4 / ((double)ms * 1e6);
        best = gbs > best ? gbs : best;
    }
    return best;
}

/* From memory of the second device, which its context has. */
static void copies_table(CUcontext own)
{
    static const unsigned blocks[] = {4, 8, 12, 16, 24, 32, 64};
    const size_t bytes = quick ? 1 << 20 : 256 << 20;
    int devices = 0;
    CUcontext other;
    CUdeviceptr to, from;
    CHECK(cu.cuDeviceGetCount(&devices));
    if (devices < 2)
        return;
    CHECK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    CHECK(cu.cuCtxSetCurrent(other));
    CHECK(cu.cuMemAlloc(&from, bytes + 16));
    CHECK(cu.cuCtxSetCurrent(own));
    CHECK(cu.cuMemAlloc(&to, bytes));
    CHECK(cu.cuCtxEnablePeerAccess(other, 0));
    printf("\nGB/s copied from another GPU, %zu MiB\n\n", bytes >> 20);
    printf("| blocks | aligned alike | 1 byte apart |\n| --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        printf("| %u | %.0f | %.0f |\n", blocks[i], copy_rate(to, from, bytes, blocks[i]),
               copy_rate(to, from + 1, bytes, blocks[i]));
    CHECK(cu.cuMemFree(to));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *option = argc > 1 ? argv[1] : "";
    if (argc > 2 || (option[0] && strcmp(option, "--quick") && strcmp(option, "--table"))) {
        fprintf(stderr, "reduce: expected --quick or --table, not %s\n", argv[argc - 1]);
        return 2;
    }
    quick = !strcmp(option, "--quick");
    const CUcontext ctx = open_device();
    if (!strcmp(option, "--table")) {
        table();
        copies_table(ctx);
        slr_reduce_unload(&kernels);
        return 0;
    }
    for (int type = 0; type < CASE_TYPES; type++)
        all_cases(type);
    const char *wrong = case_try_all(CASE_BYTE, run_case);
    say(!wrong, "copies, all cases", wrong ? wrong : "");
    more_than_four_gib();
    same_bits();
    table();
    copies_table(ctx);
    slr_reduce_unload(&kernels);
    printf("\n%s\n", failures ? "reduce: WRONG sums or copies" : "reduce: all sums are exact");
    return failures != 0;
}
