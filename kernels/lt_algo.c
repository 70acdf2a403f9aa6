#include "kernels/lt_algo.h"

#include <string.h>

enum {
    ENTRIES = 128, /* a program has a few GEMM shapes, each with up to three widths of parts */
    MATRIX_WORDS = 5,
    OP_WORDS = 9,
    ALGO_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t),
    WORDS = 4 + OP_WORDS + SLR_LT_MATRICES * MATRIX_WORDS + ALGO_WORDS,
    ALIGN_MOST = 256 /* what cuBLASLt assumes unless it is told */
};

struct key {
    uint64_t word[WORDS];
};

struct entry {
    bool used, found;
    struct key key;
    cublasLtMatmulAlgo_t algo;
};
static struct entry table[ENTRIES];

static uint32_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p | ALIGN_MOST;
    return (uint32_t)(at & -at);
}

static struct key key_of(const struct slr_lt_problem *p)
{
    const struct slr_lt_op *op = &p->op;
    CUdevice device = -1;
    slr_real.cuCtxGetDevice(&device);
    struct key key = {{(uintptr_t)p->handle, (uint64_t)device, p->workspace_bytes, alignment(op->bias),
                       (uint64_t)op->compute, (uint64_t)op->scale, (uint64_t)op->pointer_mode, (uint64_t)op->transa,
                       (uint64_t)op->transb, op->epilogue, (uint64_t)op->bias_type, (uint64_t)op->sm_count,
                       (uint64_t)op->fast_accum}};
    uint64_t *word = key.word + 4 + OP_WORDS;
    for (int i = 0; i < SLR_LT_MATRICES; i++, word += MATRIX_WORDS) {
        const struct slr_lt_matrix *m = &p->matrix[i];
        const uint64_t words[MATRIX_WORDS] = {m->type, m->rows, m->cols, (uint64_t)m->ld, alignment(p->at[i])};
        memcpy(word, words, sizeof words);
    }
    memcpy(word, p->algo->data, sizeof p->algo->data);
    return key;
}

static struct entry *entry_of(const struct key *key)
{
    uint64_t h = 0;
    for (int i = 0; i < WORDS; i++) {
        h = (h ^ key->word[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return &table[h % ENTRIES];
}

/* An algorithm that does not tell its needs is taken to have none: cublasLtMatmul is the judge then. */
static bool aligned(const struct slr_lt_problem *p)
{
    for (int i = 0; i < SLR_LT_MATRICES; i++) {
        uint32_t need = 0;
        cublasLtMatmulAlgoCapAttributes_t id =
            (cublasLtMatmulAlgoCapAttributes_t)(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES + i);
        if (slr_real.cublasLtMatmulAlgoCapGetAttribute(p->algo, id, &need, sizeof need, NULL) ==
                CUBLAS_STATUS_SUCCESS &&
            need > alignment(p->at[i]))
            return false;
    }
    return true;
}
_Static_assert(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES + SLR_LT_D &&
                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + SLR_LT_D,
               "the matrices' attributes follow one another");

static cublasLtMatrixLayout_t layout(const struct slr_lt_problem *p, int i)
{
    return (cublasLtMatrixLayout_t)(uintptr_t)&p->layout[i];
}

static bool fits(const struct slr_lt_problem *p)
{
    cublasLtMatmulHeuristicResult_t result = {.workspaceSize = 0};
    return slr_real.cublasLtMatmulAlgoCheck(p->handle, p->desc, layout(p, SLR_LT_A), layout(p, SLR_LT_B),
                                            layout(p, SLR_LT_C), layout(p, SLR_LT_D), p->algo,
                                            &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= p->workspace_bytes && aligned(p);
}

static cublasStatus_t prefer(const struct slr_lt_problem *p, cublasLtMatmulPreference_t pref)
{
    uint64_t workspace = p->workspace_bytes;
    uint32_t scheme = 0;
    if (slr_real.cublasLtMatmulAlgoConfigGetAttribute(p->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                      sizeof scheme, NULL) != CUBLAS_STATUS_SUCCESS)
        scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    scheme |= CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t r = slr_real.cublasLtMatmulPreferenceInit_internal(pref, sizeof *pref);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                          sizeof workspace);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                                          sizeof scheme);
    for (int i = 0; i < SLR_LT_MATRICES && r == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t align = alignment(p->at[i]);
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(
            pref, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i), &align,
            sizeof align);
    }
    return r;
}

static bool ask(const struct slr_lt_problem *p, cublasLtMatmulAlgo_t *out)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    if (prefer(p, &pref) != CUBLAS_STATUS_SUCCESS ||
        slr_real.cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, layout(p, SLR_LT_A), layout(p, SLR_LT_B),
                                                layout(p, SLR_LT_C), layout(p, SLR_LT_D), &pref, 1, &result,
                                                &count) != CUBLAS_STATUS_SUCCESS ||
        count < 1 || result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > p->workspace_bytes)
        return false;
    *out = result.algo;
    return true;
}

const cublasLtMatmulAlgo_t *slr_lt_algo(const struct slr_lt_problem *p)
{
    struct key key = key_of(p);
    struct entry *e = entry_of(&key);
    if (!e->used || memcmp(&e->key, &key, sizeof key) != 0) {
        *e = (struct entry){.used = true, .key = key, .algo = *p->algo};
        e->found = fits(p) || ask(p, &e->algo);
    }
    return e->found ? &e->algo : NULL;
}
