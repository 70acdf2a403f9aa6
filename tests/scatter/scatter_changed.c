/* SPDX-License-Identifier: Apache-2.0 */
/* What changes C stands on a stream before the GEMM is called, and goes on when the host has seen the GEMM's end. The call
 * comes behind it in one of many ways. Nothing that a device sees orders it behind the GEMM, so the race oracle does not
 * look on. */
#include <stdatomic.h>

#include "scatter_wrong.h"

static _Atomic unsigned seen[MOST_RANKS];

struct awaited {
    int rank;
    unsigned turn;
};

static void CUDART_CB await_seen(void *one)
{
    const struct awaited *a = one;
    while (atomic_load(&seen[a->rank]) < a->turn)
        sleep_ms(1);
    free(one);
}

/* `stream` waits until the host has said that it has seen the GEMM's end, and a little longer. */
static void await_host(struct turn *u, cudaStream_t stream)
{
    struct world *w = u->t->w;
    struct awaited *a = malloc(sizeof *a);
    *a = (struct awaited){w->rank, atomic_load(&seen[w->rank]) + 1};
    edge(w, 0, w->s, stream);
    CUDA(cudaLaunchHostFunc(stream, await_seen, a));
    hold(stream, 8);
}

static void change_on(struct turn *u, cudaStream_t stream)
{
    struct site *t = u->t;
    await_host(u, stream);
    CUDA(cudaMemcpyAsync(CHANGED(t), FROM_SPARE(t), CHANGED_BYTES(t), cudaMemcpyDeviceToDevice, stream));
}

/* The same on the third stream, and an event behind it. */
static void change_on_third(struct turn *u)
{
    change_on(u, u->t->w->third);
    CUDA(cudaEventRecord(u->t->w->event[2], u->t->w->third));
}

/* GEMM on `stream`, which stands behind what is on the turn's one; the host sees its end. */
static void gemm_seen(struct turn *u, cudaStream_t stream)
{
    struct world *w = u->t->w;
    if (stream != w->s)
        edge(w, 1, w->s, stream);
    site_gemm(u->t, stream);
    CUDA(cudaEventRecord(w->event[1], stream));
    CUDA(cudaEventSynchronize(w->event[1]));
    atomic_fetch_add(&seen[w->rank], 1);
}

static void then_wait(struct turn *u, cudaStream_t stream, int event)
{
    CUDA(cudaStreamWaitEvent(stream, u->t->w->event[event], 0));
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

/* ---- the ways ---- */

static void waited(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, u->t->w->s);
    then_wait(u, u->t->w->s, 2);
}

static void there(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, u->t->w->s);
}

static void on_follower(struct turn *u)
{
    change_on(u, u->t->w->side);
    gemm_seen(u, u->t->w->s);
    then_wait(u, u->t->w->side, 1);
}

static void follower_waits(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, u->t->w->s);
    then_wait(u, u->t->w->side, 1);
    then_wait(u, u->t->w->side, 2);
}

/* The event that was recorded behind the GEMM is so behind something else by now. */
static void recorded_again(struct turn *u)
{
    struct world *w = u->t->w;
    change_on(u, w->third);
    site_gemm(u->t, w->s);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CUDA(cudaEventRecord(w->event[2], w->s));
    CUDA(cudaEventRecord(w->event[2], w->third));
    CUDA(cudaEventSynchronize(w->event[1]));
    atomic_fetch_add(&seen[w->rank], 1);
    then_wait(u, w->side, 2);
}

static void legacy_waits(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, u->t->w->blocking[0]);
    then_wait(u, NULL, 2);
}

static void legacy_waits_follower(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, u->t->w->s);
    then_wait(u, u->t->w->blocking[0], 1);
    then_wait(u, NULL, 2);
}

static void legacy_records(struct turn *u)
{
    struct world *w = u->t->w;
    change_on(u, w->blocking[1]);
    gemm_seen(u, w->blocking[0]);
    CUDA(cudaEventRecord(w->event[2], NULL));
}

static void waits_for_legacy(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, NULL);
    then_wait(u, u->t->w->blocking[0], 2);
}

static void per_thread_waits_for_legacy(struct turn *u)
{
    change_on_third(u);
    gemm_seen(u, NULL);
    then_wait(u, cudaStreamPerThread, 2);
}

/* A gather into C, which the stream that follows holds. */
static void gathered(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    const size_t shard = t->count * t->elem;
    await_host(u, w->third);
    NCCL(ncclAllGather(t->c + shard * (size_t)(w->nranks - 1 - w->rank), t->c, t->count, nccl_type(t->shape.type),
                       w->reversed, w->third));
    edge(w, 2, w->third, w->side);
    gemm_seen(u, w->s);
    then_wait(u, w->side, 1);
}

#define CHANGED_CASE(name_, make_, call_, model_)                                                                      \
    {                                                                                                                  \
        .name = "changed-" name_, .list = "changed", .body = wrong_body, .arg = &(const struct other)                  \
        {                                                                                                              \
            .name = name_, .make = make_, .call = call_, .model = model_                                               \
        }                                                                                                              \
    }

const struct scatter_case changed_cases[] = {
    CHANGED_CASE("waited", waited, NULL, is_spare),
    CHANGED_CASE("there", there, call_on_third, is_spare),
    CHANGED_CASE("on-follower", on_follower, call_on_side, is_spare),
    CHANGED_CASE("follower-waits", follower_waits, call_on_side, is_spare),
    CHANGED_CASE("recorded-again", recorded_again, call_on_side, is_spare),
    CHANGED_CASE("legacy-waits", legacy_waits, call_on_blocking, is_spare),
    CHANGED_CASE("legacy-waits-follower", legacy_waits_follower, call_on_blocking, is_spare),
    CHANGED_CASE("legacy-records", legacy_records, call_on_blocking, is_spare),
    CHANGED_CASE("waits-for-legacy", waits_for_legacy, call_on_legacy, is_spare),
    CHANGED_CASE("per-thread-waits", per_thread_waits_for_legacy, call_on_legacy, is_spare),
    CHANGED_CASE("gathered", gathered, call_on_side, is_gathered_turned),
    {.name = NULL}};
