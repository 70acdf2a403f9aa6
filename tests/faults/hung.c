/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that goes away while the others hang in a GEMM, or while NCCL has the gather in its turn of the trials.
 *
 *   hung SCENARIO VICTIM [grouped|threads]
 *
 * Each of the others has one thread. The GEMM is its first, so that it loads a kernel (SOFTGPU_LAZY) and waits for the
 * context, which waits for the gather.
 *
 *   gemm-killed    the victim is killed; the others are in the GEMM that consumes their gather
 *   gemm-aborted   it aborts
 *   gemm-stopped   it is stopped until long after SLIPRING_STALL_TIMEOUT
 *   gemm-two       it is killed; the others have gathers of two communicators, and the GEMM consumes one of them
 *   gemm-edge      it is killed; the GEMM waits for nothing, but is slow, for about as long as a GEMM that hangs is left
 *                  alone (SOFTGPU_FAIL): it returns the error, or the stream stays held, never both or neither
 *   gemm-spared    it aborts another communicator, of which the others have no gather; their GEMMs of this one are slow
 *                  (SOFTGPU_FAIL), and keep their results
 *   gemm-after     it is killed; after the GEMM that hangs comes one of the others' own communicator, which is slow, and
 *                  keeps its result
 *   gemm-behind    it is killed; the GEMM waits for what stands before the gather, until another thread aborts: it
 *                  keeps its result
 *   gemm-ends      it destroys the communicator and exits when its gather is complete: no error
 *
 *   turn-killed    the victim is killed before its call; the others have called
 *   turn-aborted   it calls and aborts, while another one does not call
 *   turn-ends      it destroys the communicator and exits when its call is complete, while the others' word is late
 *                  (SOFTGPU_FAIL): no error
 *
 * `grouped`: NCCL's turn is in a group. `threads`: the ranks are threads of one process. Without GEMMs an error must be
 * told within 2 s, and the stream stays held until ncclCommAbort. A GEMM that hangs on the gather must return
 * CUBLAS_STATUS_EXECUTION_FAILED within 2 s, with the error set; SLIPRING_GEMM_TIMEOUT is short.
 */
#include "player.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ERROR_MS 2000
#define ABORT_MS 2500
#define HELD_MS 300
#define TURN                                                                                                           \
    11 /* the number of a gather that is NCCL's: SLIPRING_TRIALS_AFTER is 2, and the first two ways are the ring's */

enum { K = 64, COLUMNS = 256, M = 48, SHARD = K * COLUMNS * 4 };
enum { OPENED = 1, COME, ENQUEUED, GONE }; /* board marks */

struct hung {
    struct rank r, other; /* `other`: of a second communicator */
    struct buffers b, more;
    cublasHandle_t blas;
    float *a, *c;
    int victim;
    bool is_victim, grouped;
};

static void mark(const struct hung *h, uint32_t value)
{
    atomic_store(&board()->mark[h->r.rank], value);
}

static void others_enqueued(const struct hung *h)
{
    CHECK(board_wait_all(h->r.nranks, h->victim, ENQUEUED, 10000), "rank %d: the others have not called", h->r.rank);
}

/* The gather with that number is exact. */
static void whole_gather(const struct rank *r, const struct buffers *b, unsigned number)
{
    buffers_fill(b, r, number);
    NCCL(player_gather(r, b, 10000));
    buffers_check(b, r, number);
}

static ncclResult_t enqueue(const struct rank *r, const struct buffers *b)
{
    return ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream);
}

static cublasStatus_t gemm(struct hung *h)
{
    const float one = 1, zero = 0;
    return cublasSgemm(h->blas, CUBLAS_OP_N, CUBLAS_OP_N, M, COLUMNS * h->r.nranks, K, &one, h->a, M,
                       (const float *)h->b.recv, K, &zero, h->c, M);
}

static bool in_error(const struct rank *r)
{
    ncclResult_t error = ncclSuccess;
    NCCL(ncclCommGetAsyncError(r->comm, &error));
    return error != ncclSuccess;
}

static void until_error(const struct rank *r)
{
    for (int64_t end = player_ms() + 10000; !in_error(r); board_sleep_ms(1))
        CHECK(player_ms() < end, "rank %d: no error", r->rank);
}

static void end_in_error(const struct rank *r, const struct buffers *b)
{
    CHECK(enqueue(r, b) != ncclSuccess, "rank %d: a communicator in error takes another gather", r->rank);
    const int64_t begin = player_ms();
    NCCL(ncclCommAbort(r->comm));
    CHECK(player_ms() - begin < ABORT_MS, "rank %d: the abort took %d ms", r->rank, (int)(player_ms() - begin));
    player_drain(r, ERROR_MS);
    CUDA(cudaStreamSynchronize(r->stream));
}

/* A stream that completes has the data. */
static void stays_held(struct hung *h, unsigned number)
{
    const int64_t end = player_ms() + HELD_MS;
    cudaError_t busy;
    while ((busy = cudaStreamQuery(h->r.stream)) == cudaErrorNotReady && player_ms() < end)
        board_sleep_ms(1);
    if (busy != cudaErrorNotReady)
        buffers_check(&h->b, &h->r, number);
}

/* --- in a GEMM --- */

static void call_and_hang(struct hung *h, int within)
{
    NCCL(enqueue(&h->r, &h->b));
    mark(h, ENQUEUED);
    const int64_t begin = player_ms();
    const cublasStatus_t s = gemm(h);
    const int ms = (int)(player_ms() - begin);
    CHECK(s == CUBLAS_STATUS_EXECUTION_FAILED, "rank %d: the GEMM returns %d after %d ms", h->r.rank, (int)s, ms);
    CHECK(ms < within, "rank %d: the GEMM returns after %d ms", h->r.rank, ms);
    CHECK(in_error(&h->r), "rank %d: ncclCommGetAsyncError knows nothing", h->r.rank);
    player_drain(&h->r, ERROR_MS); /* a GEMM that has told has let go */
}

static void gemm_killed(struct hung *h)
{
    if (h->is_victim) {
        others_enqueued(h);
        board_sleep_ms(50);
        kill(getpid(), SIGKILL);
    }
    call_and_hang(h, ERROR_MS);
    end_in_error(&h->r, &h->b);
}

static void gemm_aborted(struct hung *h)
{
    if (h->is_victim) {
        NCCL(enqueue(&h->r, &h->b));
        CHECK(board_wait(&board()->mark[(h->victim + 2) % h->r.nranks], ENQUEUED, 10000), "nobody has called");
        board_sleep_ms(50);
        NCCL(ncclCommAbort(h->r.comm));
        CHECK(board_wait_all(h->r.nranks, h->victim, GONE, 10000), "the others do not end");
        return;
    }
    /* One does not call, so the victim's gather does not end. */
    if (h->r.rank == (h->victim + 1) % h->r.nranks) {
        CHECK(player_wait(&h->r, 1) == ncclSuccess || in_error(&h->r), "rank %d: not idle", h->r.rank);
        until_error(&h->r);
        end_in_error(&h->r, &h->b);
        mark(h, GONE);
        return;
    }
    call_and_hang(h, ERROR_MS);
    end_in_error(&h->r, &h->b);
    mark(h, GONE);
}

static void gemm_stopped(struct hung *h)
{
    if (h->is_victim) {
        others_enqueued(h);
        raise(SIGSTOP);
        end_in_error(&h->r, &h->b);
        return;
    }
    call_and_hang(h, ERROR_MS + 500); /* SLIPRING_STALL_TIMEOUT */
    end_in_error(&h->r, &h->b);
}

/* `other`: a communicator of the ranks with a colour, with one gather done. */
static void open_other(struct hung *h, int colour)
{
    h->other = h->r;
    CUDA(cudaStreamCreateWithFlags(&h->other.stream, cudaStreamNonBlocking));
    NCCL(ncclCommSplit(h->r.comm, colour, h->r.rank, &h->other.comm, NULL));
    if (colour < 0)
        return;
    int rank = 0;
    NCCL(ncclCommUserRank(h->other.comm, &rank));
    NCCL(ncclCommCount(h->other.comm, &h->other.nranks));
    h->other.rank = rank;
    buffers_make(&h->more, &h->other, SHARD);
    whole_gather(&h->other, &h->more, 0);
    buffers_fill(&h->more, &h->other, 1);
}

static void gemm_two(struct hung *h)
{
    open_other(h, 0);
    mark(h, OPENED + 10);
    CHECK(board_wait_all(h->r.nranks, -1, OPENED + 10, 10000), "rank %d: the others have not come", h->r.rank);
    if (h->is_victim) {
        CHECK(board_wait_all(h->r.nranks, h->victim, OPENED + 11, 10000), "the others have not called");
        kill(getpid(), SIGKILL);
    }
    NCCL(enqueue(&h->other, &h->more));
    NCCL(enqueue(&h->r, &h->b));
    mark(h, OPENED + 11);
    const cublasStatus_t s = gemm(h);
    CHECK(s == CUBLAS_STATUS_EXECUTION_FAILED, "rank %d: the GEMM returns %d", h->r.rank, (int)s);
    CHECK(in_error(&h->r) && in_error(&h->other), "rank %d: ncclCommGetAsyncError knows nothing", h->r.rank);
    player_drain(&h->other, ERROR_MS);
    end_in_error(&h->other, &h->more);
    end_in_error(&h->r, &h->b);
}

static void gemm_spared(struct hung *h)
{
    open_other(h, 0);
    mark(h, OPENED + 10);
    CHECK(board_wait_all(h->r.nranks, -1, OPENED + 10, 10000), "rank %d: the others have not come", h->r.rank);
    if (h->is_victim) {
        NCCL(enqueue(&h->other, &h->more));
        NCCL(ncclCommAbort(h->other.comm));
        player_drain(&h->other, ERROR_MS);
    } else
        until_error(&h->other);
    NCCL(enqueue(&h->r, &h->b));
    BLAS(gemm(h));
    NCCL(player_wait(&h->r, 10000));
    buffers_check(&h->b, &h->r, 1);
    if (!h->is_victim)
        NCCL(ncclCommAbort(h->other.comm));
    rank_close(&h->r);
}

static void gemm_after(struct hung *h)
{
    open_other(h, h->is_victim ? NCCL_SPLIT_NOCOLOR : 0);
    mark(h, OPENED + 10);
    CHECK(board_wait_all(h->r.nranks, -1, OPENED + 10, 10000), "rank %d: the others have not come", h->r.rank);
    if (h->is_victim) {
        CHECK(board_wait_all(h->r.nranks, h->victim, OPENED + 11, 10000), "the others have not called");
        kill(getpid(), SIGKILL);
    }
    NCCL(enqueue(&h->r, &h->b));
    mark(h, OPENED + 11);
    const cublasStatus_t s = gemm(h);
    CHECK(s == CUBLAS_STATUS_EXECUTION_FAILED, "rank %d: the GEMM returns %d", h->r.rank, (int)s);
    NCCL(enqueue(&h->other, &h->more));
    BLAS(gemm(h));
    NCCL(player_wait(&h->other, 10000));
    buffers_check(&h->more, &h->other, 1);
    end_in_error(&h->r, &h->b);
    NCCL(ncclCommDestroy(h->other.comm));
}

static _Atomic bool go_on;

static void rest(void *none)
{
    (void)none;
    while (!atomic_load(&go_on))
        board_sleep_ms(1);
}

static void *abort_later(void *one)
{
    const struct hung *h = one;
    CUDA(cudaSetDevice(h->r.rank));
    until_error(&h->r);
    board_sleep_ms(2 * HELD_MS);
    NCCL(ncclCommAbort(h->r.comm));
    atomic_store(&go_on, true);
    return NULL;
}

static void gemm_behind(struct hung *h)
{
    pthread_t thread;
    if (h->is_victim) {
        others_enqueued(h);
        kill(getpid(), SIGKILL);
    }
    CUDA(cudaLaunchHostFunc(h->r.stream, rest, NULL));
    NCCL(enqueue(&h->r, &h->b));
    mark(h, ENQUEUED);
    CHECK(pthread_create(&thread, NULL, abort_later, h) == 0, "no thread");
    BLAS(gemm(h));
    pthread_join(thread, NULL);
    player_drain(&h->r, ERROR_MS);
}

/* The call that returns the error is the first one that does; else nothing has been told, and nothing released. */
static void gemm_edge(struct hung *h)
{
    if (h->is_victim)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < 5000 && kill(board()->pid[h->victim], 0) == 0; i++)
        board_sleep_ms(1);
    const ncclResult_t e = enqueue(&h->r, &h->b);
    const cublasStatus_t s = e == ncclSuccess ? gemm(h) : CUBLAS_STATUS_EXECUTION_FAILED;
    fprintf(stderr, "rank %d: gather %d, GEMM %d\n", h->r.rank, (int)e, (int)s);
    CHECK(s == CUBLAS_STATUS_SUCCESS || s == CUBLAS_STATUS_EXECUTION_FAILED, "rank %d: status %d", h->r.rank, (int)s);
    if (s == CUBLAS_STATUS_SUCCESS)
        stays_held(h, 1);
    else if (e == ncclSuccess)
        player_drain(&h->r, ERROR_MS);
    CHECK(in_error(&h->r), "rank %d: no error", h->r.rank);
    end_in_error(&h->r, &h->b);
}

static void gemm_ends(struct hung *h)
{
    NCCL(enqueue(&h->r, &h->b));
    if (h->is_victim) {
        NCCL(player_wait(&h->r, 10000));
        buffers_check(&h->b, &h->r, 1);
        rank_close(&h->r);
        return;
    }
    BLAS(gemm(h));
    NCCL(player_wait(&h->r, 10000));
    buffers_check(&h->b, &h->r, 1);
    board_sleep_ms(HELD_MS);
    BLAS(gemm(h));
    CHECK(!in_error(&h->r), "rank %d: an error", h->r.rank);
    rank_close(&h->r);
}

/* --- NCCL's turn --- */

static ncclResult_t turn(const struct hung *h)
{
    if (h->grouped)
        NCCL(ncclGroupStart());
    const ncclResult_t e = enqueue(&h->r, &h->b);
    if (h->grouped) { /* nothing, but the group is more than its call */
        NCCL(ncclBroadcast(h->b.send, h->b.recv, 0, ncclInt8, 0, h->r.comm, h->r.stream));
        NCCL(ncclGroupEnd());
    }
    return e;
}

static void before_turn(struct hung *h)
{
    for (unsigned number = 1; number < TURN; number++)
        whole_gather(&h->r, &h->b, number);
    buffers_fill(&h->b, &h->r, TURN);
    mark(h, COME);
}

static void must_be_told(struct hung *h)
{
    const int64_t begin = player_ms();
    const ncclResult_t e = player_wait(&h->r, ERROR_MS);
    CHECK(e != ncclSuccess, "rank %d: no error", h->r.rank);
    fprintf(stderr, "rank %d: told after %d ms\n", h->r.rank, (int)(player_ms() - begin));
    CHECK(cudaStreamQuery(h->r.stream) == cudaErrorNotReady, "rank %d: it was not NCCL's", h->r.rank);
    end_in_error(&h->r, &h->b);
}

static void turn_killed(struct hung *h)
{
    before_turn(h);
    if (h->is_victim) {
        others_enqueued(h);
        kill(getpid(), SIGKILL);
    }
    NCCL(turn(h));
    mark(h, ENQUEUED);
    must_be_told(h);
}

static void turn_aborted(struct hung *h)
{
    before_turn(h);
    if (h->r.rank == (h->victim + 1) % h->r.nranks) {
        until_error(&h->r);
        end_in_error(&h->r, &h->b);
        return;
    }
    NCCL(turn(h));
    mark(h, ENQUEUED);
    if (!h->is_victim) {
        must_be_told(h);
        return;
    }
    CHECK(board_wait_all(h->r.nranks, -1, COME, 10000), "the others have not come");
    CHECK(board_wait(&board()->mark[(h->victim + 2) % h->r.nranks], ENQUEUED, 10000), "nobody has called");
    NCCL(ncclCommAbort(h->r.comm));
    player_drain(&h->r, ERROR_MS);
}

static void turn_ends(struct hung *h)
{
    before_turn(h);
    NCCL(turn(h));
    NCCL(player_wait(&h->r, 10000));
    buffers_check(&h->b, &h->r, TURN);
    if (!h->is_victim) {
        board_sleep_ms(3 * HELD_MS);
        CHECK(!in_error(&h->r), "rank %d: an error", h->r.rank);
    }
    rank_close(&h->r);
}

static const struct {
    const char *name;
    void (*play)(struct hung *h);
} scenarios[] = {{"gemm-killed", gemm_killed}, {"gemm-aborted", gemm_aborted}, {"gemm-stopped", gemm_stopped},
                 {"gemm-two", gemm_two},       {"gemm-edge", gemm_edge},       {"gemm-ends", gemm_ends},
                 {"gemm-spared", gemm_spared}, {"gemm-after", gemm_after},     {"gemm-behind", gemm_behind},
                 {"turn-killed", turn_killed}, {"turn-aborted", turn_aborted}, {"turn-ends", turn_ends}};

static void play(struct hung *h, const char *name)
{
    CUDA(cudaStreamCreateWithFlags(&h->r.stream, cudaStreamNonBlocking));
    buffers_make(&h->b, &h->r, SHARD);
    CUDA(cudaMalloc((void **)&h->a, M * K * sizeof(float)));
    CUDA(cudaMalloc((void **)&h->c, (size_t)M * COLUMNS * (size_t)h->r.nranks * sizeof(float)));
    CUDA(cudaMemset(h->a, 0, M * K * sizeof(float)));
    BLAS(cublasCreate(&h->blas));
    BLAS(cublasSetStream(h->blas, h->r.stream));
    NCCL(ncclCommInitRank(&h->r.comm, h->r.nranks, h->r.id, h->r.rank));
    whole_gather(&h->r, &h->b, 0);
    buffers_fill(&h->b, &h->r, 1);
    mark(h, OPENED);
    CHECK(board_wait_all(h->r.nranks, -1, OPENED, 10000), "rank %d: the others have not come", h->r.rank);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(name, scenarios[i].name)) {
            scenarios[i].play(h);
            return;
        }
    DIE(2, "no scenario %s", name);
}

static const char *scenario;

static void *play_thread(void *arg)
{
    struct hung *h = arg;
    CUDA(cudaSetDevice(h->r.rank));
    play(h, scenario);
    return NULL;
}

/* The ranks are threads of this process, three of them. */
static void play_threads(const struct hung *h)
{
    enum { THREADS = 3 };
    static struct hung ranks[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        ranks[i] = (struct hung){.r = {.rank = i, .nranks = THREADS, .id = h->r.id}, .victim = h->victim};
        ranks[i].is_victim = i == h->victim;
        CHECK(pthread_create(&thread[i], NULL, play_thread, &ranks[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3, "usage: hung SCENARIO VICTIM [grouped|threads]");
    static struct hung h; /* static: nothing is lost in the ways that end the process */
    scenario = argv[1];
    h.r = player_start();
    h.victim = atoi(argv[2]);
    h.is_victim = h.r.rank == h.victim;
    h.grouped = argc > 3 && !strcmp(argv[3], "grouped");
    if (argc > 3 && !h.grouped)
        play_threads(&h);
    else
        play(&h, scenario);
    return 0;
}
