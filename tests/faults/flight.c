/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers in flight, and a rank that goes away, aborts or stops. Or reduce-scatters, or all-reduces, of what GEMMs make.
 *
 *   flight SCENARIO VICTIM [SHARD_BYTES [scatter|reduce|reduce-in-place]]
 *
 * In all of them the first gather is complete and exact on every rank (of reduce-scatters the first few, of which a
 * program can be learned). Then
 *
 *   kill-before    the victim is killed; the others have a gather in flight that it never began
 *   kill-told      the same, and an event has told another stream of the gather: both end, too
 *   kill-between   the victim is killed before the others call the next gather
 *   kill-driver    the victim is killed by SOFTGPU_FAIL, half-way through its calls or its data; the others have called
 *   kill-asked     over hosts: gathers, one after the other, until SOFTGPU_FAIL kills the victim, on a thread of slipring's
 *   abort          the victim's main thread sits in cudaStreamSynchronize, another thread of it calls ncclCommAbort
 *   abort-blocked  the victim aborts while its stream hangs in something else, which ends only later
 *   destroy        the victim destroys the communicator and goes on living; the others call another gather
 *   stop           the victim stops before its second gather and is continued by launch; everything must be exact
 *   stop-fails     the same with SLIPRING_STALL_TIMEOUT: the others get an error meanwhile, the victim afterwards
 *   leave          the victim destroys and exits once its own gather is done, while the slower others read; all exact
 *   die-early      the victim _exits there, without any goodbye: exact or an error
 *   driver-error   SOFTGPU_FAIL makes a driver call of the victim's second gather fail: an error on every rank
 *
 *   kill-made      reduce-scatters: the victim is killed between its GEMM and its call; the others call behind that
 *   kill-unmade    the victim is killed before its GEMM; the others make theirs, which end, and are exact, and call
 *   leave-made     nobody calls behind the GEMM: all end well, C is exact
 *   abort-made     the victim aborts between its GEMM and its call, the others destroy theirs; C is exact
 *
 *   abort-ahead    reduce-scatters: the victim makes two calls and aborts, while the others, held up before their GEMM,
 * have added nothing of the first one yet: what it sends for the second then lies where they look for the first
 *
 *   abort-full     the victim's main thread waits inside a call, as its stream's queue is full (SOFTGPU_QUEUE), and
 * another one calls ncclCommAbort
 *
 * "The others" must then see an error from ncclCommGetAsyncError within 2 s. Their streams must not complete before the
 * application has been told by a call on the communicator, unless all data is there: a stream that completes says that
 * it is. Then ncclCommAbort (even ranks) must return within 2 s, and ncclCommDestroy (odd ranks), and the streams
 * drain.
 *
 * Over hosts (TEST_HOSTS, a number) only NCCL can tell the ranks of the other ones, which the software GPU's does not: these
 * have no error, but wrong data never, and ncclCommAbort ends what they wait for.
 */
#include "moved.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ERROR_MS 2000 /* what R8 promises here */
#define ABORT_MS 2500 /* ncclCommAbort takes at most 2 s; the rest is for a machine that does other things */
#define HELD_MS 300   /* so long a stream is looked at that must not complete */
#define LEARNED 7     /* reduce-scatters */

enum { OPENED = 1, ENQUEUED, GONE }; /* board marks */

struct flight {
    struct rank r;
    struct moved moved;
    unsigned round; /* of what is in flight */
    int victim, device;
    bool is_victim;
    bool is_far;               /* on another host than the victim */
    _Atomic unsigned enqueued; /* abort-full */
};

static void check(struct flight *f)
{
    moved_check(&f->moved, &f->r, f->round);
}

static void first_gathers(struct flight *f)
{
    for (const unsigned n = f->moved.scatter ? LEARNED : 1; f->round < n; f->round++) {
        moved_fill(&f->moved, &f->r, f->round);
        moved_produce(&f->moved, f->r.stream);
        NCCL(moved_call(&f->moved, &f->r));
        NCCL(player_wait(&f->r, 10000));
        check(f);
    }
    atomic_store(&board()->mark[f->r.rank], OPENED);
    CHECK(board_wait_all(f->r.nranks, -1, OPENED, 10000), "rank %d: the others have not come", f->r.rank);
    moved_fill(&f->moved, &f->r, f->round);
}

static ncclResult_t enqueue(struct flight *f)
{
    moved_produce(&f->moved, f->r.stream);
    ncclResult_t e = moved_call(&f->moved, &f->r);
    atomic_store(&board()->mark[f->r.rank], ENQUEUED);
    return e;
}

static void others_enqueued(const struct flight *f)
{
    CHECK(board_wait_all(f->r.nranks, f->victim, ENQUEUED, 10000), "rank %d: the others have not called", f->r.rank);
}

/* Nothing but ncclCommGetAsyncError has told of the error. A stream that completes all the same has all the data. */
static void stays_held(struct flight *f, cudaStream_t stream)
{
    int64_t end = player_ms() + HELD_MS;
    cudaError_t busy;
    while ((busy = cudaStreamQuery(stream)) == cudaErrorNotReady && player_ms() < end)
        board_sleep_ms(1);
    if (busy != cudaErrorNotReady)
        check(f);
}

static void end_in_error(struct flight *f, bool drains)
{
    int64_t begin = player_ms();
    NCCL(f->r.rank % 2 && drains ? ncclCommDestroy(f->r.comm) : ncclCommAbort(f->r.comm));
    CHECK(player_ms() - begin < ABORT_MS, "rank %d: the end took %d ms", f->r.rank, (int)(player_ms() - begin));
    player_drain(&f->r, ERROR_MS);
    CUDA(cudaStreamSynchronize(f->r.stream));
}

static bool is_far(const struct flight *f)
{
    const int per = board_env("TEST_HOSTS", f->r.nranks);
    return f->r.rank / per != f->victim / per;
}

/* A gather that is over has all the data; one that is not stays so until the end. */
static void may_fail(struct flight *f, ncclResult_t called)
{
    ncclResult_t e = called == ncclSuccess ? player_try(&f->r, HELD_MS) : called;
    fprintf(stderr, "rank %d: on another host: %s\n", f->r.rank, ncclGetErrorString(e));
    if (e == ncclSuccess)
        check(f);
    else if (called == ncclSuccess)
        stays_held(f, f->r.stream);
    const int64_t begin = player_ms();
    NCCL(ncclCommAbort(f->r.comm));
    CHECK(player_ms() - begin < ABORT_MS, "rank %d: the end took %d ms", f->r.rank, (int)(player_ms() - begin));
    player_drain(&f->r, ERROR_MS);
}

/* The error must come, from the call or later; `drains`: ncclCommDestroy does not have to wait for a stopped peer. */
static void must_fail(struct flight *f, ncclResult_t called, bool drains)
{
    if (f->is_far) {
        may_fail(f, called);
        return;
    }
    int64_t begin = player_ms();
    ncclResult_t e = called == ncclSuccess ? player_wait(&f->r, ERROR_MS) : called, again = ncclSuccess;
    CHECK(e != ncclSuccess && e != ncclInProgress, "rank %d: no error, result %d", f->r.rank, (int)e);
    fprintf(stderr, "rank %d: %s after %d ms\n", f->r.rank, ncclGetErrorString(e), (int)(player_ms() - begin));
    NCCL(ncclCommGetAsyncError(f->r.comm, &again));
    CHECK(again != ncclSuccess, "rank %d: the call failed, but ncclCommGetAsyncError knows nothing", f->r.rank);
    if (called == ncclSuccess)
        stays_held(f, f->r.stream);
    if (f->r.rank % 3 == 0) { /* an abort that nothing has told before */
        end_in_error(f, drains);
        return;
    }
    e = moved_call(&f->moved, &f->r);
    CHECK(e != ncclSuccess, "rank %d: a communicator in error takes another gather", f->r.rank);
    end_in_error(f, drains);
}

static void close_well(struct flight *f)
{
    rank_close(&f->r);
}

static void exact(struct flight *f, ncclResult_t called)
{
    NCCL(called);
    NCCL(player_wait(&f->r, 10000));
    check(f);
}

/* FLIGHT_KILL_AFTER: so many milliseconds behind the call, in which the ranks are on their way. */
static void kill_before(struct flight *f)
{
    const int after = board_env("FLIGHT_KILL_AFTER", 0);
    if (f->is_victim) {
        others_enqueued(f);
        if (after)
            NCCL(enqueue(f));
        board_sleep_ms(after);
        kill(getpid(), SIGKILL);
    }
    must_fail(f, enqueue(f), true);
}

static void kill_told(struct flight *f)
{
    cudaStream_t told;
    cudaEvent_t event;
    if (f->is_victim) {
        others_enqueued(f);
        kill(getpid(), SIGKILL);
    }
    CUDA(cudaStreamCreateWithFlags(&told, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    moved_produce(&f->moved, f->r.stream);
    ncclResult_t e = moved_call(&f->moved, &f->r);
    CUDA(cudaEventRecord(event, f->r.stream));
    CUDA(cudaStreamWaitEvent(told, event, 0));
    CUDA(cudaMemsetAsync(moved_sent(&f->moved), 0, 1, told));
    CHECK(cudaEventQuery(event) == cudaErrorNotReady, "rank %d: the event is over without the victim", f->r.rank);
    atomic_store(&board()->mark[f->r.rank], ENQUEUED);
    NCCL(e);
    CHECK(f->is_far || player_wait(&f->r, ERROR_MS) != ncclSuccess, "rank %d: no error", f->r.rank);
    stays_held(f, told);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady, "rank %d: the event is over without the data", f->r.rank);
    must_fail(f, e, true);
    CUDA(cudaStreamSynchronize(told));
    CUDA(cudaEventSynchronize(event));
    CUDA(cudaEventDestroy(event));
    CUDA(cudaStreamDestroy(told));
}

static void victim_gone(const struct flight *f)
{
    for (int i = 0; i < 5000 && kill(board()->pid[f->victim], 0) == 0; i++)
        board_sleep_ms(1); /* launch reaps it */
}

static void kill_between(struct flight *f)
{
    if (f->is_victim)
        kill(getpid(), SIGKILL);
    victim_gone(f);
    must_fail(f, enqueue(f), true);
}

static void kill_driver(struct flight *f)
{
    if (f->is_victim)
        others_enqueued(f);
    ncclResult_t e = enqueue(f);
    if (f->is_victim) {
        player_wait(&f->r, 5000);
        DIE(1, "the victim lives");
    }
    must_fail(f, e, true);
}

static void kill_asked(struct flight *f)
{
    ncclResult_t e = ncclSuccess;
    for (int i = 0; i < 400 && e == ncclSuccess; i++) {
        moved_fill(&f->moved, &f->r, f->round);
        moved_produce(&f->moved, f->r.stream);
        e = moved_call(&f->moved, &f->r);
        e = e == ncclSuccess ? player_try(&f->r, ERROR_MS) : e;
        if (e == ncclSuccess)
            check(f);
        f->round++;
    }
    CHECK(!f->is_victim, "the victim lives");
    CHECK(e != ncclSuccess && (f->is_far || e != ncclInProgress), "rank %d: %s", f->r.rank, ncclGetErrorString(e));
    end_in_error(f, false);
}

static void *abort_later(void *arg)
{
    struct flight *f = arg;
    board_sleep_ms(100); /* the main thread is in cudaStreamSynchronize by then */
    NCCL(ncclCommAbort(f->r.comm));
    return NULL;
}

/* One of the others never calls, so the gather can not end by itself. */
static void abort_scenario(struct flight *f)
{
    pthread_t t;
    if (f->r.rank == (f->victim + 1) % f->r.nranks) {
        CHECK(board_wait(&board()->mark[f->victim], GONE, 10000), "rank %d: the abort has not returned", f->r.rank);
        board_sleep_ms(100);
        moved_produce(&f->moved, f->r.stream);
        must_fail(f, moved_call(&f->moved, &f->r), true);
        return;
    }
    ncclResult_t e = enqueue(f);
    if (!f->is_victim) { /* a late one finds the communicator failed already */
        must_fail(f, e, true);
        return;
    }
    CHECK(e == ncclSuccess, "rank %d: %s", f->r.rank, ncclGetErrorString(e));
    CHECK(pthread_create(&t, NULL, abort_later, f) == 0, "no thread");
    int64_t begin = player_ms();
    CUDA(cudaStreamSynchronize(f->r.stream));
    pthread_join(t, NULL);
    CHECK(player_ms() - begin < ABORT_MS, "the abort took %d ms", (int)(player_ms() - begin));
    atomic_store(&board()->mark[f->r.rank], GONE);
}

static void hang(void *word)
{
    board_wait(word, 1, 20000);
}

static void abort_blocked(struct flight *f)
{
    static _Atomic uint32_t let_go;
    if (!f->is_victim) {
        must_fail(f, enqueue(f), true);
        return;
    }
    CUDA(cudaLaunchHostFunc(f->r.stream, hang, &let_go));
    NCCL(enqueue(f));
    int64_t begin = player_ms();
    NCCL(ncclCommAbort(f->r.comm));
    CHECK(player_ms() - begin < ABORT_MS, "the abort took %d ms", (int)(player_ms() - begin));
    CHECK(cudaStreamQuery(f->r.stream) == cudaErrorNotReady, "the stream did not hang");
    atomic_store(&let_go, 1);
    player_drain(&f->r, ERROR_MS);
    CUDA(cudaStreamDestroy(f->r.stream));
    board_sleep_ms(200); /* the rest of the communicator is cleaned up behind our back */
}

static void *fill_queue(void *arg)
{
    struct flight *f = arg;
    CUDA(cudaSetDevice(f->device));
    for (int i = 0; i < 400; i++) {
        ncclResult_t e = enqueue(f);
        if (e != ncclSuccess) {
            fprintf(stderr, "rank %d: gather %d: %s\n", f->r.rank, i, ncclGetErrorString(e));
            break;
        }
        atomic_fetch_add(&f->enqueued, 1);
    }
    return NULL;
}

/* Nobody else calls, so what the victim enqueues stays, until its thread waits inside of a call. */
static void abort_full(struct flight *f)
{
    pthread_t t;
    if (!f->is_victim) {
        CHECK(board_wait(&board()->mark[f->victim], GONE, 20000), "rank %d: the abort has not returned", f->r.rank);
        NCCL(ncclCommAbort(f->r.comm));
        return;
    }
    CUDA(cudaGetDevice(&f->device));
    CHECK(pthread_create(&t, NULL, fill_queue, f) == 0, "no thread");
    for (unsigned seen = 0, still = 0; still < 300; still++) {
        unsigned now = atomic_load(&f->enqueued);
        if (now != seen)
            still = 0;
        seen = now;
        board_sleep_ms(1);
    }
    CHECK(atomic_load(&f->enqueued) < 400, "the queue was never full: this test shows nothing");
    int64_t begin = player_ms();
    NCCL(ncclCommAbort(f->r.comm));
    CHECK(player_ms() - begin < ABORT_MS, "the abort took %d ms", (int)(player_ms() - begin));
    fprintf(stderr, "rank %d: aborted after %d ms, with %u gathers enqueued\n", f->r.rank, (int)(player_ms() - begin),
            atomic_load(&f->enqueued));
    pthread_join(t, NULL);
    player_drain(&f->r, ERROR_MS);
    atomic_store(&board()->mark[f->r.rank], GONE);
    board_sleep_ms(200); /* the rest of the communicator is cleaned up behind our back */
}

static void destroy_scenario(struct flight *f)
{
    if (!f->is_victim) {
        CHECK(board_wait(&board()->mark[f->victim], GONE, 10000), "rank %d: destroy has not returned", f->r.rank);
        must_fail(f, enqueue(f), true);
        atomic_store(&board()->mark[f->r.rank], GONE);
        return;
    }
    NCCL(ncclCommDestroy(f->r.comm));
    atomic_store(&board()->mark[f->r.rank], GONE);
    CHECK(board_wait_all(f->r.nranks, -1, GONE, 10000), "the others do not end");
}

static void stop(struct flight *f)
{
    if (f->is_victim) {
        others_enqueued(f);
        raise(SIGSTOP);
    }
    exact(f, enqueue(f));
    close_well(f);
}

/* The others end while the victim is stopped: nothing of theirs may depend on it. */
static void stop_fails(struct flight *f)
{
    if (f->is_victim) {
        others_enqueued(f);
        raise(SIGSTOP);
        ncclResult_t e = enqueue(f);
        /* Waits that the others had for this rank are released by now: what they "published" is not their data. */
        CHECK(e != ncclSuccess, "rank %d: the call took a gather with ranks that had failed before", f->r.rank);
        must_fail(f, e, true);
        return;
    }
    must_fail(f, enqueue(f), false);
    atomic_store(&board()->mark[f->r.rank], GONE);
}

static void left_behind(struct flight *f)
{
    NCCL(enqueue(f));
    CHECK(board_wait(&board()->mark[f->victim], GONE, 10000), "rank %d: the victim is not done", f->r.rank);
    CHECK(cudaStreamQuery(f->r.stream) == cudaErrorNotReady, "rank %d was not slower: this test shows nothing",
          f->r.rank);
}

static void leave(struct flight *f)
{
    if (f->is_victim) {
        exact(f, enqueue(f));
        atomic_store(&board()->mark[f->r.rank], GONE);
        close_well(f);
        return;
    }
    left_behind(f);
    exact(f, ncclSuccess);
    close_well(f);
}

static void die_early(struct flight *f)
{
    if (f->is_victim) {
        exact(f, enqueue(f));
        atomic_store(&board()->mark[f->r.rank], GONE);
        _exit(0);
    }
    left_behind(f);
    ncclResult_t e = player_wait(&f->r, 5000);
    fprintf(stderr, "rank %d: %s\n", f->r.rank, ncclGetErrorString(e));
    if (e == ncclSuccess)
        check(f);
    end_in_error(f, true);
}

/* A GEMM waits for nobody, whatever is expected to come behind it. */
static void make_alone(struct flight *f)
{
    int64_t begin = player_ms();
    moved_produce(&f->moved, f->r.stream);
    CUDA(cudaStreamSynchronize(f->r.stream));
    CHECK(player_ms() - begin < ERROR_MS, "rank %d: the GEMM took %d ms", f->r.rank, (int)(player_ms() - begin));
    moved_check_produced(&f->moved, &f->r, f->round);
}

static void kill_made(struct flight *f)
{
    make_alone(f);
    if (f->is_victim)
        kill(getpid(), SIGKILL);
    victim_gone(f);
    must_fail(f, moved_call(&f->moved, &f->r), true);
}

static void kill_unmade(struct flight *f)
{
    if (f->is_victim)
        kill(getpid(), SIGKILL);
    victim_gone(f);
    make_alone(f);
    must_fail(f, moved_call(&f->moved, &f->r), true);
}

static void leave_made(struct flight *f)
{
    make_alone(f);
    int64_t begin = player_ms();
    close_well(f);
    CHECK(player_ms() - begin < ABORT_MS, "rank %d: the end took %d ms", f->r.rank, (int)(player_ms() - begin));
    moved_check_produced(&f->moved, &f->r, f->round);
}

static void abort_made(struct flight *f)
{
    moved_produce(&f->moved, f->r.stream);
    if (!f->is_victim)
        CHECK(board_wait(&board()->mark[f->victim], GONE, 10000), "rank %d: no abort", f->r.rank);
    int64_t begin = player_ms();
    NCCL(f->is_victim || f->r.rank % 2 ? ncclCommAbort(f->r.comm) : ncclCommDestroy(f->r.comm));
    CHECK(player_ms() - begin < ABORT_MS, "rank %d: the end took %d ms", f->r.rank, (int)(player_ms() - begin));
    atomic_store(&board()->mark[f->r.rank], GONE);
    player_drain(&f->r, ERROR_MS);
    moved_check_produced(&f->moved, &f->r, f->round);
}

static void hang_until_gone(void *mark)
{
    board_wait(mark, GONE, 20000);
}

static void abort_ahead(struct flight *f)
{
    if (f->is_victim) {
        others_enqueued(f);
        NCCL(enqueue(f));
        NCCL(moved_again(&f->moved, &f->r));
        NCCL(ncclCommAbort(f->r.comm));
        CUDA(cudaStreamSynchronize(f->r.stream));
        atomic_store(&board()->mark[f->r.rank], GONE);
        return;
    }
    CUDA(cudaLaunchHostFunc(f->r.stream, hang_until_gone, &board()->mark[f->victim]));
    must_fail(f, enqueue(f), true);
}

static void driver_error(struct flight *f)
{
    must_fail(f, enqueue(f), true);
}

static const struct {
    const char *name;
    void (*play)(struct flight *f);
} scenarios[] = {{"kill-before", kill_before},
                 {"kill-told", kill_told},
                 {"kill-between", kill_between},
                 {"kill-driver", kill_driver},
                 {"kill-asked", kill_asked},
                 {"abort", abort_scenario},
                 {"abort-blocked", abort_blocked},
                 {"abort-full", abort_full},
                 {"abort-ahead", abort_ahead},
                 {"kill-made", kill_made},
                 {"kill-unmade", kill_unmade},
                 {"leave-made", leave_made},
                 {"abort-made", abort_made},
                 {"destroy", destroy_scenario},
                 {"stop", stop},
                 {"stop-fails", stop_fails},
                 {"leave", leave},
                 {"die-early", die_early},
                 {"driver-error", driver_error}};

int main(int argc, char **argv)
{
    CHECK(argc >= 3, "usage: flight SCENARIO VICTIM [SHARD_BYTES [scatter|reduce|reduce-in-place]]");
    static struct flight f; /* static: nothing is lost in the ways that end the process */
    f.r = player_start();
    f.victim = atoi(argv[2]);
    f.is_victim = f.r.rank == f.victim;
    f.is_far = is_far(&f);
    CUDA(cudaStreamCreateWithFlags(&f.r.stream, cudaStreamNonBlocking));
    moved_make(&f.moved, &f.r, argc > 3 ? strtoull(argv[3], NULL, 0) : 1000003, argc > 4 ? argv[4] : NULL);
    NCCL(ncclCommInitRank(&f.r.comm, f.r.nranks, f.r.id, f.r.rank));
    first_gathers(&f);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].play(&f);
            return 0;
        }
    DIE(2, "no scenario %s", argv[1]);
}
