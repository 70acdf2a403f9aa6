/* SPDX-License-Identifier: Apache-2.0 */
/* Checked rounds. A round enqueues a burst of iterations without synchronising, each with its own
 * data, keeps what each one gathered and computed, and compares afterwards: bytes with bytes for
 * the gather, and for the GEMM each value with the exact sum rounded to the type. New data in every
 * iteration so that results of an earlier one are wrong. */
#include "ag_rank.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, WINDOW = 4096, RANDOM_WINDOWS = 8, RANDOM_POINTS = 128, POINTS_PER_BORDER = 8 };

struct check {
    struct ag_rank *r;
    const struct ag_lane *lane;
    int lane_index, slot;
    uint64_t step, random;
    unsigned char *got, *expected; /* PIECE elements, of C as well */
    int8_t *gathered, *weight;     /* one line each */
};

static uint64_t next_random(struct check *c)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return c->random >> 33;
}

static size_t below(struct check *c, size_t limit)
{
    return (size_t)((next_random(c) << 31 | next_random(c)) % limit);
}

static uint64_t step_of(const struct ag_rank *r, int slot, int lane)
{
    return ((r->rounds * AG_MAX_BURST + (uint64_t)slot) * AG_MAX_LANES + (uint64_t)lane) + 1;
}

static void note_wrong(struct check *c, const char *what, int dtype, size_t index, const void *expected,
                       const void *got)
{
    struct ag_record *record = c->r->record;
    if (record->wrong++)
        return;
    snprintf(record->first_wrong, sizeof(record->first_wrong),
             "%s element %zu: got %.9g, expected %.9g (round %llu, iteration %d, stream %d)", what, index,
             ag_decode(dtype, got), ag_decode(dtype, expected), (unsigned long long)c->r->rounds, c->slot,
             c->lane_index);
    fprintf(stderr, "ag_gemm: rank %d: wrong data: %s\n", c->r->rank, record->first_wrong);
}

static void compare_bytes(struct check *c, size_t base, size_t count)
{
    const size_t bytes = c->r->data.shape.element_bytes;
    c->r->record->checked += count;
    if (memcmp(c->got, c->expected, count * bytes) == 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (memcmp(c->got + i * bytes, c->expected + i * bytes, bytes) != 0)
            note_wrong(c, "gathered", c->r->options->dtype, base + i, c->expected + i * bytes, c->got + i * bytes);
}

/* --interpose-op write: the last column that the GEMM uses has been overwritten. */
static void apply_write(struct check *c, size_t base, size_t count)
{
    const struct ag_shape *s = &c->r->data.shape;
    if (c->r->options->interpose_op != AG_WRITE || !s->gemm)
        return;
    const size_t first = (size_t)(s->outer - 1) * (size_t)s->ld, end = first + (size_t)s->ld;
    for (size_t i = base < first ? first - base : 0; i < count && base + i < end; i++)
        memset(c->expected + i * s->element_bytes, 0, s->element_bytes);
}

static int check_window(struct check *c, int owner, size_t first, size_t count)
{
    const struct ag_shape *s = &c->r->data.shape;
    const size_t base = (size_t)owner * s->shard + first;
    AG_CUDA(c->r, cudaMemcpy(c->got, (const char *)c->lane->kept[c->slot] + base * s->element_bytes,
                             count * s->element_bytes, cudaMemcpyDeviceToHost));
    ag_data_shard(&c->r->data, c->step, owner, first, count, c->expected);
    apply_write(c, base, count);
    compare_bytes(c, base, count);
    return 0;
}

static int check_shard_sample(struct check *c, int owner)
{
    const size_t shard = c->r->data.shape.shard, window = shard < WINDOW ? shard : WINDOW;
    AG_TRY(check_window(c, owner, 0, window));
    AG_TRY(check_window(c, owner, shard - window, window));
    for (int i = 0; i < RANDOM_WINDOWS && shard > window; i++)
        AG_TRY(check_window(c, owner, below(c, shard - window), window));
    return 0;
}

static int check_gathered(struct check *c)
{
    const struct ag_shape *s = &c->r->data.shape;
    for (int owner = 0; owner < s->ranks; owner++) {
        if (c->r->options->check == AG_SAMPLE) {
            AG_TRY(check_shard_sample(c, owner));
            continue;
        }
        for (size_t first = 0; first < s->shard; first += PIECE)
            AG_TRY(check_window(c, owner, first, s->shard - first < PIECE ? s->shard - first : PIECE));
    }
    return 0;
}

/* Where a check spends its time. Sanitizers have seen who wrote the two lines. */
__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined"))) static long
dot(const int8_t *a, const int8_t *b, long k)
{
    long sum = 0;
    for (long l = 0; l < k; l++)
        sum += a[l] * b[l];
    return sum;
}

/* Line `line` of the gathered matrix as the GEMM saw it. */
static void load_gathered(struct check *c, long line)
{
    const struct ag_shape *s = &c->r->data.shape;
    const int last_is_0 = c->r->options->interpose_op == AG_WRITE;
    ag_data_gathered_line(&c->r->data, c->step, line, c->gathered);
    if (last_is_0 && s->sums)
        c->gathered[s->k - 1] = 0;
    else if (last_is_0 && line == s->outer - 1)
        memset(c->gathered, 0, (size_t)s->k);
}

/* C's element for line `line` of the gathered matrix and column `f` of the weight. */
static size_t index_of(const struct check *c, long line, long f)
{
    const size_t m = (size_t)c->r->data.shape.m;
    return c->r->options->form == AG_BN ? (size_t)line * m + (size_t)f : (size_t)f * m + (size_t)line;
}

static void compare_value(struct check *c, size_t index, long sum, const void *got)
{
    const struct ag_options *o = c->r->options;
    unsigned char expected[8];
    const struct ag_data *data = &c->r->data;
    const double start = o->beta != 0 ? o->beta * ag_data_c(data, c->step, index) : 0;
    if (o->api == AG_LT_BIAS)
        sum += ag_data_bias(data, c->r->rank, (long)(index % (size_t)data->shape.m));
    ag_encode(data->shape.c_dtype, (double)sum + start, expected);
    c->r->record->checked++;
    /* By value: -0 is as good as 0. NaN differs from everything. */
    if (!(ag_decode(data->shape.c_dtype, expected) == ag_decode(data->shape.c_dtype, got)))
        note_wrong(c, "C", data->shape.c_dtype, index, expected, got);
}

static int check_point(struct check *c, long line, long f)
{
    const struct ag_shape *s = &c->r->data.shape;
    const size_t index = index_of(c, line, f);
    AG_CUDA(c->r, cudaMemcpy(c->got, (const char *)c->lane->c[c->slot] + index * s->c_bytes, s->c_bytes,
                             cudaMemcpyDeviceToHost));
    load_gathered(c, line);
    ag_data_weight_column(&c->r->data, c->r->rank, f, c->weight);
    compare_value(c, index, dot(c->gathered, c->weight, s->k), c->got);
    return 0;
}

static int check_c_sample(struct check *c)
{
    const struct ag_shape *s = &c->r->data.shape;
    for (long border = 0; border < 2 * s->ranks; border++) { /* first and last column of each shard */
        const long line = border / 2 * s->per_rank + (border % 2 ? s->per_rank - 1 : 0);
        for (int i = 0; i < POINTS_PER_BORDER; i++) {
            const long f = i == 0 ? 0 : i == 1 ? s->free_size - 1 : (long)below(c, (size_t)s->free_size);
            AG_TRY(check_point(c, line < s->lines ? line : s->lines - 1, f));
        }
    }
    for (int i = 0; i < RANDOM_POINTS; i++)
        AG_TRY(check_point(c, (long)below(c, (size_t)s->lines), (long)below(c, (size_t)s->free_size)));
    return 0;
}

/* Every element; needs C and the weight in host memory. */
static int check_c_full(struct check *c)
{
    const struct ag_shape *s = &c->r->data.shape;
    const size_t elements = ag_c_elements(s);
    unsigned char *got = malloc(elements * s->c_bytes);
    int8_t *weights = malloc((size_t)s->k * (size_t)s->free_size);
    cudaError_t copied = cudaErrorMemoryAllocation;
    if (got && weights)
        copied = cudaMemcpy(got, c->lane->c[c->slot], elements * s->c_bytes, cudaMemcpyDeviceToHost);
    if (copied == cudaSuccess) {
        for (long f = 0; f < s->free_size; f++)
            ag_data_weight_column(&c->r->data, c->r->rank, f, weights + (size_t)f * (size_t)s->k);
        for (long line = 0; line < s->lines; line++) {
            load_gathered(c, line);
            for (long f = 0; f < s->free_size; f++) {
                const size_t index = index_of(c, line, f);
                compare_value(c, index, dot(c->gathered, weights + (size_t)f * (size_t)s->k, s->k),
                              got + index * s->c_bytes);
            }
        }
    }
    free(got);
    free(weights);
    AG_CUDA(c->r, copied);
    return 0;
}

static int check_slot(struct check *c)
{
    AG_TRY(check_gathered(c));
    if (!c->r->data.shape.gemm)
        return 0;
    return c->r->options->check == AG_FULL ? check_c_full(c) : check_c_sample(c);
}

/* What must be in place before the burst starts: the shards' next contents, and C where beta reads
 * it. */
static int prepare(struct ag_rank *r, struct ag_lane *lane, int slot, uint64_t step, void *block)
{
    const struct ag_shape *s = &r->data.shape;
    const size_t elements = s->gemm && r->options->beta != 0 ? ag_c_elements(s) : 0;
    ag_data_shard(&r->data, step, r->rank, 0, s->shard, lane->staged[slot]);
    for (size_t first = 0, count; first < elements; first += count) {
        count = elements - first < PIECE ? elements - first : PIECE;
        ag_data_cs(&r->data, step, first, count, block);
        AG_CUDA(r, cudaMemcpy((char *)lane->c[slot] + first * s->c_bytes, block, count * s->c_bytes,
                              cudaMemcpyHostToDevice));
    }
    return 0;
}

static int enqueue(struct ag_rank *r, struct ag_lane *lane, int slot)
{
    const struct ag_shape *s = &r->data.shape;
    const size_t gathered = s->gathered * s->element_bytes, shard = s->shard * s->element_bytes;
    if (r->options->poison) {
        AG_CUDA(r, cudaMemsetAsync(lane->gathered, 0xff, gathered, lane->stream));
        if (s->gemm && r->options->beta == 0)
            AG_CUDA(r, cudaMemsetAsync(lane->c[slot], 0xff, ag_c_elements(s) * s->c_bytes, lane->stream));
    }
    AG_CUDA(r, cudaMemcpyAsync(lane->shard, lane->staged[slot], shard, cudaMemcpyHostToDevice, lane->stream));
    AG_TRY(ag_gather(r, lane));
    AG_TRY(ag_between(r, lane));
    if (s->gemm)
        AG_TRY(ag_gemm(r, lane, slot));
    AG_CUDA(r, cudaMemcpyAsync(lane->kept[slot], lane->gathered, gathered, cudaMemcpyDeviceToDevice, lane->stream));
    return 0;
}

static int run_burst(struct ag_rank *r, void *block)
{
    const int burst = (int)r->options->burst;
    for (int slot = 0; slot < burst; slot++)
        for (int i = 0; i < r->lane_count; i++)
            AG_TRY(prepare(r, &r->lanes[i], slot, step_of(r, slot, i), block));
    AG_CUDA(r, cudaDeviceSynchronize());
    if (ag_barrier(r->shared) != 0)
        return ag_failed(r, "barrier", "another rank", "failed");
    for (int slot = 0; slot < burst; slot++)
        for (int i = 0; i < r->lane_count; i++)
            AG_TRY(enqueue(r, &r->lanes[i], slot));
    for (int i = 0; i < r->lane_count; i++)
        AG_CUDA(r, cudaStreamSynchronize(r->lanes[i].stream));
    return 0;
}

static int run_round(struct ag_rank *r, struct check *c)
{
    AG_TRY(run_burst(r, c->got));
    for (c->slot = 0; c->slot < r->options->burst; c->slot++)
        for (c->lane_index = 0; c->lane_index < r->lane_count; c->lane_index++) {
            c->lane = &r->lanes[c->lane_index];
            c->step = step_of(r, c->slot, c->lane_index);
            AG_TRY(check_slot(c));
        }
    r->rounds++;
    return 0;
}

int ag_check_rounds(struct ag_rank *r)
{
    const struct ag_shape *s = &r->data.shape;
    struct check c = {.r = r, .random = (uint64_t)r->options->seed * 31 + (uint64_t)r->rank};
    int result = 0;
    c.got = malloc(PIECE * (s->c_bytes > s->element_bytes ? s->c_bytes : s->element_bytes));
    c.expected = malloc(PIECE * s->element_bytes);
    c.gathered = malloc((size_t)s->k);
    c.weight = malloc((size_t)s->k);
    if (!c.got || !c.expected || !c.gathered || !c.weight)
        result = ag_failed(r, "malloc", "host", "out of memory");
    for (long round = 0; result == 0 && round < r->options->check_rounds; round++) {
        ag_enter(r, AG_PHASE_check, (long)r->rounds);
        result = run_round(r, &c);
    }
    free(c.got);
    free(c.expected);
    free(c.gathered);
    free(c.weight);
    return result;
}
