/* SPDX-License-Identifier: Apache-2.0 */
/* What comes between the GEMM and the call. */
#include "scatter_wrong.h"

/* ---- what C holds ---- */

void is_zero(struct turn *u, int r)
{
    memset(u->c[r] + LOW(u->t), 0, (HIGH(u->t) - LOW(u->t)) * sizeof(int));
}

void is_spare(struct turn *u, int r)
{
    memcpy(u->c[r] + LOW(u->t), u->spare[r] + LOW(u->t), (HIGH(u->t) - LOW(u->t)) * sizeof(int));
}

void is_all_spare(struct turn *u, int r)
{
    memcpy(u->c[r], u->spare[r], u->t->all * sizeof(int));
}

/* ---- between ---- */

static void change(struct turn *u, cudaStream_t stream)
{
    struct site *t = u->t;
    CUDA(cudaMemcpyAsync(CHANGED(t), FROM_SPARE(t), CHANGED_BYTES(t), cudaMemcpyDeviceToDevice, stream));
}

void memset_c(struct turn *u)
{
    CUDA(cudaMemsetAsync(CHANGED(u->t), 0, CHANGED_BYTES(u->t), u->t->w->s));
}

void copy_c(struct turn *u)
{
    change(u, u->t->w->s);
}

void tied(struct turn *u)
{
    struct world *w = u->t->w;
    edge(w, 0, w->s, w->third);
    change(u, w->third);
    edge(w, 1, w->third, w->s);
}

static void tied_late(struct turn *u)
{
    hold(u->t->w->s, 3);
    tied(u);
    hold(u->t->w->s, 3);
}

static void on_third(struct turn *u)
{
    change(u, u->t->w->third);
    CUDA(cudaStreamSynchronize(u->t->w->third));
}

void host_sync(struct turn *u)
{
    CUDA(cudaStreamSynchronize(u->t->w->s));
    on_third(u);
}

static void host_sync_tied(struct turn *u)
{
    struct world *w = u->t->w;
    CUDA(cudaStreamSynchronize(w->s));
    change(u, w->third);
    edge(w, 1, w->third, w->s);
}

static void event_sync(struct turn *u)
{
    await_event(u);
    on_third(u);
}

static void event_query(struct turn *u)
{
    poll_event(u);
    on_third(u);
}

static void stream_query(struct turn *u)
{
    poll_stream(u);
    on_third(u);
}

static void device_sync(struct turn *u)
{
    CUDA(cudaDeviceSynchronize());
    on_third(u);
}

static void host_copy(struct turn *u)
{
    struct site *t = u->t;
    uint8_t *host = malloc(CHANGED_BYTES(t));
    CUDA(cudaStreamSynchronize(t->w->s));
    CUDA(cudaMemcpy(host, FROM_SPARE(t), CHANGED_BYTES(t), cudaMemcpyDeviceToHost));
    to_device(CHANGED(t), host, CHANGED_BYTES(t));
    free(host);
}

static void *in_thread(void *one)
{
    struct turn *u = one;
    CUDA(cudaSetDevice(rank_device(u->t->w->rank)));
    host_sync(u);
    return NULL;
}

static void by_thread(struct turn *u)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, u) == 0, "no thread");
    pthread_join(thread, NULL);
}

void gemm_add(struct turn *u)
{
    site_gemm_part(u->t, 0, 0, u->t->n, 1, u->t->w->s);
}

void is_added(struct turn *u, int r)
{
    for (size_t i = 0; i < u->t->all; i++)
        u->c[r][i] += u->product[r][i];
}

/* All columns but the first, one further to the right. */
static void gemm_moved(struct turn *u)
{
    site_gemm_part(u->t, 0, 1, u->t->n - 1, 0, u->t->w->s);
}

static void is_moved(struct turn *u, int r)
{
    const size_t m = (size_t)u->t->shape.m;
    memcpy(u->c[r] + m, u->product[r], (u->t->all - m) * sizeof(int));
}

void gemm_again(struct turn *u)
{
    site_gemm(u->t, u->t->w->s);
}

static void is_again(struct turn *u, int r)
{
    for (size_t i = 0; i < u->t->all; i++)
        u->c[r][i] = u->product[r][i] + u->t->shape.beta * u->c[r][i];
}

static void gemm_elsewhere(struct turn *u)
{
    struct site elsewhere = *u->t;
    elsewhere.c = elsewhere.spare;
    site_gemm(&elsewhere, u->t->w->s);
}

void all_reduce(struct turn *u)
{
    struct site *t = u->t;
    NCCL(ncclAllReduce(t->c, t->c, t->all, nccl_type(t->shape.type), ncclSum, t->w->comm, t->w->s));
}

void is_reduced(struct turn *u, int r)
{
    if (r) /* all at once */
        return;
    const struct site *t = u->t;
    for (size_t i = 0; i < t->all; i++) {
        int sum = 0;
        for (int q = 0; q < t->w->nranks; q++)
            sum += u->c[q][i];
        for (int q = 0; q < t->w->nranks; q++)
            u->c[q][i] = sum;
    }
}

void all_gather(struct turn *u)
{
    struct site *t = u->t;
    const size_t shard = t->count * t->elem;
    NCCL(ncclAllGather(t->c + shard * (size_t)t->w->rank, t->c, t->count, nccl_type(t->shape.type), t->w->comm,
                       t->w->s));
}

void is_gathered(struct turn *u, int r)
{
    const struct site *t = u->t;
    if (r) /* all at once */
        return;
    for (int q = 0; q < t->w->nranks; q++)
        for (int to = 0; to < t->w->nranks; to++)
            if (q != to)
                memcpy(u->c[to] + (size_t)q * t->count, u->c[q] + (size_t)q * t->count, t->count * sizeof(int));
}

static void gather_elsewhere(struct turn *u)
{
    struct site *t = u->t;
    NCCL(ncclAllGather(t->spare, t->scratch, t->count, nccl_type(t->shape.type), t->w->comm, t->w->s));
}

static void expect_gathered(struct turn *u)
{
    struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    for (int r = 0; r < t->w->nranks; r++)
        for (size_t i = 0; i < t->count; i++)
            elem_put(t->shape.type, u->want_scratch, (size_t)r * t->count + i, u->spare[r][i]);
}

static void broadcast(struct turn *u)
{
    struct site *t = u->t;
    NCCL(ncclBroadcast(t->c, t->c, t->all, nccl_type(t->shape.type), 0, t->w->comm, t->w->s));
}

static void is_of_root(struct turn *u, int r)
{
    if (r)
        memcpy(u->c[r], u->c[0], u->t->all * sizeof(int));
}

/* Another reduce-scatter, into this C. */
static void scatter_into(struct turn *u)
{
    struct site *t = u->t;
    NCCL(ncclReduceScatter(t->spare, t->c + t->elem, t->count, nccl_type(t->shape.type), ncclSum, t->w->comm, t->w->s));
}

static void is_scattered(struct turn *u, int r)
{
    const struct site *t = u->t;
    for (size_t i = 0; i < t->count; i++) {
        u->c[r][i + 1] = 0;
        for (int q = 0; q < t->w->nranks; q++)
            u->c[r][i + 1] += u->spare[q][(size_t)r * t->count + i];
    }
}

void graph_of(struct turn *u, void (*record)(struct turn *u))
{
    struct world *w = u->t->w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(w->s, cudaStreamCaptureModeThreadLocal));
    record(u);
    CUDA(cudaStreamEndCapture(w->s, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, w->s));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamSynchronize(w->s)); /* the others come to the call without this */
    CUDA(cudaGraphExecDestroy(exec));
}

static void graph_between(struct turn *u)
{
    graph_of(u, copy_c);
}

static void nothing(struct turn *u)
{
    CUDA(cudaMemsetAsync(u->t->scratch, 0x7b, u->t->elem, u->t->w->s));
}

static void graph_elsewhere(struct turn *u)
{
    graph_of(u, nothing);
}

/* Captured on another stream, and thrown away. */
static void captured_between(struct turn *u)
{
    struct world *w = u->t->w;
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(w->third, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemsetAsync(CHANGED(u->t), 0, CHANGED_BYTES(u->t), w->third));
    CUDA(cudaStreamEndCapture(w->third, &graph));
    CUDA(cudaGraphDestroy(graph));
}

static void new_memory(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaFree(t->c));
    CUDA(cudaMalloc((void **)&t->c, t->all * t->elem));
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
}

static void zero_operands(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemsetAsync(t->a, 0, (size_t)(t->shape.m * t->shape.k) * t->elem, t->w->s));
    CUDA(cudaMemsetAsync(t->b, 0, (size_t)(t->n * t->shape.k) * t->elem, t->w->s));
}

/* The receive buffer is still read when the GEMM begins. */
static void read_before(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    edge(w, 0, w->s, w->third);
    hold(w->third, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, t->got * t->elem, cudaMemcpyDeviceToDevice, w->third));
    site_gemm(t, w->s);
    edge(w, 1, w->third, w->s);
}

/* Other data in the receive buffer, which somebody reads until the call; and which is not the poison of scratch. */
static void read_between(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    read_before(u);
}

void expect_recv_read(struct turn *u)
{
    struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    memset(u->want_scratch, 0x7b, t->all * t->elem);
    for (size_t i = 0; i < t->got; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->spare[t->w->rank][i]);
}

static void wait_long(struct turn *u)
{
    hold(u->t->w->s, 10);
}

static void rest(struct turn *u)
{
    (void)u;
    sleep_ms(20);
}

const struct scatter_case between_cases[] = {
    OTHER("memset", .between = memset_c, .model = is_zero),
    OTHER("copy", .between = copy_c, .model = is_spare),
    OTHER("copy-fp32", .between = copy_c, .model = is_spare, .type = FP32),
    OTHER("tied", .between = tied, .model = is_spare),
    OTHER("tied-late", .between = tied_late, .model = is_spare),
    OTHER("host-sync", .between = host_sync, .model = is_spare),
    OTHER("host-sync-tied", .between = host_sync_tied, .model = is_spare),
    OTHER("event-sync", .between = event_sync, .model = is_spare),
    OTHER("event-query", .between = event_query, .model = is_spare),
    OTHER("stream-query", .between = stream_query, .model = is_spare),
    OTHER("device-sync", .between = device_sync, .model = is_spare),
    OTHER("host-copy", .between = host_copy, .model = is_spare),
    OTHER("by-thread", .between = by_thread, .model = is_spare),
    OTHER("gemm-add", .between = gemm_add, .model = is_added),
    OTHER("gemm-moved", .between = gemm_moved, .model = is_moved),
    OTHER("gemm-twice", .between = gemm_again, .model = is_again),
    OTHER("gemm-twice-beta", .between = gemm_again, .model = is_again, .beta = 1),
    OTHER("gemm-elsewhere", .between = gemm_elsewhere),
    OTHER("all-reduce", .between = all_reduce, .model = is_reduced),
    OTHER("all-gather", .between = all_gather, .model = is_gathered),
    OTHER("gather-elsewhere", .between = gather_elsewhere, .expect = expect_gathered),
    OTHER("broadcast", .between = broadcast, .model = is_of_root),
    OTHER("scatter-into", .between = scatter_into, .model = is_scattered),
    OTHER("graph", .between = graph_between, .model = is_spare),
    OTHER("graph-elsewhere", .between = graph_elsewhere),
    OTHER("captured", .between = captured_between),
    OTHER("new-memory", .between = new_memory, .model = is_all_spare),
    OTHER("operands", .between = zero_operands),
    OTHER("held", .between = wait_long),
    OTHER("rest", .between = rest),
    OTHER("recv-read", .make = read_between, .expect = expect_recv_read),
    OTHER("operands-always", .between = zero_operands, .each = true),
    OTHER("recv-read-always", .make = read_between, .expect = expect_recv_read, .each = true),
    OTHER("gemm-elsewhere-always", .between = gemm_elsewhere, .each = true),
    {.name = NULL}};
