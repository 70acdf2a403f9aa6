/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank does by itself: fills, copies, GEMMs, looks, other memory. */
#include "planner.h"

#define MOST_FLOP 2000000.0
#define MOST_COLUMNS 12000 /* the race oracle follows so many rows of an operation */

void fill(struct planner *p, int rank, int stream, struct place to, size_t bytes, enum source source)
{
    need(p, rank, stream, NULL, to.buffer, true);
    struct op *op = put_down(p, OP_FILL, rank, stream);
    op->to = to;
    op->bytes = bytes;
    op->value = source;
    op->from.off = draw(p, rank, NOISE / 16) * 16;
    issued(p, rank, stream, -1, to.buffer);
}

static size_t any_bytes(struct planner *p, int rank, int buffer)
{
    const size_t most = p->plan->size[buffer], few = most < 5000 ? most : 5000;
    return 1 + draw(p, rank, ONE_IN(p, rank, 3) ? most : few);
}

static struct place any_place(struct planner *p, int rank, int buffer, size_t bytes)
{
    const size_t room = p->plan->size[buffer] - bytes;
    return (struct place){buffer, ONE_IN(p, rank, 3) ? 0 : draw(p, rank, room + 1)};
}

static void set(struct planner *p, int rank)
{
    static const int values[] = {0, 0x11, 0xa5, 0xff};
    const int stream = any_stream(p, rank), b = (int)draw(p, rank, DATA + OUTS);
    const size_t bytes = any_bytes(p, rank, b);
    need(p, rank, stream, NULL, b, true);
    struct op *op = put_down(p, OP_SET, rank, stream);
    op->bytes = bytes;
    op->to = any_place(p, rank, b, bytes);
    op->value = values[draw(p, rank, 4)];
    issued(p, rank, stream, -1, b);
}

static void copy(struct planner *p, int rank)
{
    const int stream = any_stream(p, rank), from = (int)draw(p, rank, WEIGHT), to = (int)draw(p, rank, WEIGHT);
    const size_t *size = p->plan->size;
    if (from == to)
        return;
    const size_t bytes = any_bytes(p, rank, size[from] < size[to] ? from : to);
    need(p, rank, stream, NULL, from, false);
    need(p, rank, stream, NULL, to, true);
    struct op *op = put_down(p, OP_COPY, rank, stream);
    op->bytes = bytes;
    op->from = any_place(p, rank, from, bytes);
    op->to = any_place(p, rank, to, bytes);
    issued(p, rank, stream, from, to);
}

void look(struct planner *p, int rank, int buffer)
{
    const int stream = any_stream(p, rank);
    need(p, rank, stream, NULL, buffer, false);
    struct op *op = put_down(p, OP_LOOK, rank, stream);
    op->from.buffer = buffer;
    op->bytes = p->plan->size[buffer];
    issued(p, rank, stream, buffer, -1);
    if (ONE_IN(p, rank, 3))
        sync_stream(p, rank, stream);
}

/* Sizes for the k x columns matrix in `buffer`, or a column less. False: too much work, or no room for C. */
static bool shape(struct planner *p, int rank, int buffer, struct gemm *g)
{
    const struct use *use = &p->known[rank].use[buffer];
    const int64_t other = 1 + (int64_t)draw(p, rank, 12), columns = use->columns - ONE_IN(p, rank, 6);
    g->x_is_b = ONE_IN(p, rank, 2);
    g->sums = ONE_IN(p, rank, 4);
    g->inner = g->sums ? columns : use->k;
    const int64_t along = g->sums ? use->k : columns;
    g->m = g->x_is_b ? other : along;
    g->n = g->x_is_b ? along : other;
    return columns > 0 && columns <= MOST_COLUMNS && (double)(other * columns) * (double)use->k <= MOST_FLOP &&
           (size_t)(other * g->inner) * p->plan->elem <= p->plan->size[WEIGHT] &&
           (size_t)(other * along) * 4 <= p->plan->size[DATA];
}

void multiply(struct planner *p, int rank, int buffer)
{
    const struct use *use = &p->known[rank].use[buffer];
    const int stream = ONE_IN(p, rank, 4) ? any_stream(p, rank) : use->stream, out = DATA + (int)draw(p, rank, OUTS);
    struct gemm g = {.narrow = WIDE};
    if (!has(p, KIND_gemm) || !use->k || !shape(p, rank, buffer, &g))
        return;
    need(p, rank, stream, NULL, buffer, false);
    need(p, rank, stream, NULL, WEIGHT, false);
    need(p, rank, stream, NULL, out, true);
    scratch_before(p, rank, stream, buffer, out, &g);
    struct op *op = put_down(p, OP_GEMM, rank, stream);
    op->gemm = g;
    op->from.buffer = buffer;
    op->to.buffer = out;
    issued(p, rank, stream, buffer, out);
    p->known[rank].use[WEIGHT].read.of[stream] = p->known[rank].issued[stream];
    scratch_behind(p, rank, stream, &g);
}

/* cudaFree waits for the device, so nothing has to be ordered before it; the new block is filled. */
static void renew(struct planner *p, int rank)
{
    const int b = (int)draw(p, rank, DATA + OUTS);
    need(p, rank, HOST, NULL, b, true);
    put_down(p, OP_RENEW, rank, -1)->to.buffer = b;
    p->known[rank].use[b] = (struct use){.k = 0};
    if (p->known[rank].worker.at.buffer == b)
        p->known[rank].worker.bytes = 0; /* nobody may use it */
    fill(p, rank, any_stream(p, rank), (struct place){b, 0}, p->plan->size[b], SOURCE_NOISE);
}

void local_step(struct planner *p, int rank)
{
    const int stream = any_stream(p, rank), b = (int)draw(p, rank, DATA);
    switch (draw(p, rank, 16)) {
    case 0:
    case 1: {
        const size_t bytes = any_bytes(p, rank, b);
        fill(p, rank, stream, any_place(p, rank, b, bytes), bytes, SOURCE_NOISE);
        return;
    }
    case 2:
    case 3:
    case 4:
        copy(p, rank);
        return;
    case 5:
        set(p, rank);
        return;
    case 6:
    case 7:
        look(p, rank, (int)draw(p, rank, WEIGHT));
        return;
    case 8:
    case 9:
        multiply(p, rank, b);
        return;
    case 10:
        renew(p, rank);
        return;
    default:
        order_step(p, rank);
    }
}
