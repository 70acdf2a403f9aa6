/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include "kernels/gemm.h"
#include "kernels/ring.h"

enum { RANKS = 4, COLS = 6, K = 10, OTHER = 8 };
/* In this order: what follows C or the weight is the receive buffer. */
static struct {
    char out[4096 * 8], weight[OTHER * COLS * RANKS * 8], recv[RANKS * COLS * K * 8], send[COLS * K * 8];
} memory;
#define out memory.out
#define weight memory.weight
#define recv_buffer memory.recv
#define send_buffer memory.send
static const float one = 1, zero = 0;

static struct slr_gather gather(size_t elem)
{
    struct slr_gather g = {.send = (uintptr_t)send_buffer, .recv = (uintptr_t)recv_buffer};
    g.plan = slr_plan_make(COLS * K * elem, RANKS, 1u << 20, 0);
    return g;
}

/* C (OTHER x COLS * RANKS) = W' (OTHER x K) X (K x COLS * RANKS) */
static struct slr_gemm form_bn(void)
{
    return (struct slr_gemm){.api = SLR_GEMM_S,
                             .transa = CUBLAS_OP_T,
                             .transb = CUBLAS_OP_N,
                             .m = OTHER,
                             .n = COLS * RANKS,
                             .k = K,
                             .alpha = &one,
                             .beta = &zero,
                             .a = weight,
                             .b = recv_buffer,
                             .c = out,
                             .atype = CUDA_R_32F,
                             .btype = CUDA_R_32F,
                             .ctype = CUDA_R_32F,
                             .lda = K,
                             .ldb = K,
                             .ldc = OTHER,
                             .batch = 1};
}

static struct slr_gemm form_at(void)
{
    struct slr_gemm g = form_bn();
    g.a = recv_buffer;
    g.b = weight;
    g.m = COLS * RANKS;
    g.n = OTHER;
    g.ldc = g.m;
    return g;
}

static enum slr_reason reason(const struct slr_gemm *gemm)
{
    struct slr_gather g = gather(4);
    struct slr_gemm_split s;
    return slr_gemm_split_find(gemm, &g, RANKS, &s);
}

Test(gemm_split, both_forms)
{
    struct slr_gather g = gather(4);
    struct slr_gemm_split s;
    struct slr_gemm bn = form_bn(), at = form_at();
    cr_expect_eq(slr_gemm_split_find(&bn, &g, RANKS, &s), SLR_R_FUSED);
    cr_expect(!s.on_a && !s.sums && s.rows == K && s.shard_cols == COLS && s.col_bytes == K * 4);
    cr_expect_eq(slr_gemm_split_find(&at, &g, RANKS, &s), SLR_R_FUSED);
    cr_expect(s.on_a && s.shard_cols == COLS);
    at.transa = CUBLAS_OP_C;
    cr_expect_eq(slr_gemm_split_find(&at, &g, RANKS, &s), SLR_R_FUSED);
}

/* Sums: X (K x COLS * RANKS) is A with op N, or B with op T; the other operand has its columns' number of rows. */
static struct slr_gemm form_sum(bool on_a)
{
    struct slr_gemm g = on_a ? form_at() : form_bn();
    g.transa = on_a ? CUBLAS_OP_N : CUBLAS_OP_T;
    g.transb = on_a ? CUBLAS_OP_N : CUBLAS_OP_C;
    g.m = on_a ? K : OTHER;
    g.n = on_a ? OTHER : K;
    g.k = COLS * RANKS;
    g.lda = on_a ? K : g.k;
    g.ldb = on_a ? g.k : K;
    g.ldc = g.m;
    return g;
}

Test(gemm_split, sums)
{
    struct slr_gather g = gather(4);
    struct slr_gemm_split s;
    for (int on_a = 0; on_a < 2; on_a++) {
        struct slr_gemm gemm = form_sum(on_a);
        cr_expect_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_FUSED);
        cr_expect(s.sums && s.on_a == on_a && s.shard_cols == COLS && s.col_bytes == K * 4);
        cr_expect(s.rows == K && s.other == OTHER);
        gemm.k--;
        cr_expect_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_JOIN_NO_OPERAND);
    }
}

/* Each variation is refused for its own reason. */
#define REFUSED(why, change)                                                                                           \
    do {                                                                                                               \
        struct slr_gemm g = form_bn();                                                                                 \
        change;                                                                                                        \
        cr_expect_eq(reason(&g), SLR_R_##why, "%s", #change);                                                          \
    } while (0)

Test(gemm_split, refusals)
{
    REFUSED(JOIN_LD, g.transb = CUBLAS_OP_T);
    REFUSED(JOIN_LD, g.ldb = K + 1);
    REFUSED(JOIN_BATCH, (g.batch = 2, g.stride_b = COLS * K, g.stride_c = OTHER));
    REFUSED(JOIN_BATCH, (g.batch = 2, g.stride_c = 0));
    REFUSED(JOIN_BATCH, (g.batch = 2, g.stride_c = -OTHER));
    REFUSED(JOIN_BATCH, (g.batch = 2, g.stride_c = OTHER, g.stride_a = -1));
    REFUSED(JOIN_BATCH, (g.batch = 0, g.stride_c = OTHER));
    REFUSED(FUSED, (g.batch = 2, g.stride_c = OTHER));
    REFUSED(JOIN_SHAPE, g.m = 0);
    REFUSED(JOIN_SHAPE, g.k = g.ldb = 7);
    REFUSED(JOIN_NO_OPERAND, g.n = COLS * RANKS - 1);
    REFUSED(JOIN_NO_OPERAND, g.n = COLS);
    REFUSED(JOIN_NO_OPERAND, g.b = recv_buffer + 4);
    REFUSED(JOIN_TYPE, g.btype = CUDA_C_32F);
    REFUSED(JOIN_TYPE, g.atype = CUDA_C_32F);
    REFUSED(JOIN_OVERLAP, g.a = recv_buffer);
    REFUSED(JOIN_OVERLAP, g.a = recv_buffer + 40);
    REFUSED(JOIN_OVERLAP, g.c = recv_buffer + sizeof recv_buffer / 2 - 4);
    REFUSED(JOIN_OVERLAP, g.c = send_buffer + 8);
    REFUSED(JOIN_OVERLAP, g.alpha = recv_buffer + 16);
    REFUSED(JOIN_OVERLAP, g.beta = recv_buffer - 2); /* half of it */
    REFUSED(JOIN_OVERLAP, g.beta = recv_buffer + 16);
    REFUSED(JOIN_OVERLAP, g.read[0] = slr_gemm_extent(recv_buffer + 8, 4, 1, 4, 1));
    REFUSED(JOIN_OVERLAP, g.read[1] = slr_gemm_extent(recv_buffer + 8, 4, 1, 4, 1));
    REFUSED(FUSED, g.read[0] = slr_gemm_extent(send_buffer + 8, 4, 1, 4, 1));
    REFUSED(JOIN_OVERLAP, g.written[0] = slr_gemm_extent(recv_buffer + 8, 4, 1, 4, 1));
    REFUSED(JOIN_OVERLAP, g.written[0] = slr_gemm_extent(send_buffer + 8, 4, 1, 4, 1));
}

/* All matrices of a batch count: the last of them begins in the receive buffer. */
Test(gemm_split, batches)
{
    struct slr_gather g = gather(4);
    struct slr_gemm_split s;
    struct slr_gemm gemm = form_bn();
    gemm.batch = 3;
    gemm.stride_c = OTHER * gemm.n;
    gemm.stride_a = OTHER * K;
    cr_assert_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_FUSED);
    cr_expect_eq(s.other, 3 * OTHER);
    gemm.stride_c = (recv_buffer - out) / 8;
    cr_expect_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_JOIN_OVERLAP);
    gemm.stride_c = OTHER * gemm.n;
    gemm.stride_a = (recv_buffer - weight) / 8;
    cr_expect_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_JOIN_OVERLAP);
}

/* What may overtake the gather. */
Test(gemm_split, batches_apart)
{
    struct slr_gather g = gather(4);
    struct slr_gemm gemm = form_bn();
    gemm.b = weight;
    gemm.n = 4;
    gemm.batch = 3;
    gemm.stride_c = OTHER * gemm.n;
    cr_expect(slr_gemm_apart(&gemm, &g, RANKS));
    gemm.stride_b = (recv_buffer - weight) / 8;
    cr_expect(!slr_gemm_apart(&gemm, &g, RANKS));
    gemm.stride_b = -1;
    cr_expect(!slr_gemm_apart(&gemm, &g, RANKS), "not known");
}

Test(gemm_split, in_place_send_lies_in_recv)
{
    struct slr_gather g = gather(4);
    struct slr_gemm gemm = form_bn();
    struct slr_gemm_split s;
    g.send = g.recv + g.plan.shard;
    cr_expect_eq(slr_gemm_split_find(&gemm, &g, RANKS, &s), SLR_R_FUSED);
}

static struct slr_gemm part;

static cublasStatus_t record(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                             const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                             float *c, int ldc)
{
    part = (struct slr_gemm){.handle = h,
                             .transa = ta,
                             .transb = tb,
                             .m = m,
                             .n = n,
                             .k = k,
                             .alpha = alpha,
                             .a = a,
                             .lda = lda,
                             .b = b,
                             .ldb = ldb,
                             .beta = beta,
                             .c = c,
                             .ldc = ldc};
    return CUBLAS_STATUS_SUCCESS;
}

Test(gemm_split, parts)
{
    struct slr_gather g = gather(4);
    struct slr_gemm bn = form_bn(), at = form_at();
    struct slr_gemm_split s;
    slr_real.cublasSgemm = record;
    slr_gemm_split_find(&bn, &g, RANKS, &s);
    cr_assert_eq(slr_gemm_part(&bn, &s, 6, 4), CUBLAS_STATUS_SUCCESS);
    cr_expect(part.n == 4 && part.m == OTHER && part.k == K && part.a == weight);
    cr_expect(part.b == recv_buffer + 6 * K * 4 && part.c == out + 6 * OTHER * 4 && part.ldc == OTHER);
    slr_gemm_split_find(&at, &g, RANKS, &s);
    cr_assert_eq(slr_gemm_part(&at, &s, 6, 4), CUBLAS_STATUS_SUCCESS);
    cr_expect(part.m == 4 && part.n == OTHER && part.b == weight);
    cr_expect(part.a == recv_buffer + 6 * K * 4 && part.c == out + 6 * 4 && part.ldc == COLS * RANKS);
}

/* A part of a sum: columns of X, and what they are multiplied with, from op N and op T. */
Test(gemm_split, summands)
{
    struct slr_gather g = gather(4);
    struct slr_gemm_split s;
    slr_real.cublasSgemm = record;
    for (int trans = 0; trans < 2; trans++) {
        struct slr_gemm an = form_sum(true), bt = form_sum(false);
        an.transb = trans ? CUBLAS_OP_T : CUBLAS_OP_N;
        an.ldb = trans ? OTHER : an.k;
        slr_gemm_split_find(&an, &g, RANKS, &s);
        cr_assert_eq(slr_gemm_part(&an, &s, 6, 4), CUBLAS_STATUS_SUCCESS);
        cr_expect(part.k == 4 && part.m == K && part.n == OTHER && part.c == out && part.a == recv_buffer + 6 * K * 4);
        cr_expect_eq(part.b, weight + (trans ? 6 * OTHER : 6) * 4);
        bt.transa = trans ? CUBLAS_OP_T : CUBLAS_OP_N;
        bt.lda = trans ? bt.k : OTHER;
        slr_gemm_split_find(&bt, &g, RANKS, &s);
        cr_assert_eq(slr_gemm_part(&bt, &s, 6, 4), CUBLAS_STATUS_SUCCESS);
        cr_expect(part.k == 4 && part.m == OTHER && part.n == K && part.c == out && part.b == recv_buffer + 6 * K * 4);
        cr_expect_eq(part.a, weight + (trans ? 6 : 6 * OTHER) * 4);
    }
}

static const char *reads(const void *a, const void *b, int64_t n, size_t *bytes)
{
    struct slr_gather g = gather(4);
    struct slr_gemm gemm = form_bn();
    gemm.a = a;
    gemm.b = b;
    gemm.n = n;
    return slr_gemm_reads(&gemm, &g, RANKS, bytes);
}

Test(gemm_split, what_it_reads_of_the_gathered_buffer)
{
    const size_t all = (size_t)COLS * RANKS * K * 4;
    size_t bytes = 1;
    cr_expect_str_eq(reads(weight, send_buffer, COLS, &bytes), "elsewhere");
    cr_expect_eq(bytes, 0);
    cr_expect_str_eq(reads(weight, recv_buffer, COLS * RANKS, &bytes), "all");
    cr_expect_eq(bytes, all);
    cr_expect_str_eq(reads(weight, recv_buffer, COLS * RANKS / 2, &bytes), "part");
    cr_expect_eq(bytes, all / 2);
    cr_expect_str_eq(reads(weight, recv_buffer, COLS * RANKS + 1, &bytes), "more");
    cr_expect_str_eq(reads(weight, recv_buffer + 4, COLS, &bytes), "inside");
    cr_expect_eq(bytes, all / RANKS);
    cr_expect_str_eq(reads(recv_buffer, weight, COLS, &bytes), "part");
    cr_expect_eq(bytes, OTHER * K * 4);
    cr_expect_str_eq(reads(recv_buffer + 4, recv_buffer, COLS * RANKS, &bytes), "all", "the operand that begins there");
    cr_expect_str_eq(reads(weight, recv_buffer, 0, &bytes), "elsewhere", "an empty one");
}
