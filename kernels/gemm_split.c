/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"

#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"

static struct slr_extent extent_of(const void *p, size_t bytes)
{
    return (struct slr_extent){(uintptr_t)p, (uintptr_t)p + bytes};
}

/* All matrices of the batch, the first of which is `one`. Strides are not negative. */
static struct slr_extent of_batch(struct slr_extent one, const struct slr_gemm *gemm, int64_t stride, size_t elem)
{
    if (one.end > one.begin)
        one.end += (size_t)(gemm->batch - 1) * (size_t)stride * elem;
    return one;
}

static struct slr_extent extent_a(const struct slr_gemm *gemm)
{
    const bool plain = gemm->transa == CUBLAS_OP_N;
    const size_t elem = slr_gemm_type_bytes(gemm->atype);
    return of_batch(slr_gemm_extent(gemm->a, plain ? gemm->m : gemm->k, plain ? gemm->k : gemm->m, gemm->lda, elem),
                    gemm, gemm->stride_a, elem);
}

static struct slr_extent extent_b(const struct slr_gemm *gemm)
{
    const bool plain = gemm->transb == CUBLAS_OP_N;
    const size_t elem = slr_gemm_type_bytes(gemm->btype);
    return of_batch(slr_gemm_extent(gemm->b, plain ? gemm->k : gemm->n, plain ? gemm->n : gemm->k, gemm->ldb, elem),
                    gemm, gemm->stride_b, elem);
}

static struct slr_extent extent_c(const struct slr_gemm *gemm)
{
    const size_t elem = slr_gemm_type_bytes(gemm->ctype);
    return of_batch(slr_gemm_extent(gemm->c, gemm->m, gemm->n, gemm->ldc, elem), gemm, gemm->stride_c, elem);
}

/* Its matrices follow one another, and no two of them are the same C. */
static bool batch_known(const struct slr_gemm *gemm)
{
    return gemm->batch == 1 || (gemm->batch > 1 && gemm->stride_a >= 0 && gemm->stride_b >= 0 && gemm->stride_c > 0);
}

/* The operand that starts where the receive buffer does; columns and leading dimension as stored.
 */
static enum slr_reason find_operand(const struct slr_gemm *gemm, uintptr_t recv, struct slr_gemm_split *out,
                                    int64_t *cols, int64_t *ld)
{
    bool a = (uintptr_t)gemm->a == recv, b = (uintptr_t)gemm->b == recv;
    /* Both operands are the gathered buffer, or neither is. */
    if (a == b)
        return a ? SLR_R_JOIN_OVERLAP : SLR_R_JOIN_NO_OPERAND;
    const int64_t outer = a ? gemm->m : gemm->n;
    out->on_a = a;
    out->sums = a ? gemm->transa == CUBLAS_OP_N : gemm->transb != CUBLAS_OP_N;
    out->other = (a ? gemm->n : gemm->m) * gemm->batch;
    out->rows = out->sums ? outer : gemm->k;
    *cols = out->sums ? gemm->k : outer;
    *ld = a ? gemm->lda : gemm->ldb;
    return SLR_R_FUSED;
}

static struct slr_extent extent_recv(const struct slr_gather *g, int nranks)
{
    return extent_of((const void *)(uintptr_t)g->recv, g->plan.shard * (size_t)nranks);
}

static bool touches_either(struct slr_extent x, const struct slr_gather *g, int nranks)
{
    return slr_extents_meet(x, extent_recv(g, nranks)) ||
           slr_extents_meet(x, extent_of((const void *)(uintptr_t)slr_gather_source(g), g->plan.shard));
}

enum { LONGEST_SCALAR = 16 }; /* a complex of fp64 */

/* alpha or beta; wherever it is. */
static bool scalar_near(const void *p, struct slr_extent x)
{
    return slr_extents_meet(extent_of(p, LONGEST_SCALAR), x);
}

static bool __attribute__((noinline)) scalar_in(const struct slr_gemm *gemm, const void *p, struct slr_extent x)
{
    cudaDataType type;
    const size_t bytes = slr_gemm_scalar_type(gemm, &type) ? slr_gemm_type_bytes(type) : 0;
    return slr_extents_meet(extent_of(p, bytes ? bytes : LONGEST_SCALAR), x);
}

/* What is written must touch neither buffer of the gather; the other operand, the scalars and
 * whatever else is read are read before the gather is complete. */
static bool touches_gather(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks, bool on_a)
{
    struct slr_extent recv = extent_recv(g, nranks), other = on_a ? extent_b(gemm) : extent_a(gemm);
    if (touches_either(extent_c(gemm), g, nranks) || slr_extents_meet(other, recv) ||
        (scalar_near(gemm->alpha, recv) && scalar_in(gemm, gemm->alpha, recv)) ||
        (scalar_near(gemm->beta, recv) && scalar_in(gemm, gemm->beta, recv)))
        return true;
    for (int i = 0; i < SLR_GEMM_READS; i++)
        if (slr_extents_meet(gemm->read[i], recv))
            return true;
    for (int i = 0; i < SLR_GEMM_WRITES; i++)
        if (gemm->written[i].end && touches_either(gemm->written[i], g, nranks))
            return true;
    return false;
}

const char *slr_gemm_reads(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks, size_t *bytes)
{
    const struct slr_extent recv = extent_recv(g, nranks), a = extent_a(gemm), b = extent_b(gemm);
    const bool on_a = a.begin == recv.begin || (slr_extents_meet(a, recv) && b.begin != recv.begin);
    const struct slr_extent x = on_a ? a : b;
    *bytes = 0;
    if (gemm->m <= 0 || !slr_gemm_type_bytes(gemm->atype) || !slr_gemm_type_bytes(gemm->btype))
        return "unknown";
    if (!slr_extents_meet(x, recv))
        return "elsewhere";
    *bytes = x.end - x.begin;
    if (x.begin != recv.begin)
        return "inside";
    return x.end < recv.end ? "part" : x.end > recv.end ? "more" : "all";
}

bool slr_extent_apart(struct slr_extent x, const struct slr_gather *g, int nranks)
{
    return !touches_either(x, g, nranks);
}

bool slr_gemm_apart(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks)
{
    bool known = batch_known(gemm) && gemm->m > 0 && gemm->n > 0 && gemm->k > 0 && slr_gemm_type_bytes(gemm->atype) &&
                 slr_gemm_type_bytes(gemm->btype) && slr_gemm_type_bytes(gemm->ctype);
    return known && !touches_gather(gemm, g, nranks, true) && !touches_gather(gemm, g, nranks, false);
}

static void add_range(struct slr_ranges *to, struct slr_extent x)
{
    to->x[to->n++] = x;
}

static void add_read(struct slr_ranges *to, const struct slr_gemm *gemm)
{
    add_range(to, extent_a(gemm));
    add_range(to, extent_b(gemm));
    add_range(to, extent_of(gemm->alpha, LONGEST_SCALAR));
    add_range(to, extent_of(gemm->beta, LONGEST_SCALAR));
    for (int i = 0; i < SLR_GEMM_READS; i++)
        add_range(to, gemm->read[i]);
}

static void add_written(struct slr_ranges *to, const struct slr_gemm *gemm, bool workspace)
{
    add_range(to, extent_c(gemm));
    for (int i = workspace ? 0 : 1; i < SLR_GEMM_WRITES; i++)
        add_range(to, gemm->written[i]);
}

struct slr_ranges slr_gemm_ranges(const struct slr_gemm *gemm)
{
    struct slr_ranges all = {.n = 0};
    add_read(&all, gemm);
    add_written(&all, gemm, true);
    return all;
}

bool slr_ranges_meet(const struct slr_ranges *ranges, struct slr_extent x)
{
    for (unsigned i = 0; i < ranges->n; i++)
        if (slr_extents_meet(ranges->x[i], x))
            return true;
    return false;
}

static bool any_meet(const struct slr_ranges *a, const struct slr_ranges *b)
{
    for (unsigned i = 0; i < a->n; i++)
        if (slr_ranges_meet(b, a->x[i]))
            return true;
    return false;
}

bool slr_gemms_apart(const struct slr_gemm *first, const struct slr_gemm *second)
{
    const struct slr_ranges used = slr_gemm_ranges(second);
    struct slr_ranges read = {.n = 0}, written = {.n = 0}, also = {.n = 0};
    add_read(&read, first);
    add_written(&written, first, false);
    add_written(&also, second, true);
    return !any_meet(&written, &used) && !any_meet(&read, &also);
}

/* Parts follow one another, so none may read what another one writes; and a GEMM that is done again
 * behind some of its parts (gemm_fused.c) writes everything anew, from what was there. */
static bool reads_own_writes(const struct slr_gemm *gemm)
{
    const struct slr_extent c = extent_c(gemm);
    bool reads = false;
    for (int i = 1; i < SLR_GEMM_READS; i++)
        reads = reads || slr_extents_meet(gemm->read[i], c);
    for (int i = 1; i < SLR_GEMM_WRITES; i++) {
        reads = reads || slr_extents_meet(gemm->written[i], c) || slr_extents_meet(gemm->written[i], extent_a(gemm)) ||
                slr_extents_meet(gemm->written[i], extent_b(gemm));
        for (int j = 0; j < SLR_GEMM_READS; j++)
            reads = reads || slr_extents_meet(gemm->written[i], gemm->read[j]);
    }
    return reads;
}

/* What a cublasLtMatmul has besides its matrices. */
static enum slr_reason may_split_lt(const struct slr_gemm *gemm, struct slr_gemm_split *split)
{
    const struct slr_lt_op *op = &gemm->lt->op;
    enum slr_reason r = slr_lt_may_split(op, gemm, split);
    if (r != SLR_R_FUSED)
        return r;
    if (reads_own_writes(gemm))
        return SLR_R_JOIN_OVERLAP;
    /* The whole behind some parts finds another C than the program gave, and D alone can be put right
     * then. */
    if (!split->sums && slr_lt_writes_more(op) && slr_gemm_reads_output(gemm)) {
        split->attribute = "EPILOGUE";
        return SLR_R_JOIN_EPILOGUE;
    }
    return SLR_R_FUSED;
}

enum slr_reason slr_gemm_split_find(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks,
                                    struct slr_gemm_split *out)
{
    int64_t cols = 0, ld = 0;
    out->quantum = 1;
    out->first = 0;
    out->some = false;
    out->attribute = NULL;
    enum slr_reason r = find_operand(gemm, (uintptr_t)g->recv, out, &cols, &ld);
    if (r != SLR_R_FUSED)
        return r;
    /* The gathered operand is the same for all of the batch. */
    if (!batch_known(gemm) || (gemm->batch > 1 && (out->on_a ? gemm->stride_a : gemm->stride_b) != 0))
        return SLR_R_JOIN_BATCH;
    if (gemm->m <= 0 || gemm->n <= 0 || gemm->k <= 0)
        return SLR_R_JOIN_SHAPE;
    size_t elem = slr_gemm_type_bytes(out->on_a ? gemm->atype : gemm->btype);
    if (!elem || !slr_gemm_type_bytes(gemm->ctype) || !slr_gemm_type_bytes(out->on_a ? gemm->btype : gemm->atype))
        return SLR_R_JOIN_TYPE;
    /* Padding between columns would not be in the shards. */
    if (ld != out->rows)
        return SLR_R_JOIN_LD;
    out->col_bytes = (size_t)out->rows * elem;
    /* A column in two shards could not be computed before both are there. */
    if (g->plan.shard % out->col_bytes != 0)
        return SLR_R_JOIN_SHAPE;
    out->shard_cols = (int64_t)(g->plan.shard / out->col_bytes);
    if (cols != out->shard_cols * nranks)
        return SLR_R_JOIN_NO_OPERAND;
    if (touches_gather(gemm, g, nranks, out->on_a))
        return SLR_R_JOIN_OVERLAP;
    return gemm->lt ? may_split_lt(gemm, out) : SLR_R_FUSED;
}
