/* SPDX-License-Identifier: Apache-2.0 */
/* What reads the result, or what has made it, right after the call: everything that could notice that it is not there
 * yet. */
#include <pthread.h>
#include <string.h>

#include "scatter_wrong.h"

enum { TURNS = 9 };

struct look {
    const char *name;
    void (*look)(struct turn *u); /* leaves the result in `out` */
};

static size_t part(const struct turn *u)
{
    return u->t->got * u->t->elem;
}

static void to_host(struct turn *u, const void *from, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(u->out, from, part(u), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void copy_sync(struct turn *u)
{
    CUDA(cudaStreamSynchronize(u->t->w->s));
    CUDA(cudaMemcpy(u->out, u->t->recv, part(u), cudaMemcpyDeviceToHost));
}

static void copy_async(struct turn *u)
{
    to_host(u, u->t->recv, u->t->w->s);
}

static void event_third(struct turn *u)
{
    edge(u->t->w, 0, u->t->w->s, u->t->w->third);
    to_host(u, u->t->recv, u->t->w->third);
}

static void event_chain(struct turn *u)
{
    struct world *w = u->t->w;
    edge(w, 0, w->s, w->side);
    edge(w, 1, w->side, w->third);
    to_host(u, u->t->recv, w->third);
}

static void on_third(struct turn *u)
{
    to_host(u, u->t->recv, u->t->w->third);
}

static void event_sync(struct turn *u)
{
    await_event(u);
    on_third(u);
}

static void event_poll(struct turn *u)
{
    poll_event(u);
    on_third(u);
}

static void stream_poll(struct turn *u)
{
    poll_stream(u);
    on_third(u);
}

static void device_sync(struct turn *u)
{
    CUDA(cudaDeviceSynchronize());
    on_third(u);
}

static void *poll_there(void *one)
{
    struct turn *u = one;
    CUDA(cudaSetDevice(rank_device(u->t->w->rank)));
    event_poll(u);
    return NULL;
}

static void poll_in_thread(struct turn *u)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, poll_there, u) == 0, "no thread");
    pthread_join(thread, NULL);
}

/* A host function sees what the stream has done before it. */
struct seen {
    struct turn *u;
    uint8_t *pinned;
};

static void take(void *one)
{
    const struct seen *s = one;
    memcpy(s->u->out, s->pinned, part(s->u));
}

static void host_function(struct turn *u)
{
    struct world *w = u->t->w;
    struct seen s = {.u = u};
    CUDA(cudaMallocHost((void **)&s.pinned, part(u)));
    CUDA(cudaMemcpyAsync(s.pinned, u->t->recv, part(u), cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaLaunchHostFunc(w->s, take, &s));
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaFreeHost(s.pinned));
}

static void copied_first(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, part(u), cudaMemcpyDeviceToDevice, t->w->s));
    CUDA(cudaMemsetAsync(t->recv, 0, part(u), t->w->s));
    to_host(u, t->scratch, t->w->s);
}

/* The own shard of what was received, and where a gather into `scratch` puts it. */
static size_t own_bytes(const struct site *t)
{
    return t->count * t->elem;
}

static uint8_t *own_received(const struct site *t)
{
    return t->recv + (t->w->all ? (size_t)t->w->rank * own_bytes(t) : 0);
}

static uint8_t *own_gathered(const struct site *t)
{
    return t->scratch + (size_t)t->w->rank * own_bytes(t);
}

/* Of an all-reduce all that the ranks have gathered is what each has received. */
static void look_gathered(struct turn *u)
{
    to_host(u, u->t->w->all ? u->t->scratch : own_gathered(u->t), u->t->w->s);
}

static void gathered(struct turn *u)
{
    struct site *t = u->t;
    NCCL(ncclAllGather(own_received(t), t->scratch, t->count, nccl_type(t->shape.type), t->w->comm, t->w->s));
    look_gathered(u);
}

static void gathered_in_place(struct turn *u)
{
    struct site *t = u->t;
    uint8_t *own = own_gathered(t);
    CUDA(cudaMemcpyAsync(own, own_received(t), own_bytes(t), cudaMemcpyDeviceToDevice, t->w->s));
    NCCL(ncclAllGather(own, t->scratch, t->count, nccl_type(t->shape.type), t->w->comm, t->w->s));
    CUDA(cudaMemsetAsync(t->recv, 0, part(u), t->w->s));
    look_gathered(u);
}

/* C is complete in the program's buffer, also for who reads it on another stream. */
static void c_on_third(struct turn *u)
{
    struct site *t = u->t;
    edge(t->w, 0, t->w->s, t->w->third);
    CUDA(cudaMemcpyAsync(u->out + part(u), t->c, t->all * t->elem, cudaMemcpyDeviceToHost, t->w->third));
    to_host(u, t->recv, t->w->third);
    turn_expect_c(u);
}

/* The program is done with C, and gives it back. */
static void c_freed(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaFree(t->c));
    CUDA(cudaMalloc((void **)&t->c, t->all * t->elem));
    CUDA(cudaMemsetAsync(t->c, 0, t->all * t->elem, t->w->s));
    to_host(u, t->recv, t->w->s);
}

static void recv_new(struct turn *u)
{
    struct site *t = u->t;
    to_host(u, t->recv, t->w->s);
    CUDA(cudaFree(t->recv));
    CUDA(cudaMalloc((void **)&t->recv, part(u)));
}

static void body(struct world *w, const struct scatter_case *c)
{
    const struct look *l = c->arg;
    struct site t;
    struct turn u;
    site_open(&t, w, &usual);
    turn_open(&u, &t);
    for (int i = 0; i < TURNS; i++) {
        turn_load(&u, w->s);
        turn_expect(&u, u.c, 0, t.count, false);
        if (i % 3 == 2 && w->rank == w->nranks - 1)
            sleep_ms(20); /* the others look while this rank has not come */
        site_gemm(&t, w->s);
        site_call(&t, w->s);
        l->look(&u);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
    }
    turn_close(&u);
    site_close(&t);
}

#define LOOK(name_, look_)                                                                                             \
    {                                                                                                                  \
        .name = "look-" name_, .list = "look", .body = body, .arg = &(const struct look)                               \
        {                                                                                                              \
            name_, look_                                                                                               \
        }                                                                                                              \
    }

const struct scatter_case look_cases[] = {LOOK("copy-sync", copy_sync),
                                          LOOK("copy-async", copy_async),
                                          LOOK("event-third", event_third),
                                          LOOK("event-chain", event_chain),
                                          LOOK("event-sync", event_sync),
                                          LOOK("event-poll", event_poll),
                                          LOOK("stream-poll", stream_poll),
                                          LOOK("device-sync", device_sync),
                                          LOOK("poll-in-thread", poll_in_thread),
                                          LOOK("host-function", host_function),
                                          LOOK("copied", copied_first),
                                          LOOK("gathered", gathered),
                                          LOOK("gathered-in-place", gathered_in_place),
                                          LOOK("c-on-third", c_on_third),
                                          LOOK("c-freed", c_freed),
                                          LOOK("recv-new", recv_new),
                                          {.name = NULL}};
