/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_lt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* Attributes' numbers are small and dense, their values no longer than a pointer so far. */
enum { IDS = 64, VALUE = 16 };

struct field {
    int id;
    const char *name; /* as the library's header has it, for the log */
    size_t offset, size;
};
#define FIELD(prefix, name, type, member)                                                                              \
    {                                                                                                                  \
        CUBLASLT_##prefix##name, #name, offsetof(struct type, member), sizeof(((struct type *)0)->member)              \
    }

/* What a library knows, learnt from a fresh descriptor: the same whoever learns it. */
struct attribute {
    size_t size; /* 0: no such attribute */
    unsigned char fresh[VALUE];
    const struct field *field; /* where its value goes; NULL: it must be `fresh` */
};

struct kind {
    cublasStatus_t (*get)(const void *object, int id, void *value, size_t size, size_t *written);
    const struct field *fields;
    size_t count;
    atomic_bool learnt; /* `known` is complete and does not change any more */
    struct attribute known[IDS];
};
/* Held over no call of the library. */
static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;

static cublasStatus_t get_layout(const void *object, int id, void *value, size_t size, size_t *written)
{
    return slr_real.cublasLtMatrixLayoutGetAttribute((cublasLtMatrixLayout_t)(uintptr_t)object,
                                                     (cublasLtMatrixLayoutAttribute_t)id, value, size, written);
}

static cublasStatus_t get_op(const void *object, int id, void *value, size_t size, size_t *written)
{
    return slr_real.cublasLtMatmulDescGetAttribute((cublasLtMatmulDesc_t)(uintptr_t)object,
                                                   (cublasLtMatmulDescAttributes_t)id, value, size, written);
}

/* The distance between the matrices of a batch says nothing when there is one. */
struct layout {
    struct slr_lt_matrix matrix;
    int32_t batch;
    int64_t stride;
};

#define LAYOUT(name, member) FIELD(MATRIX_LAYOUT_, name, layout, member)
static const struct field layout_fields[] = {
    LAYOUT(TYPE, matrix.type), LAYOUT(ROWS, matrix.rows),  LAYOUT(COLS, matrix.cols),
    LAYOUT(LD, matrix.ld),     LAYOUT(BATCH_COUNT, batch), LAYOUT(STRIDED_BATCH_OFFSET, stride),
};

#define OP(name, member) FIELD(MATMUL_DESC_, name, slr_lt_op, member)
static const struct field op_fields[] = {
    OP(COMPUTE_TYPE, compute),
    OP(SCALE_TYPE, scale),
    OP(POINTER_MODE, pointer_mode),
    OP(TRANSA, transa),
    OP(TRANSB, transb),
    OP(EPILOGUE, epilogue),
    OP(BIAS_POINTER, bias),
    OP(BIAS_DATA_TYPE, bias_type),
    OP(SM_COUNT_TARGET, sm_count),
    OP(FAST_ACCUM, fast_accum),
    OP(A_SCALE_POINTER, scale_at[SLR_LT_SCALE_A]),
    OP(B_SCALE_POINTER, scale_at[SLR_LT_SCALE_B]),
    OP(C_SCALE_POINTER, scale_at[SLR_LT_SCALE_C]),
    OP(D_SCALE_POINTER, scale_at[SLR_LT_SCALE_D]),
    OP(EPILOGUE_AUX_SCALE_POINTER, scale_at[SLR_LT_SCALE_AUX]),
    OP(A_SCALE_MODE, scale_mode[SLR_LT_SCALE_A]),
    OP(B_SCALE_MODE, scale_mode[SLR_LT_SCALE_B]),
    OP(C_SCALE_MODE, scale_mode[SLR_LT_SCALE_C]),
    OP(D_SCALE_MODE, scale_mode[SLR_LT_SCALE_D]),
    OP(EPILOGUE_AUX_SCALE_MODE, scale_mode[SLR_LT_SCALE_AUX]),
    OP(EPILOGUE_AUX_POINTER, aux),
    OP(EPILOGUE_AUX_LD, aux_ld),
    OP(EPILOGUE_AUX_DATA_TYPE, aux_type),
    OP(AMAX_D_POINTER, amax_d),
    OP(EPILOGUE_AUX_AMAX_POINTER, amax_aux),
    OP(BIAS_BATCH_STRIDE, bias_stride),
    OP(EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
};

/* Those that must be as in a fresh descriptor, by name as well. */
#define NAME(id) [CUBLASLT_MATMUL_DESC_##id] = #id
static const char *const other_names[IDS] = {
    NAME(TRANSC),
    NAME(FILL_MODE),
    NAME(ALPHA_VECTOR_BATCH_STRIDE),
    NAME(D_OUT_SCALE_POINTER),
    NAME(D_OUT_SCALE_MODE),
    [38] = "EMULATION_DESCRIPTOR", /* not in CUDA 12's header */
};
#undef NAME

static struct kind layouts = {
    .get = get_layout, .fields = layout_fields, .count = sizeof layout_fields / sizeof *layout_fields};
static struct kind ops = {.get = get_op, .fields = op_fields, .count = sizeof op_fields / sizeof *op_fields};

static const struct field *field_of(const struct kind *kind, int id)
{
    for (size_t i = 0; i < kind->count; i++)
        if (kind->fields[i].id == id)
            return &kind->fields[i];
    return NULL;
}

/* Threads that come at once learn the same, and the first to have done so publishes it. */
static void publish(struct kind *kind, const struct attribute *known)
{
    pthread_mutex_lock(&publishing);
    if (!atomic_load_explicit(&kind->learnt, memory_order_relaxed)) {
        memcpy(kind->known, known, sizeof kind->known);
        atomic_store_explicit(&kind->learnt, true, memory_order_release);
    }
    pthread_mutex_unlock(&publishing);
}

static void learn(struct kind *kind, const void *fresh)
{
    struct attribute known[IDS];
    for (int id = 0; id < IDS; id++) {
        struct attribute *attribute = &known[id];
        size_t size = 0;
        *attribute = (struct attribute){.field = field_of(kind, id)};
        if (kind->get(fresh, id, NULL, 0, &size) != CUBLAS_STATUS_SUCCESS)
            continue;
        attribute->size = size;
        if (size <= VALUE)
            kind->get(fresh, id, attribute->fresh, size, NULL);
    }
    publish(kind, known);
}

static bool learnt(const struct kind *kind)
{
    return atomic_load_explicit(&kind->learnt, memory_order_acquire);
}

static bool read_attribute(const struct kind *kind, int id, const void *object, void *out)
{
    const struct attribute *attribute = &kind->known[id];
    unsigned char value[VALUE];
    size_t written = 0;
    if (attribute->size == 0)
        return true;
    /* What can not be read whole is not understood, and keeps the GEMM whole. */
    if (attribute->size > VALUE || (attribute->field && attribute->field->size != attribute->size) ||
        kind->get(object, id, value, attribute->size, &written) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (!attribute->field)
        return memcmp(value, attribute->fresh, attribute->size) == 0;
    memcpy((char *)out + attribute->field->offset, value, attribute->size);
    return true;
}

/* -1, or the first attribute that is not understood. */
static int read_all(const struct kind *kind, const void *object, void *out)
{
    for (int id = 0; id < IDS; id++)
        if (!read_attribute(kind, id, object, out))
            return id;
    return -1;
}

enum slr_reason slr_lt_read_matrix(cublasLtMatrixLayout_t layout, struct slr_lt_matrix *out)
{
    struct layout read = {.batch = 1};
    if (!learnt(&layouts)) {
        cublasLtMatrixLayoutOpaque_t fresh;
        if (slr_real.cublasLtMatrixLayoutInit_internal(&fresh, sizeof fresh, CUDA_R_32F, 1, 1, 1) !=
            CUBLAS_STATUS_SUCCESS)
            return SLR_R_JOIN_LAYOUT;
        learn(&layouts, &fresh);
    }
    bool understood = layout && read_all(&layouts, layout, &read) < 0;
    *out = read.matrix;
    if (!understood)
        return SLR_R_JOIN_LAYOUT;
    return read.batch != 1 ? SLR_R_JOIN_BATCH : SLR_R_FUSED;
}

enum slr_reason slr_lt_read_op(cublasLtMatmulDesc_t desc, struct slr_lt_op *out, const char **attribute)
{
    *out = (struct slr_lt_op){.epilogue = CUBLASLT_EPILOGUE_DEFAULT, .bias_type = -1, .aux_type = -1};
    *attribute = NULL;
    if (!learnt(&ops)) {
        cublasLtMatmulDescOpaque_t fresh;
        if (slr_real.cublasLtMatmulDescInit_internal(&fresh, sizeof fresh, CUBLAS_COMPUTE_32F, CUDA_R_32F) !=
            CUBLAS_STATUS_SUCCESS)
            return SLR_R_JOIN_ATTRIBUTE;
        learn(&ops, &fresh);
    }
    int id = desc ? read_all(&ops, desc, out) : 0;
    if (id < 0)
        return SLR_R_FUSED;
    const struct field *field = field_of(&ops, id);
    *attribute = field ? field->name : other_names[id] ? other_names[id] : "unknown";
    return SLR_R_JOIN_ATTRIBUTE;
}

cublasStatus_t slr_lt_make_matrix(const struct slr_lt_matrix *matrix, cublasLtMatrixLayoutOpaque_t *out)
{
    return slr_real.cublasLtMatrixLayoutInit_internal(out, sizeof *out, (cudaDataType)matrix->type, matrix->rows,
                                                      matrix->cols, matrix->ld);
}

/* Sets what differs from a fresh descriptor. */
cublasStatus_t slr_lt_make_op(const struct slr_lt_op *op, cublasLtMatmulDescOpaque_t *out)
{
    cublasStatus_t r = slr_real.cublasLtMatmulDescInit_internal(out, sizeof *out, (cublasComputeType_t)op->compute,
                                                                (cudaDataType_t)op->scale);
    for (size_t i = 0; i < ops.count && r == CUBLAS_STATUS_SUCCESS; i++) {
        const struct field *field = &op_fields[i];
        const void *value = (const char *)op + field->offset;
        /* An attribute that the library at hand does not know has its default in every
         * descriptor. */
        if (ops.known[field->id].size == field->size && memcmp(value, ops.known[field->id].fresh, field->size) != 0)
            r = slr_real.cublasLtMatmulDescSetAttribute(out, (cublasLtMatmulDescAttributes_t)field->id, value,
                                                        field->size);
    }
    return r;
}
