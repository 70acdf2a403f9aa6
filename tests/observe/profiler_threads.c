/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads: those of an application call on communicators of their own, and each has a thread that stands for
 * NCCL's proxy and reports the channels, behind it, as fast as it can. */
#include "profiler_driver.h"

#include <pthread.h>
#include <stdatomic.h>

#define PAIRS 4
#define ROUNDS 20000
#define CHANNELS 2
#define BEHIND 64 /* operations between a caller and its proxy: all pairs together stay below the pool's size */

struct pair {
    void *comm;
    void *queue[BEHIND];
    _Atomic unsigned put, taken;
    pthread_t caller, proxy;
};

static void *caller(void *arg)
{
    struct pair *p = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (i - atomic_load(&p->taken) >= BEHIND)
            sched_yield();
        void *op = op_start(p->comm, "AllReduce", CHANNELS, 64);
        CHECK(op);
        p->queue[i % BEHIND] = op;
        if (i % 2) /* its channels may be over before its own stop */
            atomic_store(&p->put, i + 1);
        v5->stop_event(op);
        atomic_store(&p->put, i + 1);
    }
    return NULL;
}

static void *proxy(void *arg)
{
    struct pair *p = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *ch[CHANNELS];
        while (atomic_load(&p->put) <= i)
            sched_yield();
        for (int c = 0; c < CHANNELS; c++)
            ch[c] = channel_start(p->comm, p->queue[i % BEHIND], c, 1000 + (uint64_t)c);
        for (int c = 0; c < CHANNELS; c++)
            channel_stop(ch[c], 1500 + (uint64_t)c);
        atomic_store(&p->taken, i + 1);
    }
    return NULL;
}

/* Opened and ended again and again beside the others, with operations that are still open. */
static void *passers_by(void *arg)
{
    for (uint64_t i = 0; i < 200; i++) {
        void *c = comm_open(0x7000, 2, 0), *op = op_start(c, "Broadcast", 1, 64), *ch = channel_start(c, op, 0, 100);
        v5->finalize(c);
        channel_stop(ch, 200);
        v5->stop_event(op);
    }
    return arg;
}

void threads(void)
{
    static struct pair pairs[PAIRS];
    pthread_t other;
    for (int i = 0; i < PAIRS; i++) {
        pairs[i].comm = comm_open(0x600 + (uint64_t)i, 2, 0);
        CHECK(pthread_create(&pairs[i].caller, NULL, caller, &pairs[i]) == 0);
        CHECK(pthread_create(&pairs[i].proxy, NULL, proxy, &pairs[i]) == 0);
    }
    CHECK(pthread_create(&other, NULL, passers_by, NULL) == 0);
    pthread_join(other, NULL);
    for (int i = 0; i < PAIRS; i++) {
        pthread_join(pairs[i].caller, NULL);
        pthread_join(pairs[i].proxy, NULL);
        v5->finalize(pairs[i].comm);
    }
    expect("\"func\":\"AllReduce\",.*\"calls\":20000,\"timed\":20000,\"min_ns\":501,\"mean_ns\":501,\"max_ns\":501",
           PAIRS);
    expect("\"func\":\"Broadcast\",.*\"calls\":1,", 200);
    expect("nccl_lost", 0);
}

/* For callgrind: N operations of two channels. */
void cost(void)
{
    void *c = comm_open(0x56, 2, 0);
    for (long n = atol(getenv("COST_OPERATIONS")); n > 0; n--)
        op_whole(c, "AllReduce", 2, 64);
    v5->finalize(c);
}
