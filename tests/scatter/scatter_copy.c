/* SPDX-License-Identifier: Apache-2.0 */
/* What the GEMM has made is copied, and the copy is sent, as frameworks do that reduce a clone in place. The copy is
 * `scratch`. */
#include "scatter_wrong.h"

static void copy_all(struct turn *u, uint8_t *to, const uint8_t *from, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(to, from, u->t->all * u->t->elem, cudaMemcpyDeviceToDevice, stream));
}

static void clone_c(struct turn *u)
{
    copy_all(u, u->t->scratch, u->t->c, u->t->w->s);
}

/* ---- calls ---- */

static void call(struct turn *u, uint8_t *send, uint8_t *recv, cudaStream_t stream)
{
    const struct site *t = u->t;
    NCCL(world_reduce(t->w, send, recv, t->count, nccl_type(t->shape.type), t->shape.avg ? ncclAvg : ncclSum,
                      t->w->comm, stream));
}

/* The bytes of a buffer before what is received in place there. */
static size_t own(const struct site *t)
{
    return t->w->all ? 0 : (size_t)t->w->rank * t->count * t->elem;
}

static void send_clone(struct turn *u)
{
    call(u, u->t->scratch, u->t->recv, u->t->w->s);
}

static void in_place(struct turn *u)
{
    call(u, u->t->scratch, u->t->scratch + own(u->t), u->t->w->s);
}

/* Into what the GEMM has made, which has been copied. */
static void into_c(struct turn *u)
{
    call(u, u->t->scratch, u->t->c + own(u->t), u->t->w->s);
}

/* On a second stream. The first one goes on at once, and uses the memory of C for something else. */
static void beside(struct turn *u, uint8_t *recv)
{
    struct world *w = u->t->w;
    edge(w, 0, w->s, w->side);
    call(u, u->t->scratch, recv, w->side);
    copy_all(u, u->t->c, u->t->spare, w->s);
    edge(w, 1, w->side, w->s);
}

static void send_clone_beside(struct turn *u)
{
    beside(u, u->t->recv);
}

static void in_place_beside(struct turn *u)
{
    beside(u, u->t->scratch + own(u->t));
}

static void send_c(struct turn *u)
{
    site_call(u->t, u->t->w->s);
}

static void send_spare(struct turn *u)
{
    call(u, u->t->spare, u->t->recv, u->t->w->s);
}

/* ---- what is there then ---- */

static void expect_clone(struct turn *u)
{
    const struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    for (size_t i = 0; i < t->all; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->c[t->w->rank][i]);
}

static void expect_in_place(struct turn *u)
{
    const struct site *t = u->t;
    expect_clone(u);
    memcpy(u->want_scratch + own(t), u->want_recv, t->got * t->elem);
    turn_expect(u, u->c, 0, 0, false);
}

/* Nothing is received elsewhere: into C. */
static void expect_into_c(struct turn *u)
{
    expect_clone(u);
    turn_expect(u, u->c, 0, 0, false);
}

static void is_received(struct turn *u, int r)
{
    const struct site *t = u->t;
    const int n = t->w->nranks;
    if (r) /* all at once */
        return;
    int *sums = malloc(t->all * sizeof *sums);
    for (size_t i = 0; i < t->all; i++) {
        sums[i] = 0;
        for (int q = 0; q < n; q++)
            sums[i] += u->c[q][i];
    }
    for (int q = 0; q < n; q++) {
        const size_t first = t->w->all ? 0 : (size_t)q * t->count;
        memcpy(u->c[q] + first, sums + first, t->got * sizeof *sums);
    }
    free(sums);
}

/* ---- copies that are none of the whole, or not of this alone ---- */

static void clone_part(struct turn *u)
{
    struct site *t = u->t;
    copy_all(u, t->scratch, t->spare, t->w->s);
    site_gemm(t, t->w->s);
    CUDA(cudaMemcpyAsync(t->scratch + LOW(t) * t->elem, CHANGED(t), CHANGED_BYTES(t), cudaMemcpyDeviceToDevice,
                         t->w->s));
}

/* From `first` on C, until HIGH. */
static void expect_of_both(struct turn *u, size_t first)
{
    const struct site *t = u->t;
    int *from[MOST_RANKS];
    for (int r = 0; r < t->w->nranks; r++) {
        from[r] = malloc(t->all * sizeof *from[r]);
        memcpy(from[r], u->spare[r], t->all * sizeof *from[r]);
        memcpy(from[r] + first, u->c[r] + first, (HIGH(t) - first) * sizeof *from[r]);
    }
    turn_expect(u, from, 0, t->count, false);
    for (int r = 0; r < t->w->nranks; r++)
        free(from[r]);
}

static void expect_part(struct turn *u)
{
    expect_of_both(u, LOW(u->t));
}

/* As many bytes from its beginning. */
static void clone_prefix(struct turn *u)
{
    struct site *t = u->t;
    copy_all(u, t->scratch, t->spare, t->w->s);
    site_gemm(t, t->w->s);
    CUDA(cudaMemcpyAsync(t->scratch, t->c, HIGH(t) * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
}

static void expect_prefix(struct turn *u)
{
    expect_of_both(u, 0);
}

/* Something else is copied. */
static void clone_spare(struct turn *u)
{
    copy_all(u, u->t->scratch, u->t->spare, u->t->w->s);
}

static void expect_spare(struct turn *u)
{
    turn_expect(u, u->spare, 0, u->t->count, false);
}

/* Twice from C, and the second one is sent. */
static void clone_twice(struct turn *u)
{
    clone_c(u);
    copy_all(u, u->t->spare, u->t->c, u->t->w->s);
}

static void open_longer(struct site *t)
{
    CUDA(cudaFree(t->scratch));
    CUDA(cudaMalloc((void **)&t->scratch, (t->all + 1) * t->elem));
}

/* A copy of the copy is sent, into the memory of the first one, but one element further on. */
static void clone_of_clone(struct turn *u)
{
    struct site *t = u->t;
    clone_c(u);
    copy_all(u, t->spare, t->scratch, t->w->s);
    call(u, t->spare, t->scratch + t->elem, t->w->s);
}

static void expect_in_clone(struct turn *u)
{
    const struct site *t = u->t;
    expect_clone(u);
    memcpy(u->want_scratch + t->elem, u->want_recv, (t->got < t->all ? t->got : t->all - 1) * t->elem);
    turn_expect(u, u->c, 0, 0, false);
}

/* ---- what else happens to it ---- */

static void then_change_c(struct turn *u)
{
    clone_c(u);
    memset_c(u);
}

static void then_change_clone(struct turn *u)
{
    struct site *t = u->t;
    clone_c(u);
    CUDA(cudaMemsetAsync(t->scratch + LOW(t) * t->elem, 0, CHANGED_BYTES(t), t->w->s));
}

static void expect_changed(struct turn *u)
{
    const struct site *t = u->t;
    int *from[MOST_RANKS];
    for (int r = 0; r < t->w->nranks; r++) {
        from[r] = malloc(t->all * sizeof *from[r]);
        memcpy(from[r], u->c[r], t->all * sizeof *from[r]);
        memset(from[r] + LOW(t), 0, (HIGH(t) - LOW(t)) * sizeof *from[r]);
    }
    turn_expect(u, from, 0, t->count, false);
    for (int r = 0; r < t->w->nranks; r++)
        free(from[r]);
}

/* Another stream copies, and copies the copy at once, which is sent. */
static void clone_on_third(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    edge(w, 0, w->s, w->third);
    copy_all(u, t->scratch, t->c, w->third);
    copy_all(u, t->spare, t->scratch, w->third);
    edge(w, 1, w->third, w->s);
}

/* Another device's default stream copies, when the GEMM was on this one's: they have no order. Threads have theirs. */
static void clone_by_other(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    const int other = (w->rank + 1) % w->nranks;
    cudaEvent_t done;
    if (w->threads) {
        site_gemm(t, w->s);
        clone_c(u);
        return;
    }
    edge(w, 0, w->s, NULL);
    site_gemm(t, NULL);
    CUDA(cudaEventRecord(w->event[1], NULL));
    CUDA(cudaEventSynchronize(w->event[1]));
    CUDA(cudaSetDevice(rank_device(other)));
    CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    copy_all(u, t->scratch, t->c, NULL);
    copy_all(u, t->spare, t->scratch, NULL);
    CUDA(cudaEventRecord(done, NULL));
    CUDA(cudaSetDevice(rank_device(w->rank)));
    CUDA(cudaStreamWaitEvent(w->s, done, 0));
    CUDA(cudaEventDestroy(done));
}

/* A gather of another communicator, which the GEMM overtakes, reads what the copy overwrites. */
static void clone_over_gathered(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    copy_all(u, t->scratch, t->spare, w->s);
    NCCL(ncclAllGather(t->scratch, t->recv, t->got / (size_t)w->nranks, nccl_type(t->shape.type), w->reversed, w->s));
    site_gemm(t, w->s);
    clone_c(u);
}

/* ---- memory that is handed out behind the GEMM, in the stream's order ---- */

static void clone_allocated(struct turn *u)
{
    struct site *t = u->t;
    void *copy;
    CUDA(cudaMallocAsync(&copy, t->all * t->elem, t->w->s));
    copy_all(u, copy, t->c, t->w->s);
    call(u, copy, t->recv, t->w->s);
    CUDA(cudaFreeAsync(copy, t->w->s));
}

/* ---- other GEMMs, as those of the weights' gradients ---- */

enum { FEW_ROWS = 16, GEMMS = 5 };

/* What the site's own GEMM has read is not needed any more. */
static void reads(struct turn *u, const void *from)
{
    other_gemm(u->t, from, u->t->a, FEW_ROWS, u->t->w->s);
}

static void open_zeros(struct site *t)
{
    CUDA(cudaMalloc((void **)&t->zeros, t->all * t->elem));
    CUDA(cudaMemset(t->zeros, 0, t->all * t->elem));
}

static void close_zeros(struct site *t)
{
    CUDA(cudaFree(t->zeros));
}

static void zeroes(struct turn *u, uint8_t *of)
{
    const struct site *t = u->t;
    other_gemm(u->t, t->zeros, of + LOW(t) * t->elem, (int)(HIGH(t) - LOW(t)), t->w->s);
}

static void gemm_then_clone(struct turn *u)
{
    reads(u, u->t->spare);
    clone_c(u);
}

static void clone_then_gemm(struct turn *u)
{
    clone_c(u);
    reads(u, u->t->spare);
}

static void reads_copy(struct turn *u)
{
    reads(u, u->t->scratch);
    clone_c(u);
}

static void zeroes_copy(struct turn *u)
{
    zeroes(u, u->t->scratch);
    clone_c(u);
}

/* More than are remembered. */
static void several_read_copy(struct turn *u)
{
    for (int i = 0; i < GEMMS; i++)
        reads(u, u->t->spare);
    reads_copy(u);
}

static void reads_clone(struct turn *u)
{
    clone_c(u);
    reads(u, u->t->scratch);
}

static void zeroes_clone(struct turn *u)
{
    clone_c(u);
    zeroes(u, u->t->scratch);
}

static void zeroes_c(struct turn *u)
{
    clone_c(u);
    zeroes(u, u->t->c);
}

/* On the legacy default stream, which comes behind what reads the copy's place on another; and the copy behind it. */
static void gemm_on_legacy(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    edge(w, 0, w->s, w->blocking[1]);
    hold(w->blocking[1], 20);
    other_gemm(t, t->scratch, t->zeros, FEW_ROWS, w->blocking[1]);
    edge(w, 1, w->s, w->blocking[0]);
    site_gemm(t, w->blocking[0]);
    other_gemm(t, t->b, t->a, FEW_ROWS, NULL);
    copy_all(u, t->scratch, t->c, w->blocking[0]);
    edge(w, 2, w->blocking[0], w->s);
}

/* ---- another thread, on the GEMM's stream ---- */

/* It reads what the copy is made to while the parts are enqueued. */
static void *reads_meanwhile(void *one)
{
    struct turn *u = one;
    CUDA(cudaSetDevice(rank_device(u->t->w->rank)));
    sleep_ms((unsigned)(hash64(u->seed, 1) % 24));
    copy_all(u, u->t->scratch, u->t->spare, u->t->w->s);
    return NULL;
}

static void clone_meanwhile(struct turn *u)
{
    struct site *t = u->t;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_meanwhile, u) == 0, "no thread");
    site_gemm(t, t->w->s);
    pthread_join(thread, NULL);
    copy_all(u, t->spare, t->c, t->w->s);
}

static void expect_meanwhile(struct turn *u)
{
    const struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    for (size_t i = 0; i < t->all; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->spare[t->w->rank][i]);
}

/* ---- to where the GEMM still reads ---- */

static void clone_into(struct turn *u, void *to)
{
    copy_all(u, to, u->t->c, u->t->w->s);
    call(u, to, u->t->recv, u->t->w->s);
}

static void clone_into_a(struct turn *u)
{
    clone_into(u, u->t->a);
}

static void clone_into_b(struct turn *u)
{
    clone_into(u, u->t->b);
}

/* ---- learning ---- */

static const struct other clones = {.between = clone_c, .call = send_clone, .expect = expect_clone};

enum { MANY = 70, FEW = 12 }; /* more calls than are looked at where nothing is found; enough to learn */

static void play_sites(struct world *w, const struct scatter_case *c, const struct other *first)
{
    const struct shape other = {.type = BF16, .m = 40, .cols = 12, .k = 24};
    const struct shape *const shapes[] = {&usual, &other};
    for (int i = 0; i < LENGTH(shapes); i++) {
        struct site t;
        struct turn u;
        site_open(&t, w, shapes[i]);
        turn_open(&u, &t);
        for (int at = 0; at < (i ? FEW : MANY); at++) {
            other_play(&u, i ? &clones : first, NULL);
            CUDA(cudaStreamSynchronize(w->s));
            turn_check(&u, c->name);
        }
        turn_close(&u);
        site_close(&t);
    }
}

static void sites_body(struct world *w, const struct scatter_case *c)
{
    play_sites(w, c, c->arg);
}

static size_t nodes_of_gemm(struct site *t)
{
    cudaGraph_t graph;
    size_t n = 0;
    CUDA(cudaStreamBeginCapture(t->w->s, cudaStreamCaptureModeThreadLocal));
    site_gemm(t, t->w->s);
    CUDA(cudaStreamEndCapture(t->w->s, &graph));
    CUDA(cudaGraphGetNodes(graph, NULL, &n));
    CUDA(cudaGraphDestroy(graph));
    return n;
}

/* Copies are followed outside of graphs alone: there the GEMM is what it was before. */
static void captured_body(struct world *w, const struct scatter_case *c)
{
    struct site t;
    struct turn u;
    nccl_connects(w->comm, w->s);
    site_open(&t, w, &usual);
    turn_open(&u, &t);
    const size_t before = nodes_of_gemm(&t);
    for (int at = 0; at < FEW; at++) {
        other_play(&u, &clones, NULL);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
    }
    const size_t now = nodes_of_gemm(&t);
    if (now != before)
        wrong("rank %d: %s: a GEMM of %zu nodes, expected %zu", w->rank, c->name, now, before);
    turn_close(&u);
    site_close(&t);
}

/* ---- two threads, of which one works and the other sleeps, in turn ---- */

enum { PASSES = 6, CALLS = 6, HELD = 3 };

struct passes {
    struct world *w;
    struct turn *u;
    const char *what;
    void *out; /* as large as C */
    pthread_barrier_t at;
};

/* The device comes to it when all is enqueued. */
static void gemm_behind_hold(struct turn *u)
{
    hold(u->t->w->s, 20);
    site_gemm(u->t, u->t->w->s);
}

static const struct other sends_clones = {
    .make = gemm_behind_hold, .between = clone_c, .call = send_clone, .expect = expect_clone};

static void passes_open(struct passes *p, struct world *w, const struct scatter_case *c, struct site *t, struct turn *u)
{
    *p = (struct passes){.w = w, .u = u, .what = c->name};
    site_open(t, w, &usual);
    turn_open(u, t);
    CUDA(cudaMalloc(&p->out, t->all * t->elem));
    CHECK(pthread_barrier_init(&p->at, NULL, 2) == 0, "no barrier");
}

static void passes_close(struct passes *p)
{
    pthread_barrier_destroy(&p->at);
    CUDA(cudaFree(p->out));
    struct site *t = p->u->t;
    turn_close(p->u);
    site_close(t);
}

static void pass(const struct passes *p)
{
    for (int i = 0; i < CALLS; i++) {
        other_play(p->u, &sends_clones, NULL);
        CUDA(cudaStreamSynchronize(p->w->s));
        turn_check(p->u, p->what);
    }
}

static void *second(void *one)
{
    struct passes *p = one;
    CUDA(cudaSetDevice(rank_device(p->w->rank)));
    for (int i = 0; i < PASSES; i += 2) {
        pthread_barrier_wait(&p->at);
        pass(p);
        pthread_barrier_wait(&p->at);
    }
    return NULL;
}

static void first(struct passes *p)
{
    for (int i = 0; i < PASSES; i += 2) {
        pass(p);
        pthread_barrier_wait(&p->at);
        pthread_barrier_wait(&p->at);
    }
}

/* `here` on this thread, `there` on another one. */
static void on_both(struct world *w, const struct scatter_case *c, void (*here)(struct passes *),
                    void *(*there)(void *))
{
    struct passes p;
    struct site t;
    struct turn u;
    pthread_t thread;
    passes_open(&p, w, c, &t, &u);
    CHECK(pthread_create(&thread, NULL, there, &p) == 0, "no thread");
    here(&p);
    pthread_join(thread, NULL);
    passes_close(&p);
}

static void in_turn_body(struct world *w, const struct scatter_case *c)
{
    on_both(w, c, first, second);
}

/* It has called for a copy of what the clone is made to, and is held up on its way to the driver (SOFTGPU_FAIL). */
static void *held(void *one)
{
    struct passes *p = one;
    const struct site *t = p->u->t;
    const int device = rank_device(p->w->rank);
    CUDA(cudaSetDevice(device));
    for (int i = 0; i < HELD; i++) {
        pthread_barrier_wait(&p->at);
        CUDA(cudaMemcpyPeerAsync(p->out, device, t->scratch, device, t->all * t->elem, p->w->s));
        pthread_barrier_wait(&p->at);
    }
    return NULL;
}

static void past_held(struct passes *p)
{
    const struct site *t = p->u->t;
    for (int i = 0; i < HELD; i++) {
        pass(p);
        pthread_barrier_wait(&p->at);
        sleep_ms(5);
        pass(p);
        pthread_barrier_wait(&p->at);
        /* Else what it has read does not matter. */
        CUDA(cudaMemcpyAsync(p->u->out, p->out, t->all * t->elem, cudaMemcpyDeviceToHost, p->w->s));
        CUDA(cudaStreamSynchronize(p->w->s));
    }
}

static void held_body(struct world *w, const struct scatter_case *c)
{
    on_both(w, c, past_held, held);
}

#define COPY(name_, ...)                                                                                               \
    {                                                                                                                  \
        .name = "copy-" name_, .list = "copy", .body = wrong_body, .arg = &(const struct other)                        \
        {                                                                                                              \
            .name = "copy-" name_, __VA_ARGS__                                                                         \
        }                                                                                                              \
    }
#define CLONE(name_, call_, expect_, ...)                                                                              \
    COPY(name_, .between = clone_c, .call = call_, .expect = expect_, __VA_ARGS__),                                    \
        COPY(name_ "-always", .between = clone_c, .call = call_, .expect = expect_, .each = true, __VA_ARGS__)

const struct scatter_case copy_cases[] = {
    CLONE("sent", send_clone, expect_clone, .type = BF16),
    CLONE("in-place-fp32", in_place, expect_in_place, .type = FP32),
    CLONE("in-place", in_place, expect_in_place, .type = FP16),
    CLONE("beside", send_clone_beside, expect_clone, .model_after = is_all_spare),
    CLONE("in-place-beside", in_place_beside, expect_in_place, .model_after = is_all_spare),
    CLONE("into-c", into_c, expect_into_c, .model_after = is_received),
    CLONE("kept", send_c, expect_clone, .type = BF16),
    COPY("part", .make = clone_part, .call = send_clone, .expect = expect_part, .each = true),
    COPY("prefix", .always = &clones, .make = clone_prefix, .call = send_clone, .expect = expect_prefix),
    COPY("of-other", .always = &clones, .between = clone_spare, .call = send_clone, .expect = expect_spare),
    COPY("by-other", .always = &clones, .make = clone_by_other, .call = send_clone, .expect = expect_clone),
    COPY("twice", .between = clone_twice, .call = send_spare, .expect = expect_clone, .each = true),
    COPY("of-copy", .open = open_longer, .call = clone_of_clone, .expect = expect_in_clone),
    COPY("of-copy-always", .open = open_longer, .call = clone_of_clone, .expect = expect_in_clone, .each = true),
    COPY("c-changed", .between = then_change_c, .call = send_clone, .expect = expect_clone, .model_after = is_zero,
         .each = true),
    COPY("changed", .between = then_change_clone, .call = send_clone, .expect = expect_changed, .each = true),
    COPY("on-third", .always = &clones, .between = clone_on_third, .call = send_spare, .expect = expect_clone),
    COPY("gathered", .make = clone_over_gathered, .call = send_clone, .expect = expect_clone, .each = true),
    COPY("allocated", .call = clone_allocated),
    COPY("meanwhile", .make = clone_meanwhile, .call = send_spare, .expect = expect_meanwhile),
    COPY("gemm-between-always", .between = gemm_then_clone, .call = send_clone, .expect = expect_clone, .each = true),
    COPY("gemm-behind-always", .between = clone_then_gemm, .call = in_place, .expect = expect_in_place, .each = true),
    COPY("gemm-reads-copy", .between = reads_copy, .call = send_clone, .expect = expect_clone),
    COPY("gemm-zeroes-copy", .open = open_zeros, .close = close_zeros, .between = zeroes_copy, .call = send_clone,
         .expect = expect_clone),
    COPY("gemms-read-copy", .between = several_read_copy, .call = send_clone, .expect = expect_clone),
    COPY("gemm-reads-clone", .between = reads_clone, .call = in_place, .expect = expect_in_place, .each = true),
    COPY("gemm-zeroes-clone", .open = open_zeros, .close = close_zeros, .between = zeroes_clone, .call = send_clone,
         .expect = expect_changed, .each = true),
    COPY("gemm-zeroes-c", .open = open_zeros, .close = close_zeros, .between = zeroes_c, .call = send_clone,
         .expect = expect_clone, .model_after = is_zero, .each = true),
    COPY("gemm-on-legacy", .open = open_zeros, .close = close_zeros, .make = gemm_on_legacy, .call = send_clone,
         .expect = expect_clone, .each = true),
    COPY("into-a", .call = clone_into_a),
    COPY("into-b", .call = clone_into_b, .type = FP32),
    {.name = "copy-later",
     .list = "copy-learnt",
     .body = sites_body,
     .arg = &(const struct other){.between = clone_c, .call = send_clone, .expect = expect_clone}},
    {.name = "copy-too-late", .list = "copy-learnt", .body = sites_body, .arg = &(const struct other){.name = "C"}},
    {.name = "copy-captured", .list = "copy-learnt", .body = captured_body},
    {.name = "copy-in-turn", .list = "copy-learnt", .body = in_turn_body},
    {.name = "copy-held-up", .list = "copy-learnt", .body = held_body},
    {.name = NULL}};
