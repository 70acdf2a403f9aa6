/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm computes a part of a cublasLtMatmul that was called with an algorithm.
 *
 * The first of these that there is; "fit" is by alignment, by the application's workspace, and in
 * the library's view:
 *
 *   1. the best that the library's heuristic knows for the part among those that sum as the
 *      application's algorithm does (the same implementation, number of splits and reduction), so
 *      that results are the same to the last bit
 *   2. the application's algorithm, if it fits the part
 *   3. the best of the heuristic. It may reduce partial sums as the application's algorithm does,
 *      or in the compute type, which is no less exact. What else the application asked of the
 *      heuristic is not known here.
 *
 * The application's algorithm is not the first choice because its tiles were chosen for the whole:
 * on an H200 parts took 1.1 to 2.5 times as long with it (docs/measurements.md).
 *
 * Programs call the same few shapes again and again: answers are kept in a small table.
 *
 * Thread-safe. The table's lock is held over copies of memory only; the library is asked without
 * it, so that a thread which waits in the library (lazy loading) holds nobody up. Two threads with
 * the same problem may both ask. */
#include "kernels/gemm_lt.h"

#include <pthread.h>
#include <string.h>

enum {
    ENTRIES = 128, /* a program has a few GEMM shapes, each with up to three widths of parts */
    CANDIDATES = 8,
    MATRIX_WORDS = 5,
    OP_WORDS = 17,
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
/* Of the table; the library is not called under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p | ALIGN_MOST;
    return (uint32_t)(at & -at);
}

/* What the choice may depend on of a pointer's memory: whether there is any, and its alignment. */
static uint64_t seen(const void *p)
{
    return p ? alignment(p) : 0;
}

static struct key key_of(const struct slr_lt_problem *problem)
{
    const struct slr_lt_op *op = &problem->op;
    CUdevice device = -1;
    slr_real.cuCtxGetDevice(&device);
    struct key key = {{(uintptr_t)problem->handle, (uint64_t)device, problem->workspace_bytes, alignment(op->bias),
                       (uint64_t)op->compute, (uint64_t)op->scale, (uint64_t)op->pointer_mode, (uint64_t)op->transa,
                       (uint64_t)op->transb, op->epilogue, (uint64_t)op->bias_type, (uint64_t)op->sm_count,
                       (uint64_t)op->fast_accum, seen(op->aux), (uint64_t)op->aux_ld, (uint64_t)op->aux_type}};
    uint64_t *word = key.word + 4 + OP_WORDS - SLR_LT_SCALES;
    for (int i = 0; i < SLR_LT_SCALES; i++)
        *word++ = (uint64_t)op->scale_mode[i] << 32 | seen(op->scale_at[i]);
    for (int i = 0; i < SLR_LT_MATRICES; i++, word += MATRIX_WORDS) {
        const struct slr_lt_matrix *m = &problem->matrix[i];
        const uint64_t words[MATRIX_WORDS] = {m->type, m->rows, m->cols, (uint64_t)m->ld, alignment(problem->at[i])};
        memcpy(word, words, sizeof words);
    }
    memcpy(word, problem->algo->data, sizeof problem->algo->data);
    return key;
}

static struct entry *entry_of(const struct key *key)
{
    uint64_t hash = 0;
    for (int i = 0; i < WORDS; i++) {
        hash = (hash ^ key->word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return &table[hash % ENTRIES];
}

/* An algorithm that does not tell its needs is taken to have none: cublasLtMatmul is the judge
 * then. */
static bool aligned(const struct slr_lt_problem *problem)
{
    for (int i = 0; i < SLR_LT_MATRICES; i++) {
        uint32_t need = 0;
        cublasLtMatmulAlgoCapAttributes_t id =
            (cublasLtMatmulAlgoCapAttributes_t)(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES + i);
        if (slr_real.cublasLtMatmulAlgoCapGetAttribute(problem->algo, id, &need, sizeof need, NULL) ==
                CUBLAS_STATUS_SUCCESS &&
            need > alignment(problem->at[i]))
            return false;
    }
    return true;
}
_Static_assert(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES + SLR_LT_D &&
                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + SLR_LT_D,
               "the matrices' attributes follow one another");

static cublasLtMatrixLayout_t layout(const struct slr_lt_problem *problem, int i)
{
    return (cublasLtMatrixLayout_t)(uintptr_t)&problem->layout[i];
}

static bool fits(const struct slr_lt_problem *problem)
{
    cublasLtMatmulHeuristicResult_t result = {.workspaceSize = 0};
    return slr_real.cublasLtMatmulAlgoCheck(
               problem->handle, problem->desc, layout(problem, SLR_LT_A), layout(problem, SLR_LT_B),
               layout(problem, SLR_LT_C), layout(problem, SLR_LT_D), problem->algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= problem->workspace_bytes && aligned(problem);
}

/* A part of the algorithm's configuration; 0 where there is no such part. */
static uint32_t config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t id)
{
    /* Older libraries do not know newer attributes: that both algorithms lack one is no
     * difference. */
    uint32_t value = 0;
    if (slr_real.cublasLtMatmulAlgoConfigGetAttribute(algo, id, &value, sizeof value, NULL) != CUBLAS_STATUS_SUCCESS)
        value = 0;
    return value;
}

static uint64_t numerics(const cublasLtMatmulAlgo_t *algo)
{
    uint64_t flags = 0;
    if (slr_real.cublasLtMatmulAlgoCapGetAttribute(algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                                   NULL) != CUBLAS_STATUS_SUCCESS)
        flags = 0;
    return flags;
}

/* Whether two algorithms add up an element's products alike, as far as the library tells: what is
 * left to differ is the tile and how it is worked on. */
static bool sums_alike(const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b)
{
    static const cublasLtMatmulAlgoConfigAttributes_t same[] = {
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (config(a, same[i]) != config(b, same[i]))
            return false;
    return numerics(a) == numerics(b);
}

static cublasStatus_t prefer(const struct slr_lt_problem *problem, cublasLtMatmulPreference_t pref)
{
    uint64_t workspace = problem->workspace_bytes;
    /* At least the application's scheme, and reductions in the compute type, which is no less
     * exact. */
    uint32_t schemes =
        config(problem->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) | (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t r = slr_real.cublasLtMatmulPreferenceInit_internal(pref, sizeof *pref);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                          sizeof workspace);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                          sizeof schemes);
    for (int i = 0; i < SLR_LT_MATRICES && r == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t align = alignment(problem->at[i]);
        r = slr_real.cublasLtMatmulPreferenceSetAttribute(
            pref, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i), &align,
            sizeof align);
    }
    return r;
}

/* The heuristic's recommendations, best first; their number. */
static int ask(const struct slr_lt_problem *problem, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    int count = 0, good = 0;
    if (prefer(problem, &pref) != CUBLAS_STATUS_SUCCESS ||
        slr_real.cublasLtMatmulAlgoGetHeuristic(problem->handle, problem->desc, layout(problem, SLR_LT_A),
                                                layout(problem, SLR_LT_B), layout(problem, SLR_LT_C),
                                                layout(problem, SLR_LT_D), &pref, CANDIDATES, found,
                                                &count) != CUBLAS_STATUS_SUCCESS)
        return 0;
    while (good < count && found[good].state == CUBLAS_STATUS_SUCCESS &&
           found[good].workspaceSize <= problem->workspace_bytes)
        good++;
    return good;
}

static bool choose_algo(const struct slr_lt_problem *problem, cublasLtMatmulAlgo_t *out)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = ask(problem, found), i = 0;
    while (i < count && !sums_alike(&found[i].algo, problem->algo))
        i++;
    if (i < count)
        *out = found[i].algo;
    else if (fits(problem))
        *out = *problem->algo;
    else if (count > 0)
        *out = found[0].algo;
    else
        return false;
    return true;
}

static bool look_up(const struct key *key, struct entry *out)
{
    pthread_mutex_lock(&lock);
    *out = *entry_of(key);
    pthread_mutex_unlock(&lock);
    return out->used && memcmp(&out->key, key, sizeof *key) == 0;
}

static void remember_algo(const struct entry *entry)
{
    pthread_mutex_lock(&lock);
    *entry_of(&entry->key) = *entry;
    pthread_mutex_unlock(&lock);
}

bool slr_lt_algo(const struct slr_lt_problem *problem, cublasLtMatmulAlgo_t *out)
{
    struct key key = key_of(problem);
    struct entry entry;
    /* Two threads may both ask; they get the same answer, and the later one is kept. */
    if (!look_up(&key, &entry)) {
        entry = (struct entry){.used = true, .key = key};
        entry.found = choose_algo(problem, &entry.algo);
        remember_algo(&entry);
    }
    *out = entry.algo;
    return entry.found;
}
