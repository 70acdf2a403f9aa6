/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator ends while another thread looks at what a GEMM has left for its reduce-scatter, which does not come. */
#include <pthread.h>

#include "scatter.h"

static void *follows(void *one)
{
    struct world *w = one;
    CUDA(cudaSetDevice(rank_device(w->rank)));
    sleep_ms(
        50); /* then it is being taken apart: SOFTGPU_FAIL makes that take longer, and what follows here longer still */
    CUDA(cudaStreamWaitEvent(w->side, w->event[1], 0));
    return NULL;
}

/* arg: ncclCommDestroy or ncclCommAbort. */
static void ends(struct world *w, const struct scatter_case *c)
{
    ncclResult_t (*const *end)(ncclComm_t) = c->arg;
    struct world other = *w;
    struct site t;
    pthread_t thread;
    NCCL(ncclCommSplit(w->comm, 0, w->rank, &other.comm, NULL));
    site_open(&t, &other, &usual);
    site_play(&t, 6, c->name);
    nccl_connects(w->comm, w->s); /* no rank is in a call any more */
    CUDA(cudaStreamSynchronize(w->s));
    site_gemm(&t, w->s);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CHECK(pthread_create(&thread, NULL, follows, w) == 0, "no thread");
    NCCL((*end)(other.comm));
    pthread_join(thread, NULL);
    CUDA(cudaDeviceSynchronize());
    site_close(&t);
}

struct late_gemm {
    struct world *w;
    struct site *t;
};

static void *multiplies(void *one)
{
    const struct late_gemm *g = one;
    CUDA(cudaSetDevice(rank_device(g->w->rank)));
    sleep_ms(20);
    site_gemm(g->t, g->w->third);
    return NULL;
}

/* The next GEMM is computed in parts, for the first time, and makes the events behind them. */
static void learn(struct site *t)
{
    struct turn u;
    turn_open(&u, t);
    turn_load(&u, t->w->s);
    for (int i = 0; i < 2; i++)
        turn_play(&u);
    CUDA(cudaStreamSynchronize(t->w->s));
    turn_close(&u);
}

/* The GEMM itself comes while the communicator waits for its last operation, and takes longer than that. */
static void ends_in_gemm(struct world *w, const struct scatter_case *c)
{
    (void)c;
    struct world other = *w;
    struct site t;
    struct late_gemm late = {w, &t};
    pthread_t thread;
    NCCL(ncclCommSplit(w->comm, 0, w->rank, &other.comm, NULL));
    site_open(&t, &other, &usual);
    learn(&t);
    nccl_connects(w->comm, w->s);
    CUDA(cudaStreamSynchronize(w->s));
    hold(w->s, 60);
    site_call(&t, w->s);
    CHECK(pthread_create(&thread, NULL, multiplies, &late) == 0, "no thread");
    NCCL(ncclCommDestroy(other.comm));
    pthread_join(thread, NULL);
    CUDA(cudaEventRecord(w->event[1], w->s));
    CUDA(cudaDeviceSynchronize());
    site_close(&t);
}

static ncclResult_t (*const destroy)(ncclComm_t) = ncclCommDestroy;
static ncclResult_t (*const abort_it)(ncclComm_t) = ncclCommAbort;

const struct scatter_case end_cases[] = {{.name = "end-destroyed", .list = "end", .body = ends, .arg = &destroy},
                                         {.name = "end-aborted", .list = "end", .body = ends, .arg = &abort_it},
                                         {.name = "end-in-gemm", .list = "end", .body = ends_in_gemm},
                                         {.name = NULL}};
