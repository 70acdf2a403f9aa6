/* SPDX-License-Identifier: Apache-2.0 */
/* Captured collectives: each replay is one more collective of the communicator, in the order in which the host launches
 * graphs and eager work. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/mman.h>

TestSuite(nccl_graph, .timeout = 120);

#define COUNT 256 /* words of a shard */

/* A gather of its own: the shard of rank r is filled with `value` + r. */
struct gather {
    CUdeviceptr send, recv;
};

static struct gather new_gather(struct rank *r)
{
    struct gather g;
    OK(r->cu.cuMemAlloc(&g.send, COUNT * 4));
    OK(r->cu.cuMemAlloc(&g.recv, COUNT * 4 * (size_t)r->nranks));
    return g;
}

static CUstream new_stream(struct rank *r)
{
    CUstream s;
    OK(r->cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    return s;
}

static void call(struct rank *r, const struct gather *g, CUstream s)
{
    OK(ncclAllGather((void *)g->send, (void *)g->recv, COUNT, ncclUint32, r->comm, s));
}

static void begin(struct rank *r, CUstream s)
{
    OK(r->cu.cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static CUgraphExec end(struct rank *r, CUstream s)
{
    CUgraph g;
    CUgraphExec x;
    OK(r->cu.cuStreamEndCapture(s, &g));
    OK(r->cu.cuGraphInstantiateWithFlags(&x, g, 0));
    OK(r->cu.cuGraphDestroy(g));
    return x;
}

static CUgraphExec captured(struct rank *r, const struct gather *g, CUstream s)
{
    begin(r, s);
    call(r, g, s);
    return end(r, s);
}

static void follow(struct rank *r, CUstream from, CUstream to)
{
    CUevent e;
    OK(r->cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(r->cu.cuEventRecord(e, from));
    OK(r->cu.cuStreamWaitEvent(to, e, 0));
}

static void set(struct rank *r, const struct gather *g, unsigned value, CUstream s)
{
    OK(r->cu.cuMemsetD32Async(g->send, value + (unsigned)r->rank, COUNT, s));
}

static void expect_at(struct rank *r, CUdeviceptr recv, unsigned value)
{
    static _Thread_local uint32_t got[MAX_RANKS * COUNT];
    OK(r->cu.cuMemcpyDtoH(got, recv, COUNT * 4 * (size_t)r->nranks));
    for (int i = 0; i < COUNT * r->nranks; i++)
        CHECK(got[i] == value + (unsigned)(i / COUNT));
}

static void expect(struct rank *r, const struct gather *g, unsigned value)
{
    expect_at(r, g->recv, value);
}

static void replayed(struct rank *r)
{
    struct gather g = new_gather(r);
    CUgraphExec x = captured(r, &g, r->stream);
    for (unsigned i = 0; i < 50; i++) {
        set(r, &g, 1000 * i, r->stream);
        OK(r->cu.cuGraphLaunch(x, r->stream));
        OK(r->cu.cuStreamSynchronize(r->stream));
        expect(r, &g, 1000 * i);
    }
    OK(r->cu.cuGraphExecDestroy(x));
}

Test(nccl_graph, a_replay_gathers_what_is_there_then)
{
    cr_assert_eq(run_ranks(4, 1, replayed), 0);
}

#define KEPT 40

/* Turns of two graphs, both on one stream, and of eager gathers on another, which nothing orders but the host. */
static void in_turn(struct rank *r)
{
    struct gather a = new_gather(r), b = new_gather(r), c = new_gather(r);
    CUstream other = new_stream(r);
    CUgraphExec x = captured(r, &a, r->stream), y = captured(r, &b, r->stream);
    const struct gather *of[3] = {&a, &b, &c};
    CUdeviceptr kept[KEPT];
    unsigned seed = 7, turn[KEPT];
    for (unsigned i = 0; i < KEPT; i++) {
        turn[i] = (seed = seed * 1103515245 + 12345) >> 16 & 3;
        turn[i] -= turn[i] == 3;
        const struct gather *g = of[turn[i]];
        CUstream s = g == &c ? other : r->stream;
        OK(r->cu.cuMemAlloc(&kept[i], COUNT * 4 * (size_t)r->nranks));
        set(r, g, 100 * i, s);
        if (r->rank == (int)(i % (unsigned)r->nranks))
            usleep(500); /* so that ranks are not in step */
        if (g == &c)
            call(r, g, s);
        else
            OK(r->cu.cuGraphLaunch(g == &a ? x : y, s));
        OK(r->cu.cuMemcpyDtoDAsync(kept[i], g->recv, COUNT * 4 * (size_t)r->nranks, s));
    }
    OK(r->cu.cuCtxSynchronize());
    for (unsigned i = 0; i < KEPT; i++)
        expect_at(r, kept[i], 100 * i);
    OK(r->cu.cuGraphExecDestroy(x));
    OK(r->cu.cuGraphExecDestroy(y));
}

Test(nccl_graph, graphs_and_eager_gathers_take_turns)
{
    cr_assert_eq(run_ranks(3, 1, in_turn), 0);
}

static void all_have_looked(struct rank *r)
{
    int *looked = (int *)(r->shared + 128);
    __atomic_fetch_add(looked, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(looked, __ATOMIC_ACQUIRE) < r->nranks)
        usleep(1000);
}

/* One rank's eager gather is held up on its stream; the graph that its host launched later must not overtake it, as on
 * the other ranks it does not. */
static void host_order(struct rank *r)
{
    struct gather a = new_gather(r), b = new_gather(r);
    CUstream other = new_stream(r);
    CUgraphExec x = captured(r, &a, r->stream);
    uint32_t *word = (uint32_t *)(r->shared + 64);
    CUdeviceptr at;
    set(r, &a, 10, r->stream);
    OK(r->cu.cuCtxSynchronize());
    OK(r->cu.cuMemHostRegister(r->shared, 4096, 0));
    OK(r->cu.cuMemHostGetDevicePointer(&at, word, 0));
    set(r, &b, 20, other);
    if (!r->rank)
        OK(r->cu.cuStreamWaitValue32(other, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    call(r, &b, other);
    OK(r->cu.cuGraphLaunch(x, r->stream));
    usleep(100000);
    CHECK(r->cu.cuStreamQuery(r->stream) == CUDA_ERROR_NOT_READY);
    all_have_looked(r);
    if (!r->rank)
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    OK(r->cu.cuCtxSynchronize());
    expect(r, &a, 10);
    expect(r, &b, 20);
    OK(r->cu.cuGraphExecDestroy(x));
}

Test(nccl_graph, the_host_decides_the_order)
{
    cr_assert_eq(run_ranks(2, 1, host_order), 0);
}

static void not_alike(struct rank *r)
{
    struct gather g = new_gather(r);
    CUgraphExec x = r->rank % 2 ? NULL : captured(r, &g, r->stream);
    for (unsigned i = 0; i < 10; i++) {
        set(r, &g, i, r->stream);
        if (x)
            OK(r->cu.cuGraphLaunch(x, r->stream));
        else
            call(r, &g, r->stream);
        OK(r->cu.cuStreamSynchronize(r->stream));
        expect(r, &g, i);
    }
    if (x)
        OK(r->cu.cuGraphExecDestroy(x));
}

Test(nccl_graph, some_ranks_may_capture_what_others_call)
{
    cr_assert_eq(run_ranks(4, 1, not_alike), 0);
}

/* Several kernels in one graph, on two of its streams without an order of their own, and a group on both. */
static void many_in_one(struct rank *r)
{
    struct gather g[4];
    CUstream other = new_stream(r);
    for (int i = 0; i < 4; i++)
        g[i] = new_gather(r);
    begin(r, r->stream);
    follow(r, r->stream, other);
    call(r, &g[0], r->stream);
    call(r, &g[1], other);
    OK(ncclGroupStart());
    call(r, &g[2], r->stream);
    call(r, &g[3], other);
    OK(ncclGroupEnd());
    follow(r, other, r->stream);
    CUgraphExec x = end(r, r->stream);
    for (unsigned turn = 0; turn < 10; turn++) {
        for (unsigned i = 0; i < 4; i++)
            set(r, &g[i], 100 * turn + 10 * i, r->stream);
        OK(r->cu.cuGraphLaunch(x, r->stream));
        OK(r->cu.cuStreamSynchronize(r->stream));
        for (unsigned i = 0; i < 4; i++)
            expect(r, &g[i], 100 * turn + 10 * i);
    }
    OK(r->cu.cuGraphExecDestroy(x));
}

Test(nccl_graph, kernels_of_one_capture_follow_one_another)
{
    cr_assert_eq(run_ranks(2, 1, many_in_one), 0);
}

/* Graphs of one shape whatever was captured before, so that updates find it. */
static void updated(struct rank *r)
{
    struct gather a = new_gather(r), b = new_gather(r);
    CUgraphExecUpdateResultInfo info;
    CUgraphNode nodes[4];
    CUgraphNodeType type;
    size_t n = 4;
    CUgraph g;
    CUgraphExec x = captured(r, &a, r->stream);
    begin(r, r->stream);
    call(r, &b, r->stream);
    OK(r->cu.cuStreamEndCapture(r->stream, &g));
    OK(r->cu.cuGraphGetNodes(g, nodes, &n));
    CHECK(n == 3); /* wait for the communicator's event, kernel, record of it */
    OK(r->cu.cuGraphNodeGetType(nodes[0], &type));
    CHECK(type == CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    OK(r->cu.cuGraphNodeGetType(nodes[2], &type));
    CHECK(type == CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    OK(r->cu.cuGraphExecUpdate(x, g, &info));
    OK(r->cu.cuGraphDestroy(g));
    set(r, &b, 5, r->stream);
    OK(r->cu.cuGraphLaunch(x, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    expect(r, &b, 5);
    OK(r->cu.cuGraphExecDestroy(x));
}

Test(nccl_graph, an_executable_graph_is_updated)
{
    cr_assert_eq(run_ranks(2, 1, updated), 0);
}

/* Nothing of it ran: the ranks need not have captured alike. */
static void thrown_away(struct rank *r)
{
    struct gather g = new_gather(r);
    if (r->rank) {
        begin(r, r->stream);
        call(r, &g, r->stream);
        CHECK(r->cu.cuStreamQuery(r->stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CUgraph none;
        CHECK(r->cu.cuStreamEndCapture(r->stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        OK(r->cu.cuGraphExecDestroy(captured(r, &g, r->stream)));
    }
    set(r, &g, 3, r->stream);
    call(r, &g, r->stream);
    OK(r->cu.cuStreamSynchronize(r->stream));
    expect(r, &g, 3);
}

Test(nccl_graph, captures_that_never_run_are_no_collectives)
{
    cr_assert_eq(run_ranks(2, 1, thrown_away), 0);
}

/* ---- ranks of one process ---- */

struct member {
    struct rank r;
    int relaxed;
    pthread_t thread;
};

/* Connected by another kind of collective, outside of captures or in a relaxed one. */
static void *be_member(void *arg)
{
    struct member *m = arg;
    struct rank *r = &m->r;
    cu_use(&r->cu, r->rank);
    OK(r->cu.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    struct gather g = new_gather(r);
    CUgraph none;
    begin(r, r->stream);
    CHECK(ncclAllGather((void *)g.send, (void *)g.recv, COUNT, ncclUint32, r->comm, r->stream) == ncclInternalError);
    CHECK(r->cu.cuStreamEndCapture(r->stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (m->relaxed)
        OK(r->cu.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(ncclBroadcast((void *)g.send, (void *)g.recv, COUNT, ncclUint32, 0, r->comm, r->stream));
    if (m->relaxed)
        OK(r->cu.cuGraphExecDestroy(end(r, r->stream)));
    CUgraphExec x = captured(r, &g, r->stream);
    set(r, &g, 7, r->stream);
    OK(r->cu.cuGraphLaunch(x, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    expect(r, &g, 7);
    OK(r->cu.cuGraphExecDestroy(x));
    OK(ncclCommDestroy(r->comm));
    return NULL;
}

/* Each process has so many ranks, `nranks` is that of processes. */
static void be_members(struct rank *r, int each, int relaxed)
{
    struct member m[MAX_RANKS];
    for (int i = 0; i < each; i++) {
        m[i] = (struct member){.r = *r, .relaxed = relaxed};
        m[i].r.rank = each * r->rank + i;
        m[i].r.nranks = each * r->nranks;
        OK(pthread_create(&m[i].thread, NULL, be_member, &m[i]));
    }
    for (int i = 0; i < each; i++)
        OK(pthread_join(m[i].thread, NULL));
}

static void two_members(struct rank *r)
{
    be_members(r, 2, 0);
}

static void two_relaxed_members(struct rank *r)
{
    be_members(r, 2, 1);
}

Test(nccl_graph, ranks_of_one_process_do_not_connect_in_a_capture)
{
    cr_assert_eq(run_ranks(1, 0, two_members), 0);
    cr_assert_eq(run_ranks(2, 0, two_members), 0);
    cr_assert_eq(run_ranks(1, 0, two_relaxed_members), 0);
}

/* ---- ends ---- */

struct ending {
    struct rank *r;
    ncclResult_t (*how)(ncclComm_t);
    volatile int done;
};

static void *end_comm(void *arg)
{
    struct ending *e = arg;
    cu_use(&e->r->cu, e->r->rank);
    OK(e->how(e->r->comm));
    __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* The communicator's end waits for the last graph; `replay` launches it meanwhile. */
static void ends_late(struct rank *r, ncclResult_t (*how)(ncclComm_t), int replay)
{
    struct ending e = {.r = r, .how = how};
    pthread_t thread;
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    struct gather g = new_gather(r);
    CUgraphExec x = captured(r, &g, r->stream);
    OK(r->cu.cuGraphLaunch(x, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    CHECK(pthread_create(&thread, NULL, end_comm, &e) == 0);
    usleep(100000);
    CHECK(!__atomic_load_n(&e.done, __ATOMIC_ACQUIRE));
    if (replay) {
        OK(r->cu.cuGraphLaunch(x, r->stream));
        OK(r->cu.cuStreamSynchronize(r->stream));
    }
    OK(r->cu.cuGraphExecDestroy(x));
    pthread_join(thread, NULL);
    CHECK(e.done);
}

static void destroyed(struct rank *r)
{
    ends_late(r, ncclCommDestroy, 0);
}

static void finalized(struct rank *r)
{
    ends_late(r, ncclCommFinalize, 0);
    OK(ncclCommDestroy(r->comm));
}

static void aborted(struct rank *r)
{
    ends_late(r, ncclCommAbort, 1);
}

Test(nccl_graph, a_communicator_outlives_its_graphs)
{
    cr_assert_eq(run_ranks(2, 0, destroyed), 0);
    cr_assert_eq(run_ranks(2, 0, finalized), 0);
}

Test(nccl_graph, a_replay_after_an_abort_ends)
{
    cr_assert_eq(run_ranks(2, 0, aborted), 0);
}

static void rule_off(struct rank *r)
{
    setenv("SOFTGPU_NCCL_GRAPHS", "0", 1);
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    struct gather g = new_gather(r);
    captured(r, &g, r->stream);
    OK(ncclCommDestroy(r->comm));
}

Test(nccl_graph, without_the_rule_the_end_does_not_wait)
{
    cr_assert_eq(run_ranks(2, 0, rule_off), 0);
}
