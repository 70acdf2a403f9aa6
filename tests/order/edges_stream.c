/* SPDX-License-Identifier: Apache-2.0 */
/* Order between streams of one process, and what the host has seen. */
#include "edges.h"
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static void same_stream(struct edge_env *e)
{
    fill(e, e->a);
    settle(e, e->a);
    look(e, e->edge ? e->a : e->b);
}

static void write_after_read(struct edge_env *e)
{
    look(e, e->a);
    settle(e, e->a);
    fill(e, e->edge ? e->a : e->b);
}

static void event(struct edge_env *e)
{
    fill(e, e->a);
    if (e->edge)
        follow(e, e->a, e->b);
    settle(e, e->a);
    look(e, e->b);
}

/* An event orders what stands before its record, not what came before the wait. */
static void event_early(struct edge_env *e)
{
    if (e->edge)
        fill(e, e->a);
    CU(cuEventRecord(e->event, e->a));
    if (!e->edge)
        fill(e, e->a);
    settle(e, e->a);
    CU(cuStreamWaitEvent(e->b, e->event, 0));
    look(e, e->b);
}

/* An event that is complete when it is waited for is an edge all the same. */
static void event_done(struct edge_env *e)
{
    fill(e, e->a);
    CU(cuEventRecord(e->event, e->a));
    settle(e, e->a);
    if (e->edge)
        CU(cuStreamWaitEvent(e->b, e->event, 0));
    look(e, e->b);
}

static void two_hops(struct edge_env *e)
{
    CUstream c;

    CU(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    fill(e, e->a);
    follow(e, e->a, c);
    if (e->edge)
        follow(e, c, e->b);
    look(e, e->b);
}

static void event_sync(struct edge_env *e)
{
    fill(e, e->a);
    CU(cuEventRecord(e->event, e->a));
    if (e->edge)
        CU(cuEventSynchronize(e->event));
    look(e, e->b);
}

static void event_query(struct edge_env *e)
{
    fill(e, e->a);
    CU(cuEventRecord(e->event, e->a));
    while (e->edge && cuEventQuery(e->event) == CUDA_ERROR_NOT_READY)
        usleep(100);
    settle(e, e->a);
    look(e, e->b);
}

static void stream_sync(struct edge_env *e)
{
    fill(e, e->a);
    if (e->edge)
        CU(cuStreamSynchronize(e->a));
    settle(e, e->a);
    look(e, e->b);
}

/* Done long before somebody waits for it. */
static void stream_sync_late(struct edge_env *e)
{
    fill(e, e->a);
    settle(e, e->a);
    CU(cuStreamSynchronize(e->edge ? e->a : e->b));
    look(e, e->b);
}

static void stream_query(struct edge_env *e)
{
    fill(e, e->a);
    while (e->edge && cuStreamQuery(e->a) == CUDA_ERROR_NOT_READY)
        usleep(100);
    settle(e, e->a);
    look(e, e->b);
}

static void ctx_sync(struct edge_env *e)
{
    fill(e, e->a);
    settle(e, e->a);
    if (e->edge)
        CU(cuCtxSynchronize());
    look(e, e->b);
}

/* A synchronisation of one's own stream says nothing of work that was queued behind it. */
static void sync_too_early(struct edge_env *e)
{
    if (e->edge)
        fill(e, e->a);
    CU(cuStreamSynchronize(e->a));
    if (!e->edge)
        fill(e, e->a);
    settle(e, e->a);
    look(e, e->b);
}

/* A blocking copy to the host waits for what stands before it on the default stream. */
static void blocking_copy(struct edge_env *e)
{
    char seen[BYTES];

    fill(e, CU_STREAM_LEGACY);
    settle(e, CU_STREAM_LEGACY);
    if (e->edge)
        CU(cuMemcpyDtoH(seen, e->x, BYTES));
    look(e, e->b);
}

static void legacy_before(struct edge_env *e)
{
    CUstream s;

    CU(cuStreamCreate(&s, e->edge ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    fill(e, CU_STREAM_LEGACY);
    settle(e, CU_STREAM_LEGACY);
    look(e, s);
}

static void legacy_behind(struct edge_env *e)
{
    CUstream s;

    CU(cuStreamCreate(&s, e->edge ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    fill(e, s);
    settle(e, s);
    look(e, CU_STREAM_LEGACY);
}

/* Also of a stream that is gone. */
static void legacy_behind_destroyed(struct edge_env *e)
{
    CUstream s;

    CU(cuStreamCreate(&s, e->edge ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    fill(e, s);
    settle(e, s);
    CU(cuStreamDestroy(s));
    usleep(3000); /* until it is gone */
    look(e, CU_STREAM_LEGACY);
}

/* A stream ends, and the host has seen all of it: that is no edge for what was queued before, on a stream that has not
 * begun yet. */
static void queued_before(struct edge_env *e)
{
    size_t much = (size_t)64 << 20;
    CUdeviceptr slow;
    CUstream s;

    CU(cuMemAlloc(&slow, much));
    CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    fill(e, s);
    if (e->edge)
        follow(e, s, e->b);
    CU(cuMemsetD8Async(slow, 1, much, e->a));
    follow(e, e->a, e->b);
    look(e, e->b);
    CU(cuStreamSynchronize(s));
    CU(cuStreamDestroy(s));
}

static void per_thread(struct edge_env *e)
{
    fill(e, CU_STREAM_PER_THREAD);
    settle(e, CU_STREAM_PER_THREAD);
    look(e, e->edge ? CU_STREAM_LEGACY : e->b);
}

static _Atomic int called;

static void call(void *user)
{
    (void)user;
    atomic_store(&called, 1);
}

/* Who hears of it from a host function is behind what stands before that. */
static void host_function(struct edge_env *e)
{
    fill(e, e->a);
    if (e->edge)
        CU(cuLaunchHostFunc(e->a, call, NULL));
    while (e->edge && !atomic_load(&called))
        usleep(100);
    settle(e, e->a);
    look(e, e->b);
}

static void graph(struct edge_env *e)
{
    CUgraph g;
    CUgraphExec x;

    CU(cuStreamBeginCapture(e->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    fill(e, e->a);
    CU(cuStreamEndCapture(e->a, &g));
    CU(cuGraphInstantiate(&x, g, 0));
    CU(cuGraphLaunch(x, e->edge ? e->b : e->a));
    settle(e, e->edge ? e->b : e->a);
    look(e, e->b);
}

const struct edge_case edges_stream[] = {
    {.name = "same-stream", .body = same_stream},
    {.name = "write-after-read", .body = write_after_read},
    {.name = "event", .body = event},
    {.name = "event-early", .body = event_early},
    {.name = "event-done", .body = event_done},
    {.name = "two-hops", .body = two_hops},
    {.name = "event-sync", .body = event_sync},
    {.name = "event-query", .body = event_query},
    {.name = "stream-sync", .body = stream_sync},
    {.name = "stream-sync-late", .body = stream_sync_late},
    {.name = "stream-query", .body = stream_query},
    {.name = "ctx-sync", .body = ctx_sync},
    {.name = "sync-too-early", .body = sync_too_early},
    {.name = "blocking-copy", .body = blocking_copy},
    {.name = "legacy-before", .body = legacy_before},
    {.name = "legacy-behind", .body = legacy_behind},
    {.name = "legacy-behind-destroyed", .body = legacy_behind_destroyed},
    {.name = "queued-before", .body = queued_before},
    {.name = "per-thread", .body = per_thread},
    {.name = "host-function", .body = host_function},
    {.name = "graph", .body = graph},
    {.name = NULL},
};
