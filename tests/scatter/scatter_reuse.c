/* SPDX-License-Identifier: Apache-2.0 */
/* Something still uses the receive buffer when the GEMM begins, and the call's stream comes behind it in one of many ways;
 * or C is changed in an order that no stream of the GEMM shows. As everything here is about order, the race oracle looks on. */
#include "scatter_wrong.h"

/* Other data in the receive buffer, which somebody reads on `stream` for long. */
static void read_on(struct turn *u, cudaStream_t stream)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    edge(w, 0, w->s, stream);
    hold(stream, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, t->got * t->elem, cudaMemcpyDeviceToDevice, stream));
}

static void expect_read(struct turn *u)
{
    struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    memset(u->want_scratch, 0x7b, t->all * t->elem);
    for (size_t i = 0; i < t->got; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->spare[t->w->rank][i]);
}

static void gemm_on(struct turn *u, cudaStream_t stream)
{
    edge(u->t->w, 1, u->t->w->s, stream);
    site_gemm(u->t, stream);
}

static void call_on(struct turn *u, cudaStream_t stream)
{
    site_call(u->t, stream);
    edge(u->t->w, 3, stream, u->t->w->s);
}

static void call_on_blocking(struct turn *u)
{
    call_on(u, u->t->w->blocking[0]);
}

static void call_on_legacy(struct turn *u)
{
    call_on(u, NULL);
}

static void call_on_side(struct turn *u)
{
    call_on(u, u->t->w->side);
}

static void call_on_third(struct turn *u)
{
    call_on(u, u->t->w->third);
}

/* ---- the legacy default stream is between them ---- */

static void legacy_waits(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->third);
    gemm_on(u, w->blocking[0]);
    edge(w, 2, w->third, NULL);
}

static void legacy_records(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->blocking[1]);
    gemm_on(u, w->blocking[0]);
    CUDA(cudaEventRecord(w->event[2], NULL));
}

static void legacy_waits_follower(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->third);
    site_gemm(u->t, w->s);
    edge(w, 1, w->s, w->blocking[0]);
    edge(w, 2, w->third, NULL);
}

static void legacy_records_follower(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->blocking[1]);
    site_gemm(u->t, w->s);
    edge(w, 1, w->s, w->blocking[0]);
    CUDA(cudaEventRecord(w->event[2], NULL));
}

static void waits_for_legacy(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->third);
    gemm_on(u, NULL);
    edge(w, 2, w->third, w->blocking[0]);
}

/* C is changed on it. */
static void legacy_fills(struct turn *u)
{
    gemm_on(u, u->t->w->blocking[0]);
    CUDA(cudaMemset(CHANGED(u->t), 0, CHANGED_BYTES(u->t)));
}

static void legacy_copies(struct turn *u)
{
    gemm_on(u, u->t->w->blocking[0]);
    CUDA(cudaMemcpy(CHANGED(u->t), FROM_SPARE(u->t), CHANGED_BYTES(u->t), cudaMemcpyDeviceToDevice));
}

/* ---- other streams ---- */

static void follower_reads(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->side);
    site_gemm(u->t, w->s);
    edge(w, 1, w->s, w->side);
}

/* The call sends what the stream that follows has made, and not what the GEMM has. */
static void made_on_side(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    edge(w, 0, w->s, w->side);
    hold(w->side, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, w->side));
    site_gemm(t, w->s);
    edge(w, 1, w->s, w->side);
}

/* Another device changes C, behind the GEMM as the host has seen. */
static void changed_by_other(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    const int other = (w->rank + 1) % w->nranks;
    cudaStream_t there;
    cudaEvent_t done;
    site_gemm(t, w->s);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CUDA(cudaEventSynchronize(w->event[1]));
    CUDA(cudaSetDevice(rank_device(other)));
    CUDA(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    hold(there, 8);
    CUDA(cudaMemcpyPeerAsync(CHANGED(t), rank_device(w->rank), FROM_SPARE(t), rank_device(w->rank), CHANGED_BYTES(t),
                             there));
    CUDA(cudaEventRecord(done, there));
    CUDA(cudaSetDevice(rank_device(w->rank)));
    CUDA(cudaStreamWaitEvent(w->s, done, 0));
    site_call(t, w->s);
    CUDA(cudaEventDestroy(done));
    CUDA(cudaStreamDestroy(there));
}

static void no_more(struct turn *u)
{
    (void)u;
}

static void send_scratch(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    NCCL(world_reduce(w, t->scratch, t->recv, t->count, nccl_type(t->shape.type), ncclSum, w->comm, w->side));
    edge(w, 3, w->side, w->s);
}

/* Into memory that there is only from here on. */
static void call_allocated(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    void *p;
    CUDA(cudaMallocAsync(&p, t->got * t->elem, w->s));
    NCCL(world_reduce(w, t->c, p, t->count, nccl_type(t->shape.type), ncclSum, w->comm, w->s));
    CUDA(cudaMemcpyAsync(t->recv, p, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    CUDA(cudaFreeAsync(p, w->s));
}

static void expect_spare(struct turn *u)
{
    turn_expect(u, u->spare, 0, u->t->count, false);
}

/* The host has seen the GEMM's end; the stream of the call has something else before it. */
static void seen_by_host(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->third);
    site_gemm(u->t, w->s);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CUDA(cudaEventSynchronize(w->event[1]));
}

/* Likewise, and an event that was recorded behind the GEMM is so behind something else by now. */
static void recorded_again(struct turn *u)
{
    struct world *w = u->t->w;
    read_on(u, w->third);
    site_gemm(u->t, w->s);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CUDA(cudaEventRecord(w->event[2], w->s));
    CUDA(cudaEventRecord(w->event[2], w->third));
    CUDA(cudaEventSynchronize(w->event[1]));
    CUDA(cudaStreamWaitEvent(w->side, w->event[2], 0));
}

/* An operation of the same communicator, behind which NCCL puts the next one. */
static void reduced_elsewhere(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    edge(w, 0, w->s, w->third);
    hold(w->third, 8);
    NCCL(ncclBroadcast(t->recv, t->scratch, t->got, nccl_type(t->shape.type), 0, w->comm, w->third));
    site_gemm(t, w->s);
}

static void expect_broadcast(struct turn *u)
{
    struct site *t = u->t;
    expect_read(u);
    for (size_t i = 0; i < t->got; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->spare[0][i]);
}

/* ---- gathers of another communicator, which the GEMM may overtake ---- */

static void gather_recv(struct turn *u, cudaStream_t stream)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    if (stream != w->s)
        edge(w, 2, w->s, stream);
    NCCL(ncclAllGather(t->recv, t->scratch, t->count, nccl_type(t->shape.type), w->reversed, stream));
    site_gemm(t, w->s);
}

static void gathered(struct turn *u)
{
    gather_recv(u, u->t->w->s);
}

static void gathered_told(struct turn *u)
{
    gather_recv(u, u->t->w->s);
    edge(u->t->w, 1, u->t->w->s, u->t->w->side);
}

static void gathered_on_side(struct turn *u)
{
    gather_recv(u, u->t->w->side);
    edge(u->t->w, 1, u->t->w->s, u->t->w->side);
}

static void gathered_on_side_joined(struct turn *u)
{
    gathered_on_side(u);
    CUDA(cudaEventRecord(u->t->w->event[0], u->t->w->side));
}

/* Behind the GEMM, into C. */
static void gathered_into(struct turn *u)
{
    const struct site *t = u->t;
    const size_t shard = t->count * t->elem;
    NCCL(ncclAllGather(t->c + shard * (size_t)(t->w->nranks - 1 - t->w->rank), t->c, t->count, nccl_type(t->shape.type),
                       t->w->reversed, t->w->s));
}

void is_gathered_turned(struct turn *u, int r)
{
    const struct site *t = u->t;
    const int n = t->w->nranks;
    if (r) /* all at once */
        return;
    for (int q = 0; q < n; q++)
        for (int to = 0; to < n; to++)
            if (q != to)
                memcpy(u->c[to] + (size_t)(n - 1 - q) * t->count, u->c[q] + (size_t)(n - 1 - q) * t->count,
                       t->count * sizeof(int));
}

/* A small one, which may stay with NCCL, and overtakes there as the GEMM does. */
enum { SMALL = 8 };

static void small_into(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    gather_recv(u, w->s);
    NCCL(ncclAllGather(t->c + (size_t)w->rank * SMALL * t->elem, t->c, SMALL, nccl_type(t->shape.type), w->comm, w->s));
}

static void is_small_gathered(struct turn *u, int r)
{
    const int n = u->t->w->nranks;
    if (r)
        return;
    for (int q = 0; q < n; q++)
        for (int to = 0; to < n; to++)
            if (q != to)
                memcpy(u->c[to] + (size_t)q * SMALL, u->c[q] + (size_t)q * SMALL, SMALL * sizeof(int));
}

static void expect_gathered(struct turn *u)
{
    struct site *t = u->t;
    const int n = t->w->nranks;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < t->count; i++)
            elem_put(t->shape.type, u->want_scratch, (size_t)(n - 1 - r) * t->count + i, u->spare[r][i]);
}

/* What is sent is what the gather brings. */
static void send_gathered(struct turn *u)
{
    struct site *t = u->t;
    NCCL(world_reduce(t->w, t->scratch, t->recv, t->count, nccl_type(t->shape.type), ncclSum, t->w->comm, t->w->s));
}

static void expect_gathered_sum(struct turn *u)
{
    struct site *t = u->t;
    const int n = t->w->nranks;
    int *all = malloc(t->all * sizeof *all), *from[MOST_RANKS];
    for (int r = 0; r < n; r++) {
        memcpy(all + (size_t)(n - 1 - r) * t->count, u->spare[r], t->count * sizeof *all);
        from[r] = all;
    }
    turn_expect(u, from, 0, t->count, false);
    free(all);
}

/* ---- GEMMs that come while others are made ---- */

/* What the group's end puts on the stream changes C. */
static void gemm_in_group(struct turn *u)
{
    NCCL(ncclGroupStart());
    all_reduce(u);
    site_gemm(u->t, u->t->w->s);
    NCCL(ncclGroupEnd());
}

enum { GEMMS = 30 };

static void *gemms_elsewhere(void *one)
{
    const struct turn *u = one;
    struct world w = *u->t->w;
    struct site elsewhere = *u->t;
    CUDA(cudaSetDevice(rank_device(w.rank)));
    BLAS(cublasCreate(&w.blas));
    elsewhere.w = &w;
    elsewhere.c = elsewhere.spare;
    for (int i = 0; i < GEMMS; i++)
        site_gemm(&elsewhere, w.third);
    BLAS(cublasDestroy(w.blas));
    return NULL;
}

/* Another GEMM is expected to be scattered by the other communicator, and writes C before this one does. */
static void two_comms(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    struct site other = *t;
    other.shape.k = t->shape.cols;
    other.c = t->scratch;
    site_gemm(&other, w->s);
    NCCL(world_reduce(w, t->scratch, t->recv, t->count, nccl_type(t->shape.type), ncclSum, w->reversed, w->s));
    other.c = t->c;
    site_gemm(&other, w->s);
    site_gemm(t, w->s);
}

static void two_calls(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    NCCL(world_reduce(w, t->c, t->recv, t->count, nccl_type(t->shape.type), ncclSum, w->reversed, w->s));
    NCCL(world_reduce(w, t->c, t->scratch, t->count, nccl_type(t->shape.type), ncclSum, w->comm, w->s));
}

static void expect_turned(struct turn *u)
{
    turn_expect(u, u->c, 0, u->t->count, true);
}

/* Another thread reads the receive buffer on the GEMM's stream while its parts are enqueued. */
static void *reads_meanwhile(void *one)
{
    struct turn *u = one;
    struct site *t = u->t;
    CUDA(cudaSetDevice(t->w->rank));
    sleep_ms((unsigned)(hash64(u->seed, 1) % 24));
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, t->got * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
    return NULL;
}

static void meanwhile(struct turn *u)
{
    struct site *t = u->t;
    pthread_t thread;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
    CHECK(pthread_create(&thread, NULL, reads_meanwhile, u) == 0, "no thread");
    site_gemm(t, t->w->s);
    pthread_join(thread, NULL);
}

/* Another thread has called that before the GEMM, and does not get to the driver for a while (SOFTGPU_FAIL). */
static void *reads_late(void *one)
{
    struct turn *u = one;
    struct site *t = u->t;
    const int device = rank_device(t->w->rank);
    CUDA(cudaSetDevice(device));
    CUDA(cudaMemcpyPeerAsync(t->scratch, device, t->recv, device, t->got * t->elem, t->w->s));
    return NULL;
}

static void held_up(struct turn *u)
{
    struct site *t = u->t;
    pthread_t thread;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
    CHECK(pthread_create(&thread, NULL, reads_late, u) == 0, "no thread");
    sleep_ms(5);
    hold(t->w->s, 30);
    site_gemm(t, t->w->s);
    pthread_join(thread, NULL);
}

/* Two threads have GEMMs that look alike. */
static void gemms_in_threads(struct turn *u)
{
    struct world *w = u->t->w;
    pthread_t thread;
    edge(w, 0, w->s, w->third);
    CHECK(pthread_create(&thread, NULL, gemms_elsewhere, u) == 0, "no thread");
    for (int i = 0; i < GEMMS; i++)
        site_gemm(u->t, w->s);
    pthread_join(thread, NULL);
    edge(w, 1, w->third, w->s);
}

/* Another GEMM reads where the result goes. */
static void gemm_reads_recv(struct turn *u)
{
    other_gemm(u->t, u->t->recv, u->t->a, 16, u->t->w->s);
}

#define REUSE(name_, ...)                                                                                              \
    {                                                                                                                  \
        .name = "reuse-" name_, .list = "reuse", .body = wrong_body, .arg = &(const struct other)                      \
        {                                                                                                              \
            .name = name_, __VA_ARGS__                                                                                 \
        }                                                                                                              \
    }
#define READ(name_, make_, call_) REUSE(name_, .make = make_, .call = call_, .expect = expect_read)
#define GATHERED(name_, make_, call_) REUSE(name_, .make = make_, .call = call_, .expect = expect_gathered)

const struct scatter_case reuse_cases[] = {
    READ("legacy-waits", legacy_waits, call_on_blocking),
    READ("legacy-records", legacy_records, call_on_blocking),
    READ("legacy-waits-follower", legacy_waits_follower, call_on_blocking),
    READ("legacy-records-follower", legacy_records_follower, call_on_blocking),
    READ("waits-for-legacy", waits_for_legacy, call_on_legacy),
    REUSE("legacy-fills", .make = legacy_fills, .call = call_on_blocking, .model = is_zero),
    REUSE("legacy-copies", .make = legacy_copies, .call = call_on_blocking, .model = is_spare),
    READ("follower-reads", follower_reads, call_on_side),
    REUSE("other-buffer", .make = made_on_side, .call = send_scratch, .expect = expect_spare),
    REUSE("other-device", .make = changed_by_other, .call = no_more, .model = is_spare),
    REUSE("allocated", .call = call_allocated),
    READ("seen-by-host", seen_by_host, call_on_third),
    READ("recorded-again", recorded_again, call_on_side),
    REUSE("broadcast", .make = reduced_elsewhere, .expect = expect_broadcast),
    GATHERED("gathered", gathered, NULL),
    REUSE("gathered-always", .make = gathered, .expect = expect_gathered, .each = true),
    GATHERED("gathered-told", gathered_told, call_on_side),
    GATHERED("gathered-on-side", gathered_on_side, call_on_side),
    GATHERED("gathered-on-side-joined", gathered_on_side_joined, call_on_side),
    REUSE("gathered-on-side-joined-always", .make = gathered_on_side_joined, .call = call_on_side,
          .expect = expect_gathered, .each = true),
    REUSE("gathered-sent", .make = gathered, .call = send_gathered, .expect = expect_gathered_sum),
    REUSE("gathered-into", .between = gathered_into, .model = is_gathered_turned),
    REUSE("small-into", .make = small_into, .model = is_small_gathered, .expect = expect_gathered),
    REUSE("two-comms", .make = two_comms, .call = two_calls, .expect = expect_turned),
    REUSE("gemm-in-group", .make = gemm_in_group, .model = is_reduced),
    READ("meanwhile", meanwhile, NULL),
    READ("held-up", held_up, NULL),
    REUSE("gemms-in-threads", .make = gemms_in_threads),
    REUSE("gemm-reads-recv-always", .between = gemm_reads_recv, .each = true),
    {.name = NULL}};
