/* SPDX-License-Identifier: Apache-2.0 */
#include "replicas.h"

double replicas_flop_per_byte;

struct gather {
    struct slr_plan plan;
    struct slr_gemm_split split;
    double pace;
};

static struct gather gather_of(const struct problem *p, int nranks)
{
    const size_t elem = p->type->bytes;
    struct gather g = {.split = {.on_a = p->at,
                                 .shard_cols = p->cols / nranks,
                                 .col_bytes = (size_t)p->inner * elem,
                                 .other = p->other,
                                 .rows = p->inner}};
    g.plan = slr_plan_make((size_t)g.split.shard_cols * g.split.col_bytes, nranks, (size_t)64 << 20, 0);
    g.pace = slr_parts_pace(elem, p->other, replicas_flop_per_byte);
    return g;
}

static void add(struct parts *out, int64_t col, int64_t cols)
{
    if (cols > 0 && out->count < MOST_PARTS)
        out->part[out->count++] = (struct slr_part){.col = col, .cols = cols};
}

void replicas_cut(const struct problem *p, int rank, int nranks, struct parts *out)
{
    const struct gather g = gather_of(p, nranks);
    struct slr_parts walk = slr_parts_of(&g.plan, &g.split, rank, nranks, g.pace);
    struct slr_part part;
    out->count = 0;
    while (slr_parts_next(&walk, &part))
        add(out, part.col, part.cols);
}

static int64_t chunk_end(const struct gather *g, int64_t q)
{
    return q < 0 ? 0 : (int64_t)(slr_plan_chunk_end(&g->plan, (uint32_t)q) / g->split.col_bytes);
}

/* Chunks [begin, end) in order of arrival, as one range of each owner's columns; neighbours are one
 * part. */
static void add_group(const struct gather *g, int rank, int nranks, int64_t begin, int64_t end, struct parts *out)
{
    const int64_t steps = nranks - 1, shard = g->split.shard_cols;
    int64_t col = 0, cols = 0;
    for (int64_t step = 1; step <= steps; step++) {
        int64_t owner = (rank + step) % nranks;
        int64_t first = chunk_end(g, begin / steps + (step - 1 < begin % steps) - 1);
        int64_t last = chunk_end(g, end / steps + (step - 1 < end % steps) - 1);
        if (cols > 0 && col + cols == owner * shard + first) {
            cols += last - first;
            continue;
        }
        add(out, col, cols);
        col = owner * shard + first;
        cols = last - first;
    }
    add(out, col, cols);
}

void replicas_old_cut(const struct problem *p, int rank, int nranks, struct parts *out)
{
    const struct gather g = gather_of(p, nranks);
    const int64_t all = (int64_t)g.plan.chunks * (nranks - 1), chunk = g.split.shard_cols / g.plan.chunks;
    double now = (double)g.split.shard_cols, arrived = 0;
    out->count = 0;
    add(out, rank * g.split.shard_cols, g.split.shard_cols);
    for (int64_t begin = 0, end; begin < all; begin = end) {
        end = begin;
        do {
            arrived += g.pace * (double)chunk;
            end++;
        } while (end < all && arrived + g.pace * (double)chunk <= now);
        now = (now > arrived ? now : arrived) + (double)((end - begin) * chunk);
        add_group(&g, rank, nranks, begin, end, out);
    }
}
