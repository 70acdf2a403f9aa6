/* SPDX-License-Identifier: Apache-2.0 */
/* What a cublasLtMatmul has besides its matrices: extents, and what a part is given. */
#include <criterion/criterion.h>
#include <string.h>
#include "kernels/gemm_lt.h"

enum { M = 512, N = 768, K = 640, LINES = 5 /* of 128 in K */, AUX_LD = 640 };
static char scales[8][1 << 20], aux[1 << 20], bias[1 << 16];

static struct slr_gemm gemm(void)
{
    return (struct slr_gemm){
        .m = M, .n = N, .k = K, .batch = 1, .atype = CUDA_R_8F_E4M3, .btype = CUDA_R_8F_E4M3, .ctype = CUDA_R_16BF};
}

static struct slr_lt_op op(void)
{
    return (struct slr_lt_op){.epilogue = CUBLASLT_EPILOGUE_DEFAULT, .bias_type = -1, .aux_type = -1};
}

static bool one_of(const struct slr_extent *list, int n, const void *p, size_t bytes)
{
    for (int i = 0; i < n; i++)
        if (list[i].begin == (uintptr_t)p && list[i].end == (uintptr_t)p + bytes)
            return true;
    return false;
}

static size_t read_bytes(int32_t mode, int which)
{
    struct slr_gemm g = gemm();
    struct slr_lt_op o = op();
    o.scale_at[which] = scales[which];
    o.scale_mode[which] = mode;
    cr_assert_null(slr_lt_extents(&o, &g));
    for (int i = 1; i < SLR_GEMM_READS; i++)
        if (g.read[i].begin == (uintptr_t)scales[which])
            return g.read[i].end - g.read[i].begin;
    return 0;
}

Test(lt_split, scale_factors_are_read)
{
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, SLR_LT_SCALE_A), 4);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, SLR_LT_SCALE_A), 4 * M);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, SLR_LT_SCALE_B), 4 * N);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, SLR_LT_SCALE_B), 4 * N * LINES);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, SLR_LT_SCALE_A), 4 * 8 * M / 128);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, SLR_LT_SCALE_B), N * K / 32);
    cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, SLR_LT_SCALE_B), N * K / 16);
    for (int i = SLR_LT_SCALE_C; i < SLR_LT_SCALES; i++)
        cr_expect_eq(read_bytes(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, i), 4);
}

Test(lt_split, everything_at_once_has_room)
{
    struct slr_gemm g = gemm();
    struct slr_lt_op o = op();
    for (int i = 0; i < SLR_LT_SCALES; i++)
        o.scale_at[i] = scales[i];
    o.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    o.aux = aux;
    o.aux_ld = AUX_LD;
    o.bias = bias;
    o.amax_d = scales[6];
    o.amax_aux = scales[7];
    cr_assert_null(slr_lt_extents(&o, &g));
    for (int i = 0; i < SLR_LT_SCALES; i++)
        cr_expect(one_of(g.read, SLR_GEMM_READS, scales[i], 4));
    cr_expect(one_of(g.read, SLR_GEMM_READS, aux, (AUX_LD * (N - 1) + M) * 2));
    cr_expect(one_of(g.written, SLR_GEMM_WRITES, bias, M * 2), "of 16 bits beside 8-bit operands");
    cr_expect(one_of(g.written, SLR_GEMM_WRITES, scales[6], 4) && one_of(g.written, SLR_GEMM_WRITES, scales[7], 4));
    o.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    g = gemm();
    cr_assert_null(slr_lt_extents(&o, &g));
    cr_expect(one_of(g.written, SLR_GEMM_WRITES, aux, AUX_LD / 8 * N));
    cr_expect(one_of(g.read, SLR_GEMM_READS, bias, M * 2));
    o.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    g = gemm();
    cr_assert_null(slr_lt_extents(&o, &g));
    cr_expect(one_of(g.written, SLR_GEMM_WRITES, bias, N * 2));
    cr_expect_not(one_of(g.written, SLR_GEMM_WRITES, aux, AUX_LD / 8 * N), "which this epilogue does not have");
}

/* Where the part's factors of the operand that is cut begin; -1: it can not be cut. */
static long offset(int32_t mode, bool on_a, int64_t col, int64_t *quantum)
{
    const int cut = on_a ? SLR_LT_SCALE_A : SLR_LT_SCALE_B, other = on_a ? SLR_LT_SCALE_B : SLR_LT_SCALE_A;
    struct slr_gemm_split s = {.on_a = on_a, .quantum = 1};
    struct slr_gemm g = gemm();
    struct slr_lt_op o = op();
    o.scale_at[cut] = scales[cut];
    o.scale_at[other] = scales[other];
    o.scale_mode[0] = o.scale_mode[1] = mode;
    enum slr_reason r = slr_lt_may_split(&o, &g, &s);
    *quantum = s.quantum;
    if (r != SLR_R_FUSED) {
        cr_expect_eq(r, SLR_R_JOIN_ATTRIBUTE);
        cr_expect_str_eq(s.attribute, on_a ? "A_SCALE_MODE" : "B_SCALE_MODE");
        return -1;
    }
    cr_expect_eq(slr_lt_move(&o, &g, on_a, col), mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
    cr_expect_eq(o.scale_at[other], scales[other], "the other operand's stay");
    return (const char *)o.scale_at[cut] - scales[cut];
}

Test(lt_split, scale_factors_of_a_part)
{
    int64_t q;
    for (int on_a = 0; on_a < 2; on_a++) {
        cr_expect(offset(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, on_a, 48, &q) == 0 && q == 16);
        cr_expect(offset(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, on_a, 48, &q) == 48 * 4 && q == 16);
        cr_expect(offset(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, on_a, 384, &q) == 3 * 8 * 4 && q == 128);
        cr_expect(offset(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, on_a, 256, &q) == 256 * K / 32 && q == 128);
        cr_expect(offset(CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, on_a, 128, &q) == 128 * K / 16 && q == 128);
        cr_expect_eq(offset(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, on_a, 128, &q), -1);
    }
}

/* What `epilogue` does to a part in bf16: the offsets of vector and auxiliary matrix. */
static enum slr_reason part(uint32_t epilogue, bool on_a, long *vector, long *matrix, int64_t *quantum)
{
    struct slr_gemm_split s = {.on_a = on_a, .quantum = 1};
    struct slr_gemm g = gemm();
    struct slr_lt_op o = op();
    g.atype = g.btype = CUDA_R_16BF;
    o.epilogue = epilogue;
    o.bias = bias;
    o.aux = aux;
    o.aux_ld = AUX_LD;
    enum slr_reason r = slr_lt_may_split(&o, &g, &s);
    slr_lt_move(&o, &g, on_a, 128);
    *vector = (const char *)o.bias - bias;
    *matrix = (const char *)o.aux - aux;
    *quantum = s.quantum;
    return r;
}
#define PART(e, on_a, v, x, q)                                                                                         \
    do {                                                                                                               \
        long vector, matrix;                                                                                           \
        int64_t quantum;                                                                                               \
        cr_expect_eq(part(CUBLASLT_EPILOGUE_##e, on_a, &vector, &matrix, &quantum), SLR_R_FUSED);                      \
        cr_expect(vector == (v) && matrix == (x) && quantum == (q), #e ": %ld %ld %ld", vector, matrix,                \
                  (long)quantum);                                                                                      \
    } while (0)

Test(lt_split, epilogues_of_a_part)
{
    long v, x;
    int64_t q;
    PART(BIAS, true, 256, 0, 1);
    PART(BIAS, false, 0, 0, 1);
    PART(GELU_AUX_BIAS, true, 256, 256, 16);
    PART(GELU_AUX_BIAS, false, 0, 128 * AUX_LD * 2, 1);
    PART(DGELU, false, 0, 128 * AUX_LD * 2, 1);
    PART(RELU_AUX, true, 0, 16, 128);
    PART(DRELU, false, 0, 128 * AUX_LD / 8, 1);
    PART(DRELU_BGRAD, true, 256, 16, 128);
    PART(BGRADA, true, 256, 0, 1);
    PART(BGRADA, false, 0, 0, 1);
    PART(BGRADB, false, 256, 0, 1);
    PART(BGRADB, true, 0, 0, 1);
    cr_expect_eq(part(CUBLASLT_EPILOGUE_DGELU_BGRAD, false, &v, &x, &q), SLR_R_JOIN_EPILOGUE);
    cr_expect_eq(part(CUBLASLT_EPILOGUE_DRELU_BGRAD, false, &v, &x, &q), SLR_R_JOIN_EPILOGUE);
}

static const char *against(void (*change)(struct slr_lt_op *o), bool sums)
{
    struct slr_gemm_split s = {.sums = sums, .quantum = 1};
    struct slr_gemm g = gemm();
    struct slr_lt_op o = op();
    change(&o);
    cr_expect_eq(slr_lt_may_split(&o, &g, &s), s.attribute ? SLR_R_JOIN_ATTRIBUTE : SLR_R_FUSED);
    return s.attribute;
}

static void amax(struct slr_lt_op *o)
{
    o->amax_d = aux;
}

static void amax_aux(struct slr_lt_op *o)
{
    o->amax_aux = aux;
}

static void c_scale(struct slr_lt_op *o)
{
    o->scale_at[SLR_LT_SCALE_C] = aux;
}

static void d_scale(struct slr_lt_op *o)
{
    o->scale_at[SLR_LT_SCALE_D] = aux;
}

static void tiles(struct slr_lt_op *o)
{
    o->scale_at[0] = o->scale_at[1] = aux;
    o->scale_mode[0] = o->scale_mode[1] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

static void rows(struct slr_lt_op *o)
{
    o->scale_at[0] = o->scale_at[1] = aux;
    o->scale_mode[0] = o->scale_mode[1] = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}

Test(lt_split, what_keeps_it_whole_is_named)
{
    cr_expect_str_eq(against(amax, false), "AMAX_D_POINTER");
    cr_expect_str_eq(against(amax_aux, false), "EPILOGUE_AUX_AMAX_POINTER");
    cr_expect_null(against(c_scale, false));
    cr_expect_null(against(d_scale, false));
    cr_expect_str_eq(against(c_scale, true), "C_SCALE_POINTER");
    cr_expect_str_eq(against(d_scale, true), "D_SCALE_POINTER");
    cr_expect_null(against(tiles, false));
    cr_expect_str_eq(against(tiles, true), "A_SCALE_MODE");
    cr_expect_null(against(rows, true));
}
