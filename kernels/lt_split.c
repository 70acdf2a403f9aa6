/* SPDX-License-Identifier: Apache-2.0 */
/* What a cublasLtMatmul has besides its matrices: scale factors, a bias or its gradient, an auxiliary
 * matrix, largest values. Where they lie, and how a part of the GEMM (gemm.h) addresses them.
 *
 * Scale factors of A and B, by mode; `outer` is the operand's dimension along D, `inner` the one that
 * is summed over. From the cuBLAS manual, "Narrow Precision Data Types Usage":
 *
 *   mode             stored                                             of the operand that is cut
 *   SCALAR_32F       one float                                          the same for all parts
 *   OUTER_VEC_32F    a float for each of `outer`                        moved
 *   BLK128x128_32F   a column of ceil(inner / 128) floats, rounded up   moved by columns: parts
 *                    to 4, for each 128 of `outer`                      begin at multiples of 128
 *   VEC16_UE4M3,     bytes in tiles of 128 (outer) by 4 (blocks of 16   moved by rows of tiles:
 *   VEC32_UE8M0      or 32 of inner), the tiles of 128 of outer one     parts begin at multiples
 *                    behind the other                                   of 128
 *   VEC128_32F       `outer` floats for each 128 of inner, without a    can not be cut: a part would
 *                    stride that could be set                           need another stride
 *
 * Those of the other operand are the same for all parts. Where the parts are summands, blocks along
 * the inner dimension are not cut. docs/numerics.md has the rest: bias, its gradients, auxiliary
 * matrix, largest values. */
#include "kernels/gemm_lt.h"

enum {
    TILE = 128,        /* outer elements of a tile or block of scale factors */
    TILE_BLOCKS = 4,   /* blocks along the inner dimension of a tile */
    NARROW_GRAIN = 16, /* elements: 8-bit matrices are addressed by 16 bytes */
    BITS_GRAIN = 128   /* rows: ReLU's bits are written in units of 16 bytes */
};

/* The bits that cublasLtEpilogue_t is made of. */
enum {
    RELU = CUBLASLT_EPILOGUE_RELU,
    BIAS = CUBLASLT_EPILOGUE_BIAS,
    DRELU = 8,
    BGRAD = 16,
    GELU = CUBLASLT_EPILOGUE_GELU,
    DGELU = 64,
    AUX = 128,
    BGRADA = CUBLASLT_EPILOGUE_BGRADA,
    BGRADB = CUBLASLT_EPILOGUE_BGRADB
};
_Static_assert(CUBLASLT_EPILOGUE_DRELU_BGRAD == (DRELU | BGRAD | AUX) &&
                   CUBLASLT_EPILOGUE_DGELU_BGRAD == (DGELU | BGRAD | AUX) &&
                   CUBLASLT_EPILOGUE_GELU_AUX_BIAS == (GELU | AUX | BIAS),
               "as the header of cuBLASLt composes them");

bool slr_lt_epilogue_known(uint32_t epilogue)
{
    switch (epilogue) {
    case 0: /* as the default one */
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    default:
        return false;
    }
}

/* ---- the vector at BIAS_POINTER ---- */

static bool writes_vector(const struct slr_lt_op *op)
{
    return op->bias && (op->epilogue & (BGRAD | BGRADA | BGRADB));
}

static bool has_vector(const struct slr_lt_op *op)
{
    return writes_vector(op) || (op->bias && (op->epilogue & BIAS));
}

static bool narrow(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* Not set, it is D's; but beside 8-bit operands it is one of 16 bits, whatever D is. */
static size_t vector_elem(const struct slr_lt_op *op, const struct slr_gemm *gemm)
{
    if (op->bias_type >= 0)
        return slr_gemm_type_bytes((cudaDataType)op->bias_type);
    return narrow(gemm->atype) || narrow(gemm->btype) ? 2 : slr_gemm_type_bytes(gemm->ctype);
}

/* ---- the auxiliary matrix ---- */

static bool has_aux(const struct slr_lt_op *op)
{
    return op->aux && (op->epilogue & AUX);
}

static bool aux_is_bits(const struct slr_lt_op *op)
{
    return (op->epilogue & (RELU | DRELU)) != 0;
}

static bool writes_aux(const struct slr_lt_op *op)
{
    return has_aux(op) && !(op->epilogue & (DRELU | DGELU));
}

static size_t aux_elem(const struct slr_lt_op *op, const struct slr_gemm *gemm)
{
    return slr_gemm_type_bytes(op->aux_type < 0 ? gemm->ctype : (cudaDataType)op->aux_type);
}

/* Bytes before row (column) `at` of it. */
static size_t aux_offset(const struct slr_lt_op *op, const struct slr_gemm *gemm, bool row, int64_t at)
{
    const size_t elements = (size_t)(row ? at : at * op->aux_ld);
    return aux_is_bits(op) ? elements / 8 : elements * aux_elem(op, gemm);
}

static struct slr_extent aux_extent(const struct slr_lt_op *op, const struct slr_gemm *gemm)
{
    if (!aux_is_bits(op))
        return slr_gemm_extent(op->aux, gemm->m, gemm->n, op->aux_ld, aux_elem(op, gemm));
    /* Whole columns, as kernels write whole words. */
    return slr_gemm_extent(op->aux, op->aux_ld / 8, gemm->n, op->aux_ld / 8, 1);
}

/* ---- scale factors ---- */

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t up(int64_t n, int64_t by)
{
    return over(n, by) * by;
}

/* Bytes for 128 of the outer dimension: a row of tiles, or a column of blocks. */
static size_t stripe_bytes(int32_t mode, int64_t inner)
{
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
        return (size_t)up(over(inner, TILE), TILE_BLOCKS) * sizeof(float);
    return (size_t)up(over(inner, mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 ? 16 : 32), TILE_BLOCKS) * TILE;
}

/* 0: a mode that is not known. */
static size_t scale_bytes(int32_t mode, int64_t outer, int64_t inner)
{
    switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
        return sizeof(float);
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
        return (size_t)outer * sizeof(float);
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
        return (size_t)(outer * over(inner, TILE)) * sizeof(float);
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
        return (size_t)over(outer, TILE) * stripe_bytes(mode, inner);
    default:
        return 0;
    }
}

/* Bytes before those of outer element `at`. */
static size_t scale_offset(int32_t mode, int64_t inner, int64_t at)
{
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
        return 0;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
        return (size_t)at * sizeof(float);
    return (size_t)(at / TILE) * stripe_bytes(mode, inner);
}

/* ---- memory ---- */

static const char *const mode_name[SLR_LT_SCALES] = {"A_SCALE_MODE", "B_SCALE_MODE", "C_SCALE_MODE", "D_SCALE_MODE",
                                                     "EPILOGUE_AUX_SCALE_MODE"};

static struct slr_extent bytes_at(const void *p, size_t bytes)
{
    return p ? (struct slr_extent){(uintptr_t)p, (uintptr_t)p + bytes} : (struct slr_extent){0, 0};
}

const char *slr_lt_extents(const struct slr_lt_op *op, struct slr_gemm *gemm)
{
    const int64_t length = op->epilogue & BGRADB ? gemm->n : gemm->m;
    struct slr_extent *read = gemm->read + 1, *written = gemm->written + 1;
    for (int i = 0; i < SLR_LT_SCALES; i++) {
        const int64_t outer = i == SLR_LT_SCALE_A ? gemm->m : gemm->n;
        const bool operand = i == SLR_LT_SCALE_A || i == SLR_LT_SCALE_B;
        const size_t bytes = operand || !op->scale_mode[i] ? scale_bytes(op->scale_mode[i], outer, gemm->k) : 0;
        if (!bytes)
            return mode_name[i];
        *read++ = bytes_at(op->scale_at[i], bytes);
    }
    if (has_vector(op))
        *(writes_vector(op) ? written++ : read++) = bytes_at(op->bias, (size_t)length * vector_elem(op, gemm));
    if (has_aux(op))
        *(writes_aux(op) ? written++ : read++) = aux_extent(op, gemm);
    *written++ = bytes_at(op->amax_d, sizeof(float));
    *written = bytes_at(op->amax_aux, sizeof(float));
    return NULL;
}
_Static_assert(1 + SLR_LT_SCALES + 2 <= SLR_GEMM_READS && 1 + 2 + 2 <= SLR_GEMM_WRITES, "there is room");

bool slr_lt_writes_more(const struct slr_lt_op *op)
{
    return writes_vector(op) || writes_aux(op);
}

/* ---- parts ---- */

/* Of the operand that is cut. 0: can not be cut. */
static int64_t scale_grain(const struct slr_lt_op *op, int i)
{
    const int32_t mode = op->scale_mode[i];
    if (!op->scale_at[i] || mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
        mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
        return 1;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)
        return 0;
    return TILE;
}

static bool is_block(int32_t mode)
{
    return mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && mode != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}

/* The attribute for which summands can not be made; NULL: they can. */
static const char *against_sums(const struct slr_lt_op *op)
{
    for (int i = SLR_LT_SCALE_A; i <= SLR_LT_SCALE_B; i++)
        if (op->scale_at[i] && is_block(op->scale_mode[i]))
            return mode_name[i];
    /* Later parts add to what is C for the first part alone. */
    if (op->scale_at[SLR_LT_SCALE_C])
        return "C_SCALE_POINTER";
    return op->scale_at[SLR_LT_SCALE_D] ? "D_SCALE_POINTER" : NULL;
}

static void at_least(int64_t *quantum, int64_t grain)
{
    *quantum = *quantum < grain ? grain : *quantum;
}

enum slr_reason slr_lt_may_split(const struct slr_lt_op *op, const struct slr_gemm *gemm, struct slr_gemm_split *split)
{
    const int cut = split->on_a ? SLR_LT_SCALE_A : SLR_LT_SCALE_B;
    split->attribute = op->amax_d ? "AMAX_D_POINTER" : op->amax_aux ? "EPILOGUE_AUX_AMAX_POINTER" : NULL;
    if (!split->attribute && split->sums)
        split->attribute = against_sums(op);
    if (!split->attribute && !split->sums && !scale_grain(op, cut))
        split->attribute = mode_name[cut];
    if (split->attribute)
        return SLR_R_JOIN_ATTRIBUTE;
    /* This gradient sums over the columns of D. */
    if (!split->on_a && (op->epilogue & BGRAD)) {
        split->attribute = "EPILOGUE";
        return SLR_R_JOIN_EPILOGUE;
    }
    at_least(&split->quantum, narrow(gemm->atype) || narrow(gemm->btype) ? NARROW_GRAIN : 1);
    if (!split->sums)
        at_least(&split->quantum, scale_grain(op, cut));
    if (split->on_a && has_aux(op))
        at_least(&split->quantum, aux_is_bits(op) ? BITS_GRAIN : NARROW_GRAIN);
    return SLR_R_FUSED;
}

static bool along_rows(const struct slr_lt_op *op)
{
    return !(op->epilogue & BGRADB);
}

bool slr_lt_move(struct slr_lt_op *op, const struct slr_gemm *part, bool on_a, int64_t col)
{
    const int cut = on_a ? SLR_LT_SCALE_A : SLR_LT_SCALE_B;
    const void **scale = &op->scale_at[cut];
    bool moved = false;
    if (*scale && op->scale_mode[cut] != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) {
        *scale = (const char *)*scale + scale_offset(op->scale_mode[cut], part->k, col);
        moved = true;
    }
    if (has_vector(op) && along_rows(op) == on_a) {
        op->bias = (const char *)op->bias + (size_t)col * vector_elem(op, part);
        moved = true;
    }
    if (has_aux(op)) {
        op->aux = (const char *)op->aux + aux_offset(op, part, on_a, col);
        moved = true;
    }
    return moved;
}
