/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to make communicators. */
#include "comms.h"

#include <string.h>

static void config_blocking(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    config.blocking = 1;
    config.commName = "forms";
    NCCL(ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, &config));
    check_one(comm, "InitRankConfig");
    NCCL(ncclCommDestroy(comm));
}

static void config_none(struct rank *r)
{
    ncclComm_t comm;
    NCCL(ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, NULL));
    check_one(comm, "InitRankConfig without a configuration");
    NCCL(ncclCommDestroy(comm));
}

void settle(ncclComm_t comm, ncclResult_t e)
{
    while (e == ncclInProgress) {
        sleep_ms(1);
        NCCL(ncclCommGetAsyncError(comm, &e));
    }
    NCCL(e);
}

ncclComm_t open_nonblocking(const struct rank *r, bool in_group)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    if (in_group)
        NCCL(ncclGroupStart());
    ncclResult_t e = ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, &config);
    if (in_group)
        e = ncclGroupEnd();
    if (e != ncclSuccess && e != ncclInProgress)
        DIE(3, "a non-blocking communicator: %s", ncclGetErrorString(e));
    settle(comm, e);
    return comm;
}

void check_nonblocking(ncclComm_t comm, const char *what)
{
    struct gather g;
    cudaStream_t s;
    int rank, nranks;
    NCCL(ncclCommUserRank(comm, &rank));
    NCCL(ncclCommCount(comm, &nranks));
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    gather_alloc(&g, rank, nranks, SMALL);
    for (uint64_t seed = 1; seed < 4; seed++) {
        gather_load(&g, seed, s);
        settle(comm, ncclAllGather(g.send, g.recv, SMALL, ncclUint8, comm, s));
        gather_check(&g, seed, s, what);
    }
    gather_free(&g);
    CUDA(cudaStreamDestroy(s));
}

void end_nonblocking(ncclComm_t comm)
{
    settle(comm, ncclCommFinalize(comm));
    ncclResult_t e = ncclCommDestroy(comm);
    EXPECT(e == ncclSuccess || e == ncclInProgress, "ncclCommDestroy: %s", ncclGetErrorString(e));
}

static void nonblocking(struct rank *r)
{
    ncclComm_t comm = open_nonblocking(r, false);
    check_nonblocking(comm, "blocking=0");
    end_nonblocking(comm);
}

static void nonblocking_in_group(struct rank *r)
{
    ncclComm_t comm = open_nonblocking(r, true);
    check_nonblocking(comm, "blocking=0, made in a group");
    end_nonblocking(comm);
}

/* NCCL answers a split with success at once, where the parent is not blocking: that tells when it is over. */
static void settle_derived(ncclComm_t parent, ncclResult_t e)
{
    EXPECT(e == ncclSuccess || e == ncclInProgress, "%s", ncclGetErrorString(e));
    settle(parent, ncclInProgress);
}

/* Children that block or not; the parent goes on. */
static void nonblocking_split(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t parent = open_nonblocking(r, false), blocks = NULL, child = NULL;
    config.blocking = 1;
    settle_derived(parent, ncclCommSplit(parent, 0, r->rank, &blocks, &config));
    check_one(blocks, "a blocking one, split from one that is not");
    settle_derived(parent, ncclCommSplit(parent, 0, -r->rank, &child, NULL));
    check_nonblocking(child, "split from one that is not blocking");
    NCCL(ncclCommDestroy(blocks));
    end_nonblocking(child);
    check_nonblocking(parent, "the parent");
    end_nonblocking(parent);
}

/* Rank 1 comes late: the others' calls return, and say so when they are asked. */
static void nonblocking_late(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t now;
    config.blocking = 0;
    if (r->rank == 1)
        sleep_ms(200);
    ncclResult_t e = ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, &config);
    NCCL(ncclCommGetAsyncError(comm, &now));
    EXPECT(e == ncclInProgress, "rank %d: it answers %s", r->rank, ncclGetErrorString(e));
    EXPECT(r->rank == 1 || now == ncclInProgress, "rank %d: it is made without rank 1", r->rank);
    settle(comm, now);
    check_nonblocking(comm, "made when the last one came");
    end_nonblocking(comm);
}

/* Some ranks do not wait. */
static void nonblocking_some(struct rank *r)
{
    ncclComm_t comm;
    if (r->rank % 2)
        comm = open_nonblocking(r, false);
    else
        NCCL(ncclCommInitRank(&comm, r->nranks, r->id, r->rank));
    check_nonblocking(comm, "blocking on some ranks");
    end_nonblocking(comm);
}

/* Several in one group, and some of its ranks are of one thread. */
static void nonblocking_groups(struct rank *r)
{
    ncclComm_t all = open_nonblocking(r, true), made[3] = {NULL, NULL, NULL};
    NCCL(ncclGroupStart());
    NCCL(ncclCommSplit(all, 0, -r->rank, &made[0], NULL));
    NCCL(ncclCommSplit(all, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, r->rank, &made[1], NULL));
    NCCL(ncclCommSplit(all, 0, r->rank, &made[2], NULL));
    settle_derived(all, ncclGroupEnd());
    for (int i = 0; i < 3; i++) {
        EXPECT((made[i] == NULL) == (i == 1 && r->rank == 0), "rank %d: communicator %d", r->rank, i);
        if (made[i])
            check_nonblocking(made[i], "one of several made in one group");
    }
    check_nonblocking(all, "their parent");
    for (int i = 0; i < 3; i++)
        if (made[i])
            end_nonblocking(made[i]);
    end_nonblocking(all);
}

static void nonblocking_shrink(struct rank *r)
{
    ncclComm_t all = open_nonblocking(r, false), fewer = NULL;
    int last = r->nranks - 1;
    if (r->rank != last) {
        settle_derived(all, ncclCommShrink(all, &last, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        check_nonblocking(fewer, "shrunk");
        end_nonblocking(fewer);
    }
    check_nonblocking(all, "the parent");
    end_nonblocking(all);
}

/* Ends while it is made: one that nobody else begins, and a split. */
static void nonblocking_abort(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t all = open_nonblocking(r, false), alone = NULL, child = NULL;
    ncclUniqueId id;
    config.blocking = 0;
    NCCL(ncclGetUniqueId(&id));
    ncclResult_t e = ncclCommInitRankConfig(&alone, r->nranks, id, 0, &config);
    sleep_ms(20);
    NCCL(ncclCommGetAsyncError(alone, &e));
    EXPECT(e == ncclInProgress, "rank %d: %s", r->rank, ncclGetErrorString(e));
    NCCL(ncclCommAbort(alone));
    check_nonblocking(all, "beside one that was aborted");
    if (r->rank == 0) {
        NCCL(ncclCommSplit(all, 0, 0, &child, NULL));
        sleep_ms(20);
    }
    NCCL(ncclCommAbort(all));
}

/* The program asks NCCL itself, which knows nothing of the ranks' agreement. */
static void await_nccl(ncclComm_t comm)
{
    for (ncclResult_t now = ncclInProgress; now == ncclInProgress;)
        NCCL(pncclCommGetAsyncError(comm, &now));
}

static ncclComm_t begin_next(const struct rank *r, ncclComm_t first)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    config.blocking = 0;
    more_ids(r, first, &id, 1);
    ncclResult_t e = ncclCommInitRankConfig(&comm, r->nranks, id, r->rank, &config);
    EXPECT(e == ncclInProgress, "rank %d: %s", r->rank, ncclGetErrorString(e));
    return comm;
}

/* A call behind one that is in progress is refused, whoever would have it. */
static void nonblocking_unfinished(struct rank *r)
{
    ncclComm_t comm = open_nonblocking(r, false);
    struct gather g;
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    gather_alloc(&g, r->rank, r->nranks, SMALL);
    ncclResult_t e = ncclAllReduce(g.recv, g.recv, SMALL, ncclUint8, ncclMax, comm, s);
    EXPECT(e == ncclInProgress, "rank %d: an all-reduce answers %s", r->rank, ncclGetErrorString(e));
    e = ncclAllGather(g.send, g.recv, SMALL, ncclUint8, comm, s);
    EXPECT(e == ncclInvalidArgument, "rank %d: the next call answers %s", r->rank, ncclGetErrorString(e));
    settle(comm, ncclInProgress);
    CUDA(cudaStreamSynchronize(s));
    check_nonblocking(comm, "behind a call that was refused");
    gather_free(&g);
    CUDA(cudaStreamDestroy(s));
    end_nonblocking(comm);
}

/* Until the stream is idle, or an error is told. */
static ncclResult_t one_gather(ncclComm_t comm, const struct rank *r)
{
    struct gather g;
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    gather_alloc(&g, r->rank, r->nranks, SMALL);
    ncclResult_t e = ncclAllGather(g.send, g.recv, SMALL, ncclUint8, comm, s);
    for (ncclResult_t now = ncclSuccess; e == ncclInProgress || e == ncclSuccess; e = now) {
        NCCL(ncclCommGetAsyncError(comm, &now));
        if (now == ncclSuccess && cudaStreamQuery(s) == cudaSuccess)
            return ncclSuccess;
        sleep_ms(1);
    }
    return e;
}

static void nonblocking_unasked(struct rank *r)
{
    ncclComm_t first = comm_first(r);
    for (int i = 0; i < 10; i++) {
        ncclComm_t comm = begin_next(r, first);
        await_nccl(comm);
        check_nonblocking(comm, "used when NCCL had made it");
        end_nonblocking(comm);
    }
    NCCL(ncclCommDestroy(first));
}

/* Rank 0 aborts when NCCL has made it, while the ranks agree, or have. The others are told. */
static void nonblocking_abort_made(struct rank *r)
{
    ncclComm_t first = comm_first(r);
    for (int i = 0; i < 5; i++) {
        ncclComm_t comm = begin_next(r, first);
        ncclResult_t e = ncclInProgress;
        if (r->rank == 0) {
            await_nccl(comm);
            NCCL(ncclCommAbort(comm));
            continue;
        }
        while (e == ncclInProgress)
            NCCL(ncclCommGetAsyncError(comm, &e));
        if (e == ncclSuccess)
            e = one_gather(comm, r);
        EXPECT(e != ncclSuccess, "rank %d: a gather without rank 0", r->rank);
        NCCL(ncclCommAbort(comm));
    }
    NCCL(ncclCommDestroy(first));
}

static void scalable(struct rank *r)
{
    ncclComm_t first = comm_first(r), comm;
    ncclUniqueId ids[2];
    more_ids(r, first, ids, 2);
    NCCL(ncclCommInitRankScalable(&comm, r->nranks, r->rank, 2, ids, NULL));
    check_one(comm, "InitRankScalable");
    check_one(first, "the first communicator");
    NCCL(ncclCommDestroy(comm));
    NCCL(ncclCommDestroy(first));
}

/* ---- several ranks in one thread ---- */

#define DEVICES 3

struct lane {
    struct gather g;
    ncclComm_t comm;
    cudaStream_t stream;
};

static void open_lanes(struct lane *lane)
{
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        gather_alloc(&lane[d].g, d, DEVICES, SMALL);
        CUDA(cudaStreamCreateWithFlags(&lane[d].stream, cudaStreamNonBlocking));
    }
}

static void use_lanes(struct lane *lane, const char *what)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        for (int d = 0; d < DEVICES; d++) {
            CUDA(cudaSetDevice(d));
            gather_load(&lane[d].g, seed, lane[d].stream);
        }
        NCCL(ncclGroupStart());
        for (int d = 0; d < DEVICES; d++)
            gather_call(&lane[d].g, lane[d].comm, lane[d].stream);
        NCCL(ncclGroupEnd());
        for (int d = 0; d < DEVICES; d++) {
            CUDA(cudaSetDevice(d));
            gather_check(&lane[d].g, seed, lane[d].stream, what);
        }
    }
}

static void close_lanes(struct lane *lane)
{
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommDestroy(lane[d].comm));
        CUDA(cudaStreamDestroy(lane[d].stream));
        gather_free(&lane[d].g);
    }
}

static void init_all(struct rank *r)
{
    struct lane lane[DEVICES];
    ncclComm_t comm[DEVICES];
    (void)r;
    open_lanes(lane);
    NCCL(ncclCommInitAll(comm, DEVICES, NULL));
    for (int d = 0; d < DEVICES; d++)
        lane[d].comm = comm[d];
    use_lanes(lane, "InitAll");
    close_lanes(lane);
}

static void init_in_group(struct rank *r)
{
    struct lane lane[DEVICES];
    open_lanes(lane);
    NCCL(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommInitRank(&lane[d].comm, DEVICES, r->id, d));
    }
    NCCL(ncclGroupEnd());
    use_lanes(lane, "InitRank in a group");
    close_lanes(lane);
}

/* ---- ranks that are threads ---- */

struct thread_rank {
    int rank, nranks;
    ncclUniqueId id;
};

static void thread_body(void *arg)
{
    const struct thread_rank *t = arg;
    ncclComm_t comm, half;
    CUDA(cudaSetDevice(t->rank));
    NCCL(ncclCommInitRank(&comm, t->nranks, t->id, t->rank));
    check_one(comm, "ranks that are threads");
    NCCL(ncclCommSplit(comm, t->rank % 2, t->rank, &half, NULL));
    check_one(half, "half of them");
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommDestroy(comm));
}

static void on_rank_threads(const struct rank *r, int per_process)
{
    struct thread_rank t[8];
    for (int i = 0; i < per_process; i++)
        t[i] = (struct thread_rank){r->rank * per_process + i, r->nranks * per_process, r->id};
    on_threads(per_process, t, sizeof *t, thread_body);
}

static void threads(struct rank *r)
{
    on_rank_threads(r, 4);
}

static void mixed(struct rank *r)
{
    on_rank_threads(r, 2);
}

static void many_in_group(struct rank *r)
{
    ncclComm_t all = comm_first(r), made[4];
    ncclUniqueId ids[2];
    more_ids(r, all, ids, 2);
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommInitRank(&made[i], r->nranks, ids[i], i ? r->nranks - 1 - r->rank : r->rank));
    NCCL(ncclCommSplit(all, 0, r->rank, &made[2], NULL));
    NCCL(ncclCommSplit(all, 0, -r->rank, &made[3], NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < 4; i++)
        check_one(made[i], "one of several made in one group");
    check_one(all, "the first");
    for (int i = 0; i < 4; i++)
        NCCL(ncclCommDestroy(made[i]));
    NCCL(ncclCommDestroy(all));
}

const struct comm_case comm_make_cases[] = {
    {"config", 2, config_blocking},
    {"config-none", 2, config_none},
    {"nonblocking", 2, nonblocking},
    {"nonblocking-in-group", 2, nonblocking_in_group},
    {"nonblocking-split", 2, nonblocking_split},
    {"nonblocking-late", 3, nonblocking_late},
    {"nonblocking-some", 3, nonblocking_some},
    {"nonblocking-groups", 4, nonblocking_groups},
    {"nonblocking-shrink", 3, nonblocking_shrink},
    {"nonblocking-abort", 2, nonblocking_abort},
    {"nonblocking-unfinished", 2, nonblocking_unfinished},
    {"nonblocking-unasked", 2, nonblocking_unasked},
    {"nonblocking-abort-made", 2, nonblocking_abort_made},
    {"scalable", 3, scalable},
    {"init-all", 1, init_all},
    {"init-in-group", 1, init_in_group},
    {"threads", 1, threads},
    {"mixed", 2, mixed},
    {"many-in-group", 2, many_in_group},
    {NULL, 0, NULL},
};
