/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators and gathers, every byte checked: what a rank without a fault of its own does while others have theirs.
 * Buffers and the stream are made before the communicator, so that the driver calls of the agreement can be counted.
 *
 *   gathers [--bytes SHARD] [--rounds N] [--comms N] [--may-fail | --must-fail]
 *
 *   --comms       so many communicators at the same time, each used in every round, then destroyed; twice over
 *   --may-fail    NCCL's error is an answer too, from a call or ncclCommGetAsyncError; within 2 s, never wrong data
 *   --must-fail   an error is the only right answer; or none, which is NCCL's when a peer is dead: then the
 *                 program gives up, and its stream has not completed before
 */
#include "player.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#define MAX_COMMS 8

static struct {
    size_t bytes;
    unsigned rounds;
    int comms;
    bool may_fail, must_fail;
} want = {.bytes = 300001, .rounds = 3, .comms = 1};

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--bytes"))
            want.bytes = strtoull(next, NULL, 0), i++;
        else if (!strcmp(argv[i], "--rounds"))
            want.rounds = (unsigned)atoi(next), i++;
        else if (!strcmp(argv[i], "--comms"))
            want.comms = atoi(next), i++;
        else if (!strcmp(argv[i], "--may-fail"))
            want.may_fail = true;
        else if (!strcmp(argv[i], "--must-fail"))
            want.may_fail = want.must_fail = true;
        else
            DIE(2, "unknown argument %s", argv[i]);
    }
    CHECK(want.comms >= 1 && want.comms <= MAX_COMMS, "--comms %d", want.comms);
}

/* A rank that ends while others still agree would be one more that died. */
static void let_others_agree(const struct rank *r)
{
    for (int p = 0; p < r->nranks; p++)
        for (int i = 0; i < 3000 && atomic_load(&board()->mark[p]) == 0 && kill(board()->pid[p], 0) == 0; i++)
            board_sleep_ms(1);
}

static _Noreturn void leave(const struct rank *r)
{
    atomic_store(&board()->mark[r->rank], 1);
    let_others_agree(r);
    exit(0);
}

/* Ends the process well when an error is an answer. */
static void failed(const struct rank *r, ncclResult_t e, const char *where)
{
    fprintf(stderr, "rank %d: %s: %s\n", r->rank, where, ncclGetErrorString(e));
    if (!want.may_fail)
        DIE(3, "rank %d: no error was expected here", r->rank);
    CHECK(e != ncclInProgress, "rank %d: not an error", r->rank);
    if (r->comm) {
        player_drain(r, 4000);
        NCCL(ncclCommAbort(r->comm));
    }
    leave(r);
}

#define GIVES_UP_MS 1000

enum { CALLING, BACK, ABORTED };
static _Atomic int call;

/* The first gather that NCCL has meets all ranks inside of the call. */
static void *give_up(void *rank)
{
    const struct rank *r = rank;
    int calling = CALLING;
    for (int i = 0; i < GIVES_UP_MS && atomic_load(&call) == CALLING; i++)
        board_sleep_ms(1);
    if (atomic_compare_exchange_strong(&call, &calling, ABORTED))
        NCCL(ncclCommAbort(r->comm));
    return NULL;
}

/* False: it did not come back before another thread had aborted. */
static bool call_gather(const struct rank *r, const struct buffers *b, ncclResult_t *e)
{
    pthread_t thread;
    int calling = CALLING;
    CHECK(pthread_create(&thread, NULL, give_up, (void *)r) == 0, "no thread");
    *e = ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream);
    const bool back = atomic_compare_exchange_strong(&call, &calling, BACK);
    pthread_join(thread, NULL);
    return back;
}

static void must_fail(const struct rank *r, const struct buffers *b)
{
    ncclResult_t e;
    if (!call_gather(r, b, &e)) {
        CHECK(e != ncclSuccess, "rank %d: it worked, but an error was expected", r->rank);
        player_drain(r, 4000);
        leave(r);
    }
    if (e == ncclSuccess)
        e = player_try(r, GIVES_UP_MS);
    if (e != ncclInProgress && e != ncclSuccess)
        failed(r, e, "gather");
    if (e == ncclSuccess)
        DIE(1, "rank %d: it worked, but an error was expected", r->rank);
    NCCL(ncclCommAbort(r->comm));
    player_drain(r, 4000);
    leave(r);
}

static void one_round(const struct rank *r, const struct buffers *b, unsigned round)
{
    buffers_fill(b, r, round);
    if (want.must_fail)
        must_fail(r, b);
    ncclResult_t e = player_gather(r, b, want.may_fail ? 2000 : 10000);
    if (e != ncclSuccess)
        failed(r, e, "gather");
    buffers_check(b, r, round);
}

static void destroy(struct rank *r)
{
    NCCL(ncclCommDestroy(r->comm));
    r->comm = NULL;
}

/* The other communicators are split from the first, on all ranks alike. */
static void make_comms(struct rank *r, ncclComm_t *comms)
{
    r->comm = NULL;
    ncclResult_t e = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank);
    if (e != ncclSuccess) {
        r->comm = NULL;
        failed(r, e, "ncclCommInitRank");
    }
    comms[0] = r->comm;
    for (int i = 1; i < want.comms; i++)
        NCCL(ncclCommSplit(comms[0], 0, r->rank, &comms[i], NULL));
}

static void use(struct rank *r, const struct buffers *b, ncclComm_t *comms)
{
    make_comms(r, comms);
    atomic_store(&board()->mark[r->rank], 1);
    for (unsigned round = 0; round < want.rounds; round++)
        for (int i = 0; i < want.comms; i++) {
            r->comm = comms[i];
            one_round(r, b, round * MAX_COMMS + (unsigned)i);
        }
    for (int i = want.comms - 1; i >= 0; i--) {
        r->comm = comms[i];
        destroy(r);
    }
}

/* A second set of communicators from the same ranks needs an id of its own. */
static void next_id(struct rank *r)
{
    struct board *b = board();
    atomic_store(&b->mark[r->rank], 2);
    CHECK(board_wait_all(r->nranks, -1, 2, 10000), "rank %d: the others have not come", r->rank);
    if (r->rank == 0) {
        NCCL(ncclGetUniqueId(&r->id));
        memcpy(b->id, &r->id, sizeof b->id);
        atomic_store(&b->id_there, 2);
    }
    CHECK(board_wait(&b->id_there, 2, 10000), "rank %d: no second id", r->rank);
    memcpy(&r->id, b->id, sizeof r->id);
}

int main(int argc, char **argv)
{
    struct buffers b;
    ncclComm_t comms[MAX_COMMS];
    parse(argc, argv);
    struct rank r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, want.bytes);
    use(&r, &b, comms);
    if (want.comms > 1) {
        next_id(&r);
        use(&r, &b, comms);
    }
    buffers_free(&b);
    CUDA(cudaStreamDestroy(r.stream));
    return 0;
}
