/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

/* What is different from a GEMM that can be fused. */
enum near {
    MATCHES,
    SUMS,      /* the other transposition: over the gathered dimension */
    PADDED,    /* leading dimension of the gathered matrix */
    ONE_LESS,  /* a column less than was gathered */
    ONE_OFF,   /* from the second column on */
    OTHER,     /* not on the gathered matrix at all */
    C_IN_SEND, /* C lies in a send buffer */
    C_BEHIND,  /* C lies in the receive buffer, behind what was gathered */
    LEADING_C, /* C has padding */
    NEARS
};
static const char *const near_names[NEARS] = {"matches",       "sums",      "padded",    "one less", "one off",
                                              "other operand", "C in send", "C in recv", "padded C"};
#define MOST_FLOP 3000000.0
#define MOST_COLUMNS 16000 /* the race oracle follows so many rows of an operation */

/* C (m x n) = A op B, one of A and B being the gathered matrix x. */
struct problem {
    enum near near;
    bool x_is_b, ta, tb, lt;
    bool across; /* the other matrix is stored with its outer size as rows */
    enum api api;
    int64_t m, n, inner, ld, ldc, other;
    size_t off, x_bytes; /* of x */
    struct buffer *x, *c;
    size_t c_off;
    float beta;
    int stream;
};

static enum api any_api(struct prog *p, const struct problem *g)
{
    static const enum api bf16[] = {API_EX_BF16, API_EX_BF16, API_EX64_BF16, API_SB_BF16, API_SB2_BF16},
                          fp32[] = {API_S, API_S, API_S64, API_EX_TF32};
    if (p->type == API_EX_FP16)
        return API_EX_FP16;
    if (p->type == API_S)
        return fp32[draw(p, LENGTH(fp32))];
    enum api api = bf16[draw(p, LENGTH(bf16))];
    if (g->other % 4 == 0 && !g->across && ONE_IN(p, 2))
        return g->x_is_b ? API_SB4_B_BF16 : API_SB4_A_BF16;
    return api == API_SB2_BF16 && (!g->x_is_b || g->tb || g->n % 2) ? API_EX_BF16 : api;
}

/* Sizes, from the k x columns matrix at x. False: nothing of that kind is possible here. */
static bool shape(struct prog *p, struct problem *g)
{
    const struct buffer *x = g->x;
    int64_t k = x->k, columns = x->columns;
    g->ld = k;
    if (g->near == PADDED) {
        g->ld = k + 1 + (int64_t)draw(p, 3);
        columns = (k * columns - k) / g->ld + 1;
    }
    columns -= g->near == ONE_LESS || g->near == ONE_OFF;
    g->off = g->near == ONE_OFF ? (size_t)k * p->elem : 0;
    if (columns < 1 || columns > MOST_COLUMNS)
        return false;
    g->x_bytes = ((size_t)(columns - 1) * (size_t)g->ld + (size_t)k) * p->elem;
    const bool sums = g->near == SUMS;
    const int64_t along = sums ? k : columns;
    g->inner = sums ? columns : k;
    g->other = 1 + (int64_t)draw(p, 16);
    g->m = g->x_is_b ? g->other : along;
    g->n = g->x_is_b ? along : g->other;
    g->across = ONE_IN(p, 2);
    g->ta = g->x_is_b ? !g->across : !sums;
    g->tb = g->x_is_b ? sums : g->across;
    g->ldc = g->m + (g->near == LEADING_C ? 1 + (int64_t)draw(p, 4) : 0);
    return (double)g->m * (double)g->n * (double)g->inner <= MOST_FLOP &&
           (size_t)(g->inner * g->other) * p->elem <= p->buffer[WEIGHT].bytes;
}

static size_t c_bytes(const struct problem *g)
{
    return (size_t)(g->ldc * (g->n - 1) + g->m) * 4;
}

/* Whether the sums are exact; and whether they may be added to what is there. */
static bool exact(struct prog *p, struct problem *g)
{
    const size_t bytes = c_bytes(g);
    const double most = (double)g->inner * SMALL * SMALL;
    const bool fp32 = g->c->wide || p->elem == 4;
    if (fp32 && g->c != g->x && g->c_off + bytes <= g->c->clean && g->c->bound + most < 1 << 24)
        g->beta = (float)draw(p, 2);
    return most < 1 << 24;
}

static bool place(struct prog *p, struct problem *g)
{
    const size_t bytes = c_bytes(g);
    g->c = &p->buffer[FIRST_OUT + (int)draw(p, OUTS)];
    g->c_off = 0;
    if (g->near == C_IN_SEND)
        g->c = &p->buffer[draw(p, SENDS)];
    if (g->near == C_BEHIND) {
        g->c = g->x;
        g->c_off = (g->off + g->x_bytes + 15) & ~(size_t)15;
    }
    if (bytes > g->c->bytes || g->c_off > g->c->bytes - bytes)
        return false;
    if (g->c != g->x && ONE_IN(p, 3))
        g->c_off = draw(p, (g->c->bytes - bytes) / 16 + 1) * 16;
    return exact(p, g);
}

static void call_lt(struct prog *p, const struct problem *g, const void *a, int64_t lda, const void *b, int64_t ldb,
                    void *c)
{
    const float one = 1;
    const int32_t ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType t = api_type(p->type);
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t la, lb, lc;
    BLAS(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    BLAS(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    BLAS(cublasLtMatrixLayoutCreate(&la, t, (uint64_t)(g->ta ? g->inner : g->m), (uint64_t)(g->ta ? g->m : g->inner),
                                    lda));
    BLAS(cublasLtMatrixLayoutCreate(&lb, t, (uint64_t)(g->tb ? g->n : g->inner), (uint64_t)(g->tb ? g->inner : g->n),
                                    ldb));
    BLAS(cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, (uint64_t)g->m, (uint64_t)g->n, g->ldc));
    BLAS(cublasLtMatmul(p->lt, d, &one, a, la, b, lb, &g->beta, c, lc, c, lc, NULL, NULL, 0,
                        p->stream[g->stream].handle));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatmulDescDestroy(d));
}

static void call(struct prog *p, const struct problem *g)
{
    struct buffer *w = &p->buffer[WEIGHT];
    const char *x = g->x->at + g->off;
    const void *a = g->x_is_b ? w->at : x, *b = g->x_is_b ? x : w->at;
    const int64_t ldw = g->across ? g->other : g->inner;
    const int64_t lda = g->x_is_b ? ldw : g->ld, ldb = g->x_is_b ? g->ld : ldw;
    char *c = g->c->at + g->c_off;
    if (g->lt) {
        call_lt(p, g, a, lda, b, ldb, c);
        return;
    }
    BLAS(cublasSetStream(p->blas, p->stream[g->stream].handle));
    if (p->scratch.bytes)
        BLAS(cublasSetWorkspace(p->blas, p->scratch.at, p->scratch.bytes));
    gemm(g->api, p->blas, g->ta, g->tb, g->m, g->n, g->inner, a, lda, b, ldb, (double)g->beta, c, g->ldc);
}

static void issue(struct prog *p, const struct problem *g)
{
    struct buffer *w = &p->buffer[WEIGHT];
    const size_t w_bytes = (size_t)(g->inner * g->other) * p->elem, bytes = c_bytes(g);
    if (!is_small(w, 0, w_bytes))
        fill(p, w, 0, w_bytes, g->stream);
    need(p, g->stream, g->x, false);
    need(p, g->stream, w, false);
    need(p, g->stream, g->c, true);
    if (p->scratch.bytes && !g->lt)
        need(p, g->stream, &p->scratch, true);
    note(p, "%s %s: %s op %c at %s+%zu ld %ld, m %ld n %ld k %ld, C %s+%zu ld %ld beta %g, on s%d",
         g->lt ? "matmul" : "gemm", near_names[g->near], g->x_is_b ? "B" : "A", (g->x_is_b ? g->tb : g->ta) ? 'T' : 'N',
         g->x->name, g->off, (long)g->ld, (long)g->m, (long)g->n, (long)g->inner, g->c->name, g->c_off, (long)g->ldc,
         (double)g->beta, g->stream);
    call(p, g);
    issued(p, g->stream, LIST(g->x, w), LIST(g->c, p->scratch.bytes && !g->lt ? &p->scratch : NULL));
    const double sum = (double)g->inner * SMALL * SMALL;
    const bool whole = g->ldc == g->m || g->c_off + bytes <= g->c->clean;
    wrote(g->c, g->c_off, bytes, whole && (g->c->wide || p->elem == 4), g->beta != 0 ? sum + g->c->bound : sum);
}

/* `stream`: of the GEMM. */
static void one(struct prog *p, struct buffer *x, enum near near, int stream)
{
    struct problem g = {.near = near, .x = x, .beta = 0, .stream = stream};
    struct buffer other;
    if (g.near == OTHER) { /* the same shape from another receive buffer, if it is long enough */
        struct buffer *b = &p->buffer[FIRST_RECV + (int)draw(p, RECVS)];
        g.x = b;
        other = *b;
        other.k = x->k;
        other.columns = x->columns;
    }
    g.x_is_b = ONE_IN(p, 2);
    g.lt = ONE_IN(p, 3);
    struct buffer *real = g.x;
    if (g.near == OTHER)
        g.x = &other;
    if (!shape(p, &g))
        return;
    g.x = real;
    if (!is_small(g.x, g.off, g.x_bytes) || !place(p, &g))
        return;
    g.api = any_api(p, &g);
    issue(p, &g);
}

/* The gradient of a weight is a sum; that of the input comes behind it, and matches. */
void multiply(struct prog *p, struct buffer *x)
{
    enum near near = (enum near)draw(p, 2 * NEARS);
    const int gathers_on = x->stream;
    if (!x->k)
        return;
    if (near >= NEARS) /* half of them can be fused */
        near = near % 3 ? MATCHES : SUMS;
    const int stream = ONE_IN(p, 3) || !p->stream[gathers_on].used ? any_stream(p) : gathers_on;
    one(p, x, near, stream);
    if (near == SUMS && ONE_IN(p, 2))
        one(p, x, MATCHES, stream);
}

void multiply_into(struct prog *p, struct buffer *x, struct buffer *c, size_t off)
{
    struct problem g = {.near = C_IN_SEND,
                        .x = x,
                        .x_is_b = ONE_IN(p, 2),
                        .lt = ONE_IN(p, 3),
                        .stream = x->stream,
                        .c = c,
                        .c_off = off};
    if (!x->k || c == x || !p->stream[g.stream].used || !shape(p, &g) || !is_small(x, 0, g.x_bytes) ||
        c_bytes(&g) > c->bytes - off || !exact(p, &g))
        return;
    g.api = any_api(p, &g);
    issue(p, &g);
}
