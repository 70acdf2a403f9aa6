/* SPDX-License-Identifier: Apache-2.0 */
/* The plan on host memory. Beside each byte stands whether it is known: a GEMM leaves anything in its workspace, and
 * what is made of that is not known either. */
#include "plan.h"

#include <string.h>

#include "softgpu/blas/float16.h"
#include "softgpu/blas/float8.h"

/* Bytes, or for each of them 1 if it may be anything. */
struct plane {
    uint8_t *memory[RANKS][BUFFERS];
    uint8_t *sent[RANKS]; /* what goes into a call, taken before anything comes out */
};

struct host {
    const struct plan *plan;
    struct plane bytes, any;
    uint8_t *source[RANKS][SOURCES];
};

static size_t largest(const struct plan *plan)
{
    size_t most = 0;
    for (int b = 0; b < BUFFERS; b++)
        most = plan->size[b] > most ? plan->size[b] : most;
    return most;
}

size_t source_bytes(const struct plan *plan)
{
    return NOISE + largest(plan);
}

/* Bytes that are small in both types: 1 of one is a half of the other, or 1.5. */
static void narrow_make(uint64_t seed, size_t bytes, uint8_t *to)
{
    static const uint8_t codes[] = {0, 0x38, 0x3c, 0x40};
    for (size_t i = 0; i < bytes; i++) {
        const uint64_t drawn = hash64(seed, i);
        to[i] = codes[drawn % 4];
        if (to[i])
            to[i] |= (uint8_t)(drawn >> 8 & 0x80);
    }
}

void source_make(const struct plan *plan, int rank, enum source source, uint8_t *to)
{
    static const float factors[] = {0.5f, 1, 2, 4};
    const size_t bytes = source_bytes(plan) & ~(size_t)7;
    const uint64_t seed = hash64(hash64(plan->seed, 88), (uint64_t)(rank * 2 + (source == SOURCE_INTEGERS)));
    switch (source) {
    case SOURCE_INTEGERS:
        for (size_t i = 0; i < bytes / plan->elem; i++)
            put(plan->type, to, i, small(seed, i), false);
        return;
    case SOURCE_NARROW:
        narrow_make(seed, bytes, to);
        return;
    case SOURCE_FACTORS:
        for (size_t i = 0; i < bytes; i += 4)
            memcpy(to + i, &factors[hash64(seed, i) % 4], 4);
        return;
    case SOURCE_HALVES:
        for (size_t i = 0; i < bytes / 2; i++)
            put(API_EX_FP16, to, i, small(seed, i), false);
        return;
    default:
        for (size_t i = 0; i < bytes; i += 8) {
            const uint64_t word = hash64(seed, i);
            memcpy(to + i, &word, 8);
        }
    }
}

float narrow_value(bool e5m2, uint8_t byte)
{
    return e5m2 ? e5m2_to_f32(byte) : e4m3_to_f32(byte);
}

static uint8_t *in(const struct plane *plane, int rank, struct place place)
{
    return plane->memory[rank][place.buffer] + place.off;
}

static uint8_t *at(struct host *h, int rank, struct place place)
{
    return in(&h->bytes, rank, place);
}

static uint8_t *any_at(struct host *h, int rank, struct place place)
{
    return in(&h->any, rank, place);
}

static float element(ncclDataType_t type, const uint8_t *from, int64_t i)
{
    float value;
    uint16_t bits;
    if (type == ncclFloat32) {
        memcpy(&value, from + i * 4, 4);
        return value;
    }
    memcpy(&bits, from + i * 2, 2);
    return type == ncclFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static void put_element(ncclDataType_t type, uint8_t *to, int64_t i, float value)
{
    if (type == ncclFloat32) {
        memcpy(to + i * 4, &value, 4);
        return;
    }
    const uint16_t bits = type == ncclFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
    memcpy(to + i * 2, &bits, 2);
}

static float factor(const struct gemm *g, const uint8_t *factors, int64_t of)
{
    float value = 1;
    if (g->narrow != NO_FACTORS)
        memcpy(&value, factors + (g->narrow == BY_ROW ? of : 0) * 4, 4);
    return value;
}

/* Everything is exact, so that the order does not matter. */
static void run_narrow(struct host *h, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    const uint8_t *x = at(h, op->rank, op->from), *w = at(h, op->rank, (struct place){NARROW, 0});
    const uint8_t *of_x = at(h, op->rank, g->factors), *of_w = at(h, op->rank, (struct place){FACTORS, 0});
    float *c = (float *)at(h, op->rank, op->to);
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            const int64_t col_x = g->x_is_b ? j : i, col_w = g->x_is_b ? i : j;
            float sum = 0;
            for (int64_t l = 0; l < g->inner; l++)
                sum +=
                    narrow_value(g->x_e5m2, x[l + col_x * g->inner]) * narrow_value(g->w_e5m2, w[l + col_w * g->inner]);
            c[i + j * g->m] = sum * factor(g, of_x, col_x) * factor(g, of_w, col_w);
        }
}

static bool has_any(const uint8_t *any, size_t bytes)
{
    return bytes && (*any || memcmp(any, any + 1, bytes - 1) != 0);
}

/* What a GEMM makes of anything is that as a whole. */
static void run_scratch(struct host *h, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    const size_t along = (size_t)(g->x_is_b ? g->n : g->m), inner = (size_t)g->inner;
    const bool any =
        has_any(any_at(h, op->rank, op->from), along * inner * (g->narrow ? 1 : h->plan->elem)) ||
        (g->narrow > NO_FACTORS && has_any(any_at(h, op->rank, g->factors), g->narrow == BY_ROW ? along * 4 : 4));
    memset(any_at(h, op->rank, op->to), any, gemm_c_bytes(g));
    if (g->scratch_bytes)
        memset(any_at(h, op->rank, g->scratch), 1, g->scratch_bytes);
}

static void run_gemm(struct host *h, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    run_scratch(h, op);
    if (g->narrow) {
        run_narrow(h, op);
        return;
    }
    const uint8_t *x = at(h, op->rank, op->from), *w = at(h, op->rank, (struct place){WEIGHT, 0});
    const ncclDataType_t type = plan_type(h->plan);
    uint8_t *c = at(h, op->rank, op->to);
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            const int64_t of_x = g->x_is_b ? j : i, of_w = g->x_is_b ? i : j, rows = g->x_is_b ? g->n : g->m;
            float sum = 0;
            for (int64_t l = 0; l < g->inner; l++)
                sum += element(type, x, g->sums ? of_x + l * rows : l + of_x * g->inner) *
                       element(type, w, l + of_w * g->inner);
            put_element(g->c_bf16 ? ncclBfloat16 : ncclFloat32, c, i + j * g->m, sum);
        }
}

static uint64_t load(ncclDataType_t type, const uint8_t *from, size_t i)
{
    uint64_t v = 0;
    switch (type) {
    case ncclInt8:
        return (uint64_t)(int64_t)(int8_t)from[i];
    case ncclUint8:
        return from[i];
    case ncclInt32: {
        int32_t s;
        memcpy(&s, from + i * 4, 4);
        return (uint64_t)(int64_t)s;
    }
    case ncclUint32:
        memcpy(&v, from + i * 4, 4);
        return v;
    default:
        memcpy(&v, from + i * 8, 8);
        return v;
    }
}

static uint64_t combine(const struct call *c, uint64_t a, uint64_t b)
{
    const bool is_signed = c->type == ncclInt8 || c->type == ncclInt32 || c->type == ncclInt64;
    const bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    if (c->redop == ncclSum)
        return a + b;
    return (c->redop == ncclMax) == less ? b : a;
}

/* Elements of what all send, from `first` on. */
static void reduce(struct host *h, const struct call *c, int rank, size_t first, uint8_t *to)
{
    const struct team *team = &h->plan->team[c->comm];
    const size_t elem = c->bytes / c->count;
    for (size_t i = 0; i < c->count; i++) {
        uint64_t value = load(c->type, h->bytes.sent[team_member(h->plan, c->comm, rank, 0)], first + i);
        for (int m = 1; m < team->size; m++)
            value = combine(c, value, load(c->type, h->bytes.sent[team_member(h->plan, c->comm, rank, m)], first + i));
        memcpy(to + i * elem, &value, elem); /* the low bytes */
    }
}

static float combine_floats(const struct call *c, float a, float b)
{
    switch (c->redop) {
    case ncclMax:
        return a > b ? a : b;
    case ncclMin:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

/* The same of integers in floating-point types. */
static void reduce_floats(struct host *h, const struct call *c, int rank, size_t first, uint8_t *to)
{
    const struct team *team = &h->plan->team[c->comm];
    const uint8_t *sent[RANKS];
    for (int m = 0; m < team->size; m++)
        sent[m] = h->bytes.sent[team_member(h->plan, c->comm, rank, m)];
    for (int64_t i = 0; i < (int64_t)c->count; i++) {
        float value = element(c->type, sent[0], (int64_t)first + i);
        for (int m = 1; m < team->size; m++)
            value = combine_floats(c, value, element(c->type, sent[m], (int64_t)first + i));
        put_element(c->type, to, i, c->redop == ncclAvg ? value / (float)team->size : value);
    }
}

/* A sum is known when all that it is made of is. */
static void reduce_any(struct host *h, const struct call *c, int rank, size_t first, uint8_t *to)
{
    const struct team *team = &h->plan->team[c->comm];
    const size_t elem = c->bytes / c->count;
    memset(to, 0, c->bytes);
    for (int m = 0; m < team->size; m++) {
        const uint8_t *from = h->any.sent[team_member(h->plan, c->comm, rank, m)] + first * elem;
        if (!has_any(from, c->bytes))
            continue;
        for (size_t i = 0; i < c->bytes; i++)
            if (from[i])
                memset(to + i / elem * elem, 1, elem);
    }
}

static void receive_sums(struct host *h, const struct call *c, int rank)
{
    const struct place to = h->plan->ops[c->op[rank]].to;
    const size_t first = c->kind == OP_SCATTER ? (size_t)h->plan->team[c->comm].rank[rank] * c->count : 0;
    if (is_float(c->type))
        reduce_floats(h, c, rank, first, at(h, rank, to));
    else
        reduce(h, c, rank, first, at(h, rank, to));
    reduce_any(h, c, rank, first, any_at(h, rank, to));
}

static void receive(const struct plan *plan, const struct plane *plane, const struct call *c, int rank)
{
    const struct team *team = &plan->team[c->comm];
    uint8_t *to = in(plane, rank, plan->ops[c->op[rank]].to);
    const int n = team->size;
    const int from = c->kind == OP_BROADCAST ? c->root : (team->rank[rank] + n - c->shift) % n;
    if (c->kind != OP_GATHER)
        memcpy(to, plane->sent[team_member(plan, c->comm, rank, from)], c->bytes);
    for (int m = 0; m < n && c->kind == OP_GATHER; m++)
        memcpy(to + (size_t)m * c->bytes, plane->sent[team_member(plan, c->comm, rank, m)], c->bytes);
}

static void send(const struct plan *plan, const struct plane *plane, const struct call *c, int rank)
{
    memcpy(plane->sent[rank], in(plane, rank, plan->ops[c->op[rank]].from), sent_bytes(plan, c));
}

/* A call runs when the last rank of the plan comes to it. */
static void run_call(struct host *h, const struct call *c, const struct op *op)
{
    const int n = h->plan->nranks;
    if (op != &h->plan->ops[c->op[n - 1]])
        return;
    for (int r = 0; r < n; r++) {
        send(h->plan, &h->bytes, c, r);
        send(h->plan, &h->any, c, r);
    }
    for (int r = 0; r < n; r++)
        if (is_sum(c)) {
            receive_sums(h, c, r);
        } else {
            receive(h->plan, &h->bytes, c, r);
            receive(h->plan, &h->any, c, r);
        }
}

static uint8_t *copied(const uint8_t *from, size_t bytes)
{
    uint8_t *to = malloc(bytes);
    CHECK(to, "no memory");
    return memcpy(to, from, bytes);
}

static void run_op(struct host *h, struct op *op, int rank)
{
    switch (op->kind) {
    case OP_GATHER:
    case OP_BROADCAST:
    case OP_REDUCE:
    case OP_SCATTER:
    case OP_SENDRECV:
        run_call(h, &h->plan->calls[op->call], op);
        return;
    case OP_COPY:
        memcpy(at(h, op->rank, op->to), at(h, op->rank, op->from), op->bytes);
        memcpy(any_at(h, op->rank, op->to), any_at(h, op->rank, op->from), op->bytes);
        return;
    case OP_SET:
        memset(at(h, op->rank, op->to), op->value, op->bytes);
        memset(any_at(h, op->rank, op->to), 0, op->bytes);
        return;
    case OP_FILL:
        memcpy(at(h, op->rank, op->to), h->source[op->rank][op->value] + op->from.off, op->bytes);
        memset(any_at(h, op->rank, op->to), 0, op->bytes);
        return;
    case OP_GEMM:
        run_gemm(h, op);
        return;
    case OP_LOOK:
        if (rank >= 0 && op->rank != rank)
            return;
        op->expected = copied(at(h, op->rank, op->from), op->bytes);
        if (has_any(any_at(h, op->rank, op->from), op->bytes))
            op->any = copied(any_at(h, op->rank, op->from), op->bytes);
        return;
    default:
        return; /* order only */
    }
}

static void *take(size_t bytes)
{
    void *got = calloc(1, bytes);
    CHECK(got, "no memory");
    return got;
}

static void open_plane(const struct plan *plan, struct plane *plane)
{
    for (int r = 0; r < plan->nranks; r++) {
        for (int b = 0; b < BUFFERS; b++)
            plane->memory[r][b] = take(plan->size[b]);
        plane->sent[r] = take(largest(plan));
    }
}

static void close_plane(const struct plan *plan, struct plane *plane)
{
    for (int r = 0; r < plan->nranks; r++) {
        for (int b = 0; b < BUFFERS; b++)
            free(plane->memory[r][b]);
        free(plane->sent[r]);
    }
}

static void open_host(struct host *h, const struct plan *plan)
{
    h->plan = plan;
    open_plane(plan, &h->bytes);
    open_plane(plan, &h->any);
    for (int r = 0; r < plan->nranks; r++)
        for (int s = 0; s < SOURCES; s++) {
            h->source[r][s] = take(source_bytes(plan));
            source_make(plan, r, (enum source)s, h->source[r][s]);
        }
}

static void close_host(struct host *h)
{
    close_plane(h->plan, &h->bytes);
    close_plane(h->plan, &h->any);
    for (int r = 0; r < h->plan->nranks; r++)
        for (int s = 0; s < SOURCES; s++)
            free(h->source[r][s]);
}

void plan_expect(struct plan *plan, int rank)
{
    struct host h;
    open_host(&h, plan);
    for (int i = 0; i < plan->nops; i++)
        if (!plan->ops[i].thrown)
            run_op(&h, &plan->ops[i], rank);
    close_host(&h);
}
