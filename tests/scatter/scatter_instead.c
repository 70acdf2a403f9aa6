/* SPDX-License-Identifier: Apache-2.0 */
/* What comes instead of the GEMM or of the call, and what comes right after the call. */
#include "scatter_wrong.h"

/* ---- instead of the GEMM ---- */

static void two_halves(struct turn *u)
{
    struct site *t = u->t;
    const int half = t->n / 2;
    site_gemm_part(t, 0, 0, half, -1, t->w->s);
    site_gemm_part(t, half, half, t->n - half, -1, t->w->s);
}

static void shorter(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
    site_gemm_part(t, 0, 0, t->n - 1, 0, t->w->s);
}

static void is_shorter(struct turn *u, int r)
{
    const size_t m = (size_t)u->t->shape.m, last = u->t->all - m;
    memcpy(u->c[r] + last, u->spare[r] + last, m * sizeof(int));
}

static void copied(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
}

static void in_graph(struct turn *u)
{
    graph_of(u, gemm_again);
}

static void on_passing_stream(struct turn *u)
{
    struct world *w = u->t->w;
    cudaStream_t passing;
    CUDA(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking));
    edge(w, 0, w->s, passing);
    site_gemm(u->t, passing);
    edge(w, 1, passing, w->s);
    CUDA(cudaStreamDestroy(passing));
}

/* ---- instead of the call ---- */

static void no_call(struct turn *u)
{
    u->poisoned = true;
}

static void expect_none(struct turn *u)
{
    turn_expect(u, u->c, 0, 0, false);
}

static ncclResult_t scatter(struct turn *u, const uint8_t *from, size_t count, ncclRedOp_t op, ncclComm_t comm)
{
    return world_reduce(u->t->w, from, u->t->recv, count, nccl_type(u->t->shape.type), op, comm, u->t->w->s);
}

static void other_buffer(struct turn *u)
{
    NCCL(scatter(u, u->t->spare, u->t->count, ncclSum, u->t->w->comm));
}

static void expect_spare(struct turn *u)
{
    turn_expect(u, u->spare, 0, u->t->count, false);
}

static void half_count(struct turn *u)
{
    NCCL(scatter(u, u->t->c, u->t->count / 2, ncclSum, u->t->w->comm));
}

static void expect_half(struct turn *u)
{
    turn_expect(u, u->c, 0, u->t->count / 2, false);
}

/* Whole columns of it, but one less of each shard, from the second column on. */
static void inside(struct turn *u)
{
    const size_t m = (size_t)u->t->shape.m;
    NCCL(scatter(u, u->t->c + m * u->t->elem, u->t->count - m, ncclSum, u->t->w->comm));
}

static void expect_inside(struct turn *u)
{
    const size_t m = (size_t)u->t->shape.m;
    turn_expect(u, u->c, m, u->t->count - m, false);
}

static void other_operation(struct turn *u)
{
    NCCL(scatter(u, u->t->c, u->t->count, ncclMax, u->t->w->comm));
}

static void expect_most(struct turn *u)
{
    const struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    for (size_t i = 0; i < t->got; i++) {
        const size_t at = site_first(t) + i;
        int most = u->c[0][at];
        for (int r = 1; r < t->w->nranks; r++)
            most = u->c[r][at] > most ? u->c[r][at] : most;
        elem_put(t->shape.type, u->want_recv, i, most);
    }
}

/* The same bytes as integers. */
static void other_type(struct turn *u)
{
    const struct site *t = u->t;
    NCCL(world_reduce(t->w, t->c, t->recv, t->count * t->elem, ncclUint8, ncclSum, t->w->comm, t->w->s));
}

static void expect_bytes(struct turn *u)
{
    const struct site *t = u->t;
    uint8_t one[4];
    turn_expect(u, u->c, 0, t->count, false);
    memset(u->want_recv, 0, t->got * t->elem);
    for (int r = 0; r < t->w->nranks; r++)
        for (size_t i = 0; i < t->got; i++) {
            elem_put(t->shape.type, one, 0, u->c[r][site_first(t) + i]);
            for (size_t b = 0; b < t->elem; b++)
                u->want_recv[i * t->elem + b] = (uint8_t)(u->want_recv[i * t->elem + b] + one[b]);
        }
}

static void other_comm(struct turn *u)
{
    NCCL(scatter(u, u->t->c, u->t->count, ncclSum, u->t->w->reversed));
}

static void expect_turned(struct turn *u)
{
    turn_expect(u, u->c, 0, u->t->count, true);
}

static void other_stream(struct turn *u)
{
    struct world *w = u->t->w;
    edge(w, 0, w->s, w->third);
    site_call(u->t, w->third);
    edge(w, 1, w->third, w->s);
}

static void all_reduce_instead(struct turn *u)
{
    u->poisoned = true;
    all_reduce(u);
}

static void twice(struct turn *u)
{
    site_call(u->t, u->t->w->s);
    site_call(u->t, u->t->w->s);
}

/* What the GEMM made in bf16, two and two, as half as many numbers of fp32. */
static void as_fp32(struct turn *u)
{
    const struct site *t = u->t;
    NCCL(world_reduce(t->w, t->c, t->recv, t->count / 2, ncclFloat32, ncclSum, t->w->comm, t->w->s));
}

static void expect_fp32(struct turn *u)
{
    const struct site *t = u->t;
    turn_expect(u, u->c, 0, 0, false);
    for (size_t i = 0; i < t->got / 2; i++) {
        const size_t at = site_first(t) + 2 * i;
        float sum = 0;
        for (int r = 0; r < t->w->nranks; r++) {
            float value;
            elem_put(BF16, (uint8_t *)&value, 0, u->c[r][at]);
            elem_put(BF16, (uint8_t *)&value, 1, u->c[r][at + 1]);
            sum = r == 0 ? value : sum + value; /* in the order of the ranks: not exact */
        }
        elem_put(FP32, u->want_recv, i, (double)sum);
    }
}

/* What the GEMM made in fp32 as twice as many numbers of bf16: the upper half of each is it, as it is small. */
static void as_bf16(struct turn *u)
{
    const struct site *t = u->t;
    NCCL(world_reduce(t->w, t->c, t->recv, t->count * 2, ncclBfloat16, ncclSum, t->w->comm, t->w->s));
}

static void expect_bf16(struct turn *u)
{
    const struct site *t = u->t;
    turn_expect(u, u->c, 0, 0, false);
    for (size_t i = 0; i < t->got; i++) {
        int sum = 0;
        for (int r = 0; r < t->w->nranks; r++)
            sum += u->c[r][site_first(t) + i];
        elem_put(BF16, u->want_recv, 2 * i, 0);
        elem_put(BF16, u->want_recv, 2 * i + 1, sum);
    }
}

/* A padded C: as many bytes as the GEMM writes, from its first one on. */
static void padded(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemsetAsync(t->c, 0, t->all * t->elem, t->w->s));
    site_gemm(t, t->w->s);
}

static void is_padded(struct turn *u, int r)
{
    const struct shape *s = &u->t->shape;
    for (size_t i = 0; i < u->t->all; i++)
        if ((int)(i % (size_t)s->m) >= s->m - s->pad)
            u->c[r][i] = 0;
}

static size_t padded_count(const struct turn *u)
{
    return u->t->count / (size_t)u->t->shape.m * (size_t)(u->t->shape.m - u->t->shape.pad);
}

static void padded_call(struct turn *u)
{
    NCCL(scatter(u, u->t->c, padded_count(u), ncclSum, u->t->w->comm));
}

static void expect_padded(struct turn *u)
{
    turn_expect(u, u->c, 0, padded_count(u), false);
}

static void *call_here(void *one)
{
    struct turn *u = one;
    CUDA(cudaSetDevice(rank_device(u->t->w->rank)));
    site_call(u->t, u->t->w->s);
    return NULL;
}

static void call_in_thread(struct turn *u)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_here, u) == 0, "no thread");
    pthread_join(thread, NULL);
}

static void in_group(struct turn *u)
{
    NCCL(ncclGroupStart());
    site_call(u->t, u->t->w->s);
    NCCL(ncclGroupEnd());
}

static void do_nothing(struct turn *u)
{
    (void)u;
}

static void both(struct turn *u)
{
    site_gemm(u->t, u->t->w->s);
    site_call(u->t, u->t->w->s);
}

/* GEMM and call are recorded, and launched. */
static void both_in_graph(struct turn *u)
{
    graph_of(u, both);
}

static void call_here_again(struct turn *u)
{
    site_call(u->t, u->t->w->s);
}

static void call_in_graph(struct turn *u)
{
    graph_of(u, call_here_again);
}

const struct scatter_case instead_cases[] = {
    OTHER("two-halves", .make = two_halves),
    OTHER("shorter", .make = shorter, .model = is_shorter),
    OTHER("copied", .make = copied, .model = is_all_spare),
    OTHER("gemm-in-graph", .make = in_graph),
    OTHER("passing-stream", .make = on_passing_stream),
    OTHER("no-call", .call = no_call, .expect = expect_none),
    OTHER("other-buffer", .call = other_buffer, .expect = expect_spare),
    OTHER("half-count", .call = half_count, .expect = expect_half),
    OTHER("inside", .call = inside, .expect = expect_inside),
    OTHER("other-operation", .call = other_operation, .expect = expect_most),
    OTHER("other-type", .call = other_type, .expect = expect_bytes),
    OTHER("as-fp32", .m = 33, .call = as_fp32, .expect = expect_fp32),
    OTHER("as-fp32-always", .m = 33, .call = as_fp32, .expect = expect_fp32, .each = true),
    OTHER("as-bf16", .type = FP32, .m = 33, .call = as_bf16, .expect = expect_bf16),
    OTHER("padded", .pad = 8, .make = padded, .model = is_padded, .call = padded_call, .expect = expect_padded,
          .each = true),
    OTHER("other-comm", .call = other_comm, .expect = expect_turned),
    OTHER("other-stream", .call = other_stream),
    OTHER("all-reduce-instead", .call = all_reduce_instead, .expect = expect_none, .model_after = is_reduced),
    OTHER("twice", .call = twice),
    OTHER("call-in-thread", .call = call_in_thread),
    OTHER("in-group", .call = in_group),
    OTHER("both-in-graph", .make = do_nothing, .call = both_in_graph),
    OTHER("call-in-graph", .call = call_in_graph),
    OTHER("overwritten", .after = memset_c, .model_after = is_zero),
    OTHER("overwritten-tied", .after = tied, .model_after = is_spare),
    OTHER("overwritten-synced", .after = host_sync, .model_after = is_spare),
    OTHER("overwritten-by-gemm", .after = gemm_add, .model_after = is_added),
    OTHER("overwritten-by-gather", .after = all_gather, .model_after = is_gathered),
    OTHER("overwritten-always", .after = memset_c, .model_after = is_zero, .each = true),
    OTHER("overwritten-tied-always", .after = tied, .model_after = is_spare, .each = true),
    OTHER("twice-always", .call = twice, .each = true),
    {.name = NULL}};
