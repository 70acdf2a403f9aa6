/* SPDX-License-Identifier: Apache-2.0 */
/* What comes between a GEMM and the call and is none of its business: every turn's parts are sent as they complete,
 * which the log's last line says. */
#include "scatter_wrong.h"

enum { MANY = 6 }; /* events, more than are remembered of a GEMM's end */

static _Thread_local struct { /* of the rank */
    int device;
    cudaStream_t stream;
    cudaEvent_t event;
    uint8_t *memory;
} other;
static _Thread_local cudaEvent_t many[MANY];

static void record(struct turn *u, int event, cudaStream_t stream)
{
    CUDA(cudaEventRecord(u->t->w->event[event], stream));
}

static void then_wait(struct turn *u, cudaStream_t stream, int event)
{
    CUDA(cudaStreamWaitEvent(stream, u->t->w->event[event], 0));
}

/* On `stream`; event 2 is from before it. */
static void gemm_on(struct turn *u, cudaStream_t stream)
{
    struct world *w = u->t->w;
    record(u, 2, w->third);
    if (stream != w->s)
        edge(w, 1, w->s, stream);
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

/* ---- events ---- */

static void legacy_waits(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    then_wait(u, NULL, 2);
}

static void legacy_records(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    record(u, 0, NULL);
}

static void side_waits(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    then_wait(u, u->t->w->side, 2);
}

static void follower(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    edge(u->t->w, 0, u->t->w->s, u->t->w->side);
}

/* The first one is followed. */
static void followers(struct turn *u)
{
    follower(u);
    then_wait(u, u->t->w->third, 0);
}

static void own_waits(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    edge(u->t->w, 0, u->t->w->s, u->t->w->s);
    then_wait(u, u->t->w->side, 0);
}

static void many_events(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    record(u, 0, u->t->w->s);
    for (int i = 0; i < MANY; i++)
        CUDA(cudaEventRecord(many[i], u->t->w->s));
    then_wait(u, u->t->w->side, 0);
}

/* Again and again, which takes no more room. */
static void one_event(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    for (int i = 0; i < MANY; i++)
        record(u, 1, u->t->w->s);
    record(u, 0, u->t->w->s);
    then_wait(u, u->t->w->side, 0);
}

static void legacy_records_behind(struct turn *u)
{
    gemm_on(u, NULL);
    record(u, 0, NULL);
}

static void side_waits_beside(struct turn *u)
{
    gemm_on(u, NULL);
    then_wait(u, u->t->w->side, 2);
}

static void open_many(struct site *t)
{
    (void)t;
    for (int i = 0; i < MANY; i++)
        CUDA(cudaEventCreateWithFlags(&many[i], cudaEventDisableTiming));
}

static void close_many(struct site *t)
{
    (void)t;
    for (int i = 0; i < MANY; i++)
        CUDA(cudaEventDestroy(many[i]));
}

/* ---- another device ---- */

static void there(struct turn *u)
{
    (void)u;
    CUDA(cudaSetDevice(other.device));
}

static void back(struct turn *u)
{
    CUDA(cudaSetDevice(rank_device(u->t->w->rank)));
}

static void open_other(struct site *t)
{
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    other.device = (rank_device(t->w->rank) + t->w->nranks) % devices;
    CUDA(cudaSetDevice(other.device));
    CUDA(cudaStreamCreateWithFlags(&other.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&other.event, cudaEventDisableTiming));
    CUDA(cudaMalloc((void **)&other.memory, 1024));
    CUDA(cudaEventRecord(other.event, other.stream));
    CUDA(cudaSetDevice(rank_device(t->w->rank)));
}

static void close_other(struct site *t)
{
    CUDA(cudaSetDevice(other.device));
    CUDA(cudaStreamSynchronize(other.stream));
    CUDA(cudaStreamDestroy(other.stream));
    CUDA(cudaEventDestroy(other.event));
    CUDA(cudaFree(other.memory));
    CUDA(cudaSetDevice(rank_device(t->w->rank)));
}

static void other_works(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    there(u);
    CUDA(cudaMemsetAsync(other.memory, 1, 1024, other.stream));
    back(u);
}

static void other_waits(struct turn *u)
{
    gemm_on(u, u->t->w->s);
    record(u, 0, u->t->w->s);
    CUDA(cudaStreamWaitEvent(other.stream, u->t->w->event[0], 0));
}

/* A default stream has the same handle there. */
static void other_legacy_waits(struct turn *u)
{
    gemm_on(u, NULL);
    there(u);
    CUDA(cudaStreamWaitEvent(NULL, other.event, 0));
    back(u);
}

static void other_legacy_records(struct turn *u)
{
    gemm_on(u, u->t->w->blocking[0]);
    there(u);
    CUDA(cudaEventRecord(other.event, NULL));
    back(u);
}

static void alone(struct turn *u)
{
    gemm_on(u, u->t->w->s);
}

static void call_in_group(struct turn *u)
{
    NCCL(ncclGroupStart());
    site_call(u->t, u->t->w->s);
    NCCL(ncclGroupEnd());
}

#define KEPT(name_, ...)                                                                                               \
    {                                                                                                                  \
        .name = "kept-" name_, .list = "kept", .body = wrong_body, .arg = &(const struct other)                        \
        {                                                                                                              \
            .name = name_, .each = true, __VA_ARGS__                                                                   \
        }                                                                                                              \
    }
#define MANY_EVENTS .open = open_many, .close = close_many
#define OTHER_DEVICE .open = open_other, .close = close_other

const struct scatter_case kept_cases[] = {
    KEPT("legacy-waits", .make = legacy_waits),
    KEPT("legacy-records", .make = legacy_records),
    KEPT("side-waits", .make = side_waits),
    KEPT("follower", .make = follower, .call = call_on_side),
    KEPT("followers", .make = followers, .call = call_on_side),
    KEPT("own-waits", .make = own_waits, .call = call_on_side),
    KEPT("many-events", .make = many_events, .call = call_on_side, MANY_EVENTS),
    KEPT("one-event", .make = one_event, .call = call_on_side),
    KEPT("legacy", .make = legacy_records_behind, .call = call_on_legacy),
    KEPT("legacy-side-waits", .make = side_waits_beside, .call = call_on_legacy),
    KEPT("in-group", .make = alone, .call = call_in_group),
    KEPT("other-works", .make = other_works, OTHER_DEVICE),
    KEPT("other-waits", .make = other_waits, OTHER_DEVICE),
    KEPT("other-legacy-waits", .make = other_legacy_waits, .call = call_on_legacy, OTHER_DEVICE),
    KEPT("other-legacy-records", .make = other_legacy_records, .call = call_on_blocking, OTHER_DEVICE),
    {.name = NULL}};
