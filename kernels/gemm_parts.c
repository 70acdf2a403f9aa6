#include "kernels/gemm_parts.h"

struct slr_parts slr_parts_of(const struct slr_plan *plan, const struct slr_gemm_split *split, int rank, int nranks,
                              double pace)
{
    return (struct slr_parts){
        .plan = *plan, .split = *split, .rank = rank, .nranks = nranks, .pace = pace, .step = nranks};
}

double slr_parts_pace(size_t elem, int64_t other, double flop_per_byte)
{
    /* Wider types multiply more slowly: half for TF32, about a tenth for fp64; 8-bit ones twice as fast. */
    double speed = elem == 1 ? 2 : elem == 2 ? 1 : elem == 4 ? 0.5 : 0.1;
    return other > 0 ? (double)elem * flop_per_byte * speed / (2 * (double)other) : 0;
}

/* First column of a shard that chunk q does not complete: a column across two chunks belongs to the later one. */
static int64_t chunk_end(const struct slr_parts *p, int64_t q)
{
    return q < 0 ? 0 : (int64_t)(slr_plan_chunk_end(&p->plan, (uint32_t)q) / p->split.col_bytes);
}

/* Of the chunk that arrives as number i. */
static int64_t chunk_cols(const struct slr_parts *p, int64_t i)
{
    int64_t q = i / (p->nranks - 1);
    return chunk_end(p, q) - chunk_end(p, q - 1);
}

static bool next_group(struct slr_parts *p)
{
    int64_t all = (int64_t)p->plan.chunks * (p->nranks - 1), cols = 0;
    p->begin = p->end;
    if (p->begin >= all)
        return false;
    do {
        cols += chunk_cols(p, p->end);
        p->arrived += p->pace * (double)chunk_cols(p, p->end);
        p->end++;
    } while (p->pace > 0 && p->end < all && p->arrived + p->pace * (double)chunk_cols(p, p->end) <= p->now);
    p->now = (p->now > p->arrived ? p->now : p->arrived) + (double)cols;
    p->step = 1;
    return true;
}

/* The group's chunks of one step are neighbours: [*first, *last) of that owner's columns. */
static void columns_of(const struct slr_parts *p, int step, int64_t *first, int64_t *last)
{
    int steps = p->nranks - 1;
    int64_t from = p->begin / steps + (step - 1 < p->begin % steps), to = p->end / steps + (step - 1 < p->end % steps);
    *first = chunk_end(p, from - 1);
    *last = chunk_end(p, to - 1);
}

static int owner_of(const struct slr_parts *p, int step)
{
    return (p->rank + step) % p->nranks;
}

/* Takes the next range of the group: one owner's columns, and those of the owners behind it as far as they are
 * neighbours. */
static bool next_range(struct slr_parts *p, struct slr_part *part)
{
    int64_t first, last, next_first, next_last;
    columns_of(p, p->step, &first, &last);
    part->col = owner_of(p, p->step) * p->split.shard_cols + first;
    part->cols = last - first;
    while (++p->step < p->nranks) {
        columns_of(p, p->step, &next_first, &next_last);
        if (last != p->split.shard_cols || next_first != 0 || owner_of(p, p->step) == 0)
            break;
        part->cols += next_last;
        last = next_last;
    }
    part->chunk = (uint32_t)((p->end - 1) / (p->nranks - 1));
    part->step = (int)((p->end - 1) % (p->nranks - 1)) + 1;
    return part->cols > 0;
}

bool slr_parts_next(struct slr_parts *p, struct slr_part *part)
{
    if (!p->own_given) {
        p->own_given = true;
        p->now = (double)p->split.shard_cols;
        *part = (struct slr_part){.col = p->rank * p->split.shard_cols, .cols = p->split.shard_cols};
        return true;
    }
    while (p->step < p->nranks || next_group(p))
        if (next_range(p, part))
            return true;
    return false;
}
