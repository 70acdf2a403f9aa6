/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

bool player_trusts(const struct player *p)
{
    return !p->told && !p->aborting;
}

void player_told(struct player *p, const char *call, const char *error)
{
    const bool dead = p->plan->fate == DIES && p->board->gone;
    if (!dead && !p->board->aborted)
        DIE(3, "rank %d: operation %d: %s: %s", p->rank, p->board->at[p->rank], call, error);
    p->told = true;
}

#define NCCL_CALL(p, call)                                                                                             \
    do {                                                                                                               \
        (p)->in_nccl++;                                                                                                \
        const ncclResult_t got = player_trusts(p) ? call : ncclSuccess;                                                \
        if (got != ncclSuccess)                                                                                        \
            player_told(p, #call, ncclGetErrorString(got));                                                            \
        (p)->in_nccl++;                                                                                                \
    } while (0)

static void *at(const struct player *p, struct place place)
{
    return p->buffer[place.buffer] + place.off;
}

static void call(struct player *p, const struct op *op)
{
    const struct call *c = &p->plan->calls[op->call];
    const int n = p->plan->team[c->comm].size, me = p->plan->team[c->comm].rank[p->rank];
    ncclComm_t comm = p->comm[c->comm];
    cudaStream_t stream = p->stream[op->stream];
    void *from = at(p, op->from), *to = at(p, op->to);
    switch (op->kind) {
    case OP_GATHER:
        NCCL_CALL(p, ncclAllGather(from, to, c->count, c->type, comm, stream));
        return;
    case OP_BROADCAST:
        NCCL_CALL(p, ncclBroadcast(from, to, c->count, c->type, c->root, comm, stream));
        return;
    case OP_REDUCE:
        NCCL_CALL(p, ncclAllReduce(from, to, c->count, c->type, c->redop, comm, stream));
        return;
    case OP_SCATTER:
        NCCL_CALL(p, ncclReduceScatter(from, to, c->count, c->type, c->redop, comm, stream));
        return;
    default:
        NCCL_CALL(p, ncclGroupStart());
        NCCL_CALL(p, ncclSend(from, c->count, c->type, (me + c->shift) % n, comm, stream));
        NCCL_CALL(p, ncclRecv(to, c->count, c->type, (me + n - c->shift) % n, comm, stream));
        NCCL_CALL(p, ncclGroupEnd());
    }
}

/* slipring lets a GEMM fail that hangs on a broken gather; only when ncclCommGetAsyncError has the error already, or
 * had it when this rank aborted. */
static void told_by_gemm(struct player *p, cublasStatus_t got)
{
    CHECK(got == CUBLAS_STATUS_EXECUTION_FAILED, "rank %d: a GEMM returns %d", p->rank, (int)got);
    CHECK(player_sees_error(p), "rank %d: a GEMM returns an error, and no communicator has one", p->rank);
    player_told(p, "GEMM", "CUBLAS_STATUS_EXECUTION_FAILED");
}

static void multiply(struct player *p, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    const void *x = at(p, op->from), *w = p->buffer[WEIGHT];
    const int64_t ldx = g->sums ? g->x_is_b ? g->n : g->m : g->inner;
    cublasHandle_t blas = player_handle(p, op);
    p->in_gemm++;
    const cublasStatus_t got =
        g->narrow
            ? narrow_status(p, op)
            : gemm_status(g->c_bf16 ? API_EX_BF16_C : p->plan->type, blas, g->x_is_b || !g->sums, g->x_is_b && g->sums,
                          g->m, g->n, g->inner, g->x_is_b ? w : x, g->x_is_b ? g->inner : ldx, g->x_is_b ? x : w,
                          g->x_is_b ? ldx : g->inner, 0, at(p, op->to), g->m);
    if (got != CUBLAS_STATUS_SUCCESS)
        told_by_gemm(p, got);
    p->in_gemm++;
}

void player_compare(struct player *p, struct looked *l)
{
    const struct op *op = l->op;
    size_t first = 0, n = 0;
    l->compared = true;
    for (size_t i = 0; i < op->bytes; i++)
        if (l->got[i] != op->expected[i] && !(op->any && op->any[i]) && n++ == 0)
            first = i;
    char text[384];
    op_text(p->plan, op, text, sizeof text);
    EXPECT(n == 0, "rank %d: step %d: %s: %zu bytes differ, the first at %zu: %#x, not %#x", p->rank, op->step, text, n,
           first, l->got[first], op->expected[first]);
}

static void look(struct player *p, const struct op *op)
{
    struct looked *l = &p->looked[p->nlooked];
    l->op = op;
    CUDA(player_way(op)->copy(l->got, at(p, op->from), op->bytes, cudaMemcpyDeviceToHost, player_stream(p, op)));
    CUDA(player_way(op)->record(l->event, player_stream(p, op)));
    p->nlooked++;
}

/* The host has waited for the stream (-1: all streams). */
static void waited(struct player *p, int stream)
{
    const bool good = player_trusts(p);
    for (int i = 0; good && i < p->nlooked; i++) {
        struct looked *l = &p->looked[i];
        if (!l->compared && (stream < 0 || l->op->stream == stream))
            player_compare(p, l);
    }
}

static void query(cudaError_t got)
{
    CHECK(got == cudaSuccess || got == cudaErrorNotReady, "query: %s", cudaGetErrorString(got));
}

static void sleep_us(void *us)
{
    usleep((unsigned)(uintptr_t)us);
}

static _Atomic(struct board *) the_board; /* for streams; ranks that are threads set it at once */

/* The parent wakes who is stopped but not frozen. A death is known before anybody can notice it. */
static void go_now(void *one)
{
    const struct op *op = one;
    struct board *board = the_board;
    board->rests_ms = op->value;
    board->frozen = op->kind == OP_FREEZE;
    if (op->kind == OP_KILL)
        board->gone = 1;
    raise(op->kind == OP_KILL ? SIGKILL : SIGSTOP);
}

static void go(struct player *p, struct op *op)
{
    if (op->stream < 0)
        go_now(op);
    else
        CUDA(cudaLaunchHostFunc(p->stream[op->stream], go_now, op));
}

/* What the program has allocated, and peers may have mapped, the second library does not free (base/real.h). */
static void renew(struct player *p, const struct way *way, int buffer)
{
    const struct way *by = way == player_second() ? p->of[buffer] : way;
    CUDA(by->release(p->buffer[buffer]));
    p->of[buffer] = way;
    CUDA(way->allocate((void **)&p->buffer[buffer], p->plan->size[buffer]));
}

static void play_data(struct player *p, const struct op *op)
{
    const struct way *way = player_way(op);
    cudaStream_t stream = player_stream(p, op);
    switch (op->kind) {
    case OP_COPY:
        CUDA(way->copy(at(p, op->to), at(p, op->from), op->bytes, cudaMemcpyDeviceToDevice, stream));
        return;
    case OP_SET:
        CUDA(way->set(at(p, op->to), op->value, op->bytes, stream));
        return;
    case OP_FILL:
        CUDA(way->copy(at(p, op->to), p->source[op->value] + op->from.off, op->bytes, cudaMemcpyHostToDevice, stream));
        return;
    case OP_GEMM:
        multiply(p, op);
        return;
    case OP_LOOK:
        look(p, op);
        return;
    default:
        renew(p, way, op->to.buffer);
    }
}

static void play_order(struct player *p, const struct op *op)
{
    const struct way *way = player_way(op);
    cudaStream_t stream = player_stream(p, op);
    switch (op->kind) {
    case OP_RECORD:
        CUDA(way->record(p->event[op->event], stream));
        return;
    case OP_WAIT:
        CUDA(way->wait(stream, p->event[op->event], 0));
        return;
    case OP_QUERY:
        query(way->query_event(p->event[op->event]));
        query(way->query(stream));
        return;
    case OP_SYNC_EVENT:
        CUDA(way->sync_event(p->event[op->event]));
        return;
    case OP_SYNC_STREAM:
        CUDA(way->sync(stream));
        waited(p, op->stream);
        return;
    case OP_SYNC_DEVICE:
        CUDA(way->sync_device());
        waited(p, -1);
        return;
    case OP_HOLD:
        CUDA(way->call(stream, sleep_us, (void *)(uintptr_t)op->value));
        return;
    default:
        sleep_ms((unsigned)op->value);
    }
}

static void play_op(struct player *p, struct op *op)
{
    switch (op->kind) {
    case OP_GATHER:
    case OP_BROADCAST:
    case OP_REDUCE:
    case OP_SCATTER:
    case OP_SENDRECV:
        call(p, op);
        return;
    case OP_GROUP_START:
        NCCL_CALL(p, ncclGroupStart());
        return;
    case OP_GROUP_END:
        NCCL_CALL(p, ncclGroupEnd());
        return;
    case OP_COPY:
    case OP_SET:
    case OP_FILL:
    case OP_GEMM:
    case OP_LOOK:
    case OP_RENEW:
        play_data(p, op);
        return;
    case OP_CAPTURE:
        player_capture(p, op);
        return;
    case OP_CAPTURE_END:
        player_capture_end(p, op);
        return;
    case OP_STOP:
    case OP_FREEZE:
    case OP_KILL:
        go(p, op);
        return;
    default:
        play_order(p, op);
    }
}

/* A rank's operations are played in the order of the plan, whichever of its threads they are of. */
static void turn_begin(struct player *p, int turn)
{
    pthread_mutex_lock(&p->turn_lock);
    while (p->turn != turn)
        pthread_cond_wait(&p->turn_comes, &p->turn_lock);
    pthread_mutex_unlock(&p->turn_lock);
}

static void turn_end(struct player *p)
{
    pthread_mutex_lock(&p->turn_lock);
    p->turn++;
    pthread_cond_broadcast(&p->turn_comes);
    pthread_mutex_unlock(&p->turn_lock);
}

static void play_thread(struct player *p, int thread)
{
    for (int i = 0, n = 0; i < p->plan->nops && player_trusts(p); i++) {
        struct op *op = &p->plan->ops[i];
        if (op->rank != p->rank)
            continue;
        const int turn = n++;
        if (op->thread != thread)
            continue;
        turn_begin(p, turn);
        p->board->at[p->rank] = i;
        play_op(p, op);
        turn_end(p);
    }
}

static void *play_second(void *one)
{
    struct player *p = one;
    CUDA(cudaSetDevice(rank_device(p->rank)));
    play_thread(p, 1);
    return NULL;
}

/* With two threads nobody is told of anything (draw_fate), so that neither leaves the other one waiting. */
void player_play(struct player *p)
{
    pthread_t second;
    CHECK(!p->plan->two_threads || pthread_create(&second, NULL, play_second, p) == 0, "no thread");
    play_thread(p, 0);
    if (p->plan->two_threads)
        pthread_join(second, NULL);
}

static void open_comms(struct player *p)
{
    const struct team *team = &p->plan->team[1];
    NCCL(ncclCommInitRank(&p->comm[0], p->plan->nranks, p->board->id, p->rank));
    if (p->plan->ncomms > 1)
        NCCL(ncclCommSplit(p->comm[0], team->colour[p->rank], team->rank[p->rank], &p->comm[1], NULL));
}

/* Ranks throw captures away that others do not make. NCCL makes the connections of a pair in the first send between
 * the two, whatever is set, so that one of them would wait for ever: they are made here. */
static void connect_pairs(struct player *p, int comm)
{
    const struct team *team = &p->plan->team[comm];
    const int n = team->size, me = team->rank[p->rank];
    cudaStream_t stream = p->stream[p->plan->nstreams - 1];
    for (int shift = 1; shift < n; shift++) {
        NCCL(ncclGroupStart());
        NCCL(ncclSend(p->words, 1, ncclInt32, (me + shift) % n, p->comm[comm], stream));
        NCCL(ncclRecv(p->words + 4, 1, ncclInt32, (me + n - shift) % n, p->comm[comm], stream));
        NCCL(ncclGroupEnd());
    }
    CUDA(cudaStreamSynchronize(stream));
}

static bool throws_pairs(const struct plan *plan)
{
    for (int i = 0; i < plan->nops; i++)
        if (plan->ops[i].thrown && plan->ops[i].kind == OP_SENDRECV)
            return true;
    return false;
}

static void open_looks(struct player *p)
{
    size_t bytes = 0;
    int looks = 0, graphs = 0;
    for (int i = 0; i < p->plan->nops; i++) {
        const struct op *op = &p->plan->ops[i];
        looks += op->rank == p->rank && op->kind == OP_LOOK;
        graphs += op->rank == p->rank && op->kind == OP_CAPTURE_END;
        bytes += op->rank == p->rank && op->kind == OP_LOOK ? op->bytes : 0;
    }
    p->looked = calloc((size_t)looks, sizeof *p->looked);
    p->launched = calloc((size_t)graphs + 1, sizeof(cudaGraphExec_t));
    CHECK(p->looked && p->launched, "no memory");
    CUDA(cudaMallocHost((void **)&p->pinned, bytes));
    CUDA(cudaMalloc((void **)&p->words, (size_t)(graphs + 2) * 4));
    CUDA(cudaMemset(p->words, 0, (size_t)(graphs + 2) * 4));
    CUDA(cudaDeviceSynchronize());
    uint8_t *next = p->pinned;
    for (int i = 0, n = 0; i < p->plan->nops; i++) {
        const struct op *op = &p->plan->ops[i];
        if (op->rank != p->rank || op->kind != OP_LOOK)
            continue;
        p->looked[n].got = next;
        CUDA(cudaEventCreateWithFlags(&p->looked[n++].event, cudaEventDisableTiming));
        next += op->bytes;
    }
}

void player_open(struct player *p)
{
    p->capturing = -1;
    pthread_mutex_init(&p->launched_lock, NULL);
    pthread_mutex_init(&p->comm_lock, NULL);
    pthread_mutex_init(&p->turn_lock, NULL);
    pthread_cond_init(&p->turn_comes, NULL);
    the_board = p->board;
    open_comms(p);
    const int own = p->plan->two_threads ? 2 : 0;
    for (int s = 0; s < p->plan->nstreams; s++)
        if (s < own)
            p->stream[s] = cudaStreamPerThread; /* of the thread s */
        else
            CUDA(cudaStreamCreateWithFlags(&p->stream[s], cudaStreamNonBlocking));
    for (int e = 0; e < EVENTS; e++)
        CUDA(cudaEventCreateWithFlags(&p->event[e], e ? cudaEventDisableTiming : cudaEventDefault));
    for (int b = 0; b < BUFFERS; b++) {
        CUDA(cudaMalloc((void **)&p->buffer[b], p->plan->size[b]));
        p->of[b] = &way_runtime;
    }
    for (int i = 0; i < SOURCES; i++) {
        CUDA(cudaMallocHost((void **)&p->source[i], source_bytes(p->plan)));
        source_make(p->plan, p->rank, (enum source)i, p->source[i]);
    }
    open_looks(p);
    for (int c = 0; c < p->plan->ncomms && throws_pairs(p->plan); c++)
        connect_pairs(p, c);
    BLAS(cublasCreate(&p->blas));
    BLAS(cublasCreate(&p->worker));
    BLAS(cublasLtCreate(&p->lt));
}

void player_close(struct player *p)
{
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < p->nlooked; i++) {
        if ((p->looked[i].good || player_trusts(p)) && !p->looked[i].compared)
            player_compare(p, &p->looked[i]);
        CUDA(cudaEventDestroy(p->looked[i].event));
    }
    player_drop_graphs(p);
    player_leave(p);
    for (int b = 0; b < BUFFERS; b++)
        CUDA(cudaFree(p->buffer[b]));
    for (int e = 0; e < EVENTS; e++)
        CUDA(cudaEventDestroy(p->event[e]));
    for (int s = p->plan->two_threads ? 2 : 0; s < p->plan->nstreams; s++)
        CUDA(cudaStreamDestroy(p->stream[s]));
    for (int i = 0; i < SOURCES; i++)
        CUDA(cudaFreeHost(p->source[i]));
    CUDA(cudaFreeHost(p->pinned));
    CUDA(cudaFree(p->words));
    BLAS(cublasDestroy(p->blas));
    BLAS(cublasDestroy(p->worker));
    BLAS(cublasLtDestroy(p->lt));
    free(p->looked);
    free(p->launched);
    pthread_mutex_destroy(&p->launched_lock);
    pthread_mutex_destroy(&p->comm_lock);
    pthread_mutex_destroy(&p->turn_lock);
    pthread_cond_destroy(&p->turn_comes);
}
