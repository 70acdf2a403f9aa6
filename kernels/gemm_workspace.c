/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"

#include <pthread.h>
#include <stdlib.h>

struct given {
    cublasHandle_t handle;
    struct slr_extent at;
    pthread_t by; /* the thread that has given the latest one */
    bool fresh;   /* no GEMM has come since, and all are looked at */
    bool usual;   /* it was so at the GEMM before */
    bool shared;  /* another thread has made a GEMM */
    bool taken;
    struct given *next;
};

enum { BUCKETS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;
static struct given *given[BUCKETS];
_Atomic bool slr_workspaces;
static _Atomic bool lost; /* a handle's could not be noted */

/* Under the lock. Where the handle's entry is linked, or where a new one is to be. */
static struct given **find_handle(cublasHandle_t handle)
{
    struct given **at = &given[(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 58];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}
_Static_assert(BUCKETS == 1 << (64 - 58), "find() yields an index");

void slr_workspace_set(cublasHandle_t handle, const void *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    struct given **at = find_handle(handle);
    if (!*at && (*at = calloc(1, sizeof **at)) != NULL)
        (*at)->handle = handle;
    if (*at) {
        (*at)->at = (struct slr_extent){(uintptr_t)p, (uintptr_t)p + bytes};
        (*at)->by = pthread_self();
        (*at)->fresh = atomic_load(&slr_gemm_watch) & SLR_GEMM_WATCH_HANDLES;
    } else {
        atomic_store(&lost, true);
    }
    atomic_store(&slr_workspaces, true);
    pthread_mutex_unlock(&lock);
}

/* A program that sets the stream for each call sets the workspace next: the entry stays. */
void slr_workspace_reset(cublasHandle_t handle)
{
    if (!atomic_load(&slr_workspaces))
        return;
    pthread_mutex_lock(&lock);
    struct given *g = *find_handle(handle);
    if (g)
        g->at = (struct slr_extent){0};
    pthread_mutex_unlock(&lock);
}

void slr_workspace_forget(cublasHandle_t handle)
{
    if (!atomic_load(&slr_workspaces))
        return;
    pthread_mutex_lock(&lock);
    struct given **at = find_handle(handle), *g = *at;
    if (g)
        *at = g->next;
    pthread_mutex_unlock(&lock);
    free(g);
}

void slr_workspace_entered(cublasHandle_t handle)
{
    struct given *g;
    pthread_mutex_lock(&lock);
    while ((g = *find_handle(handle)) != NULL && g->taken)
        pthread_cond_wait(&returned, &lock);
    if (g)
        g->shared |= !pthread_equal(g->by, pthread_self());
    pthread_mutex_unlock(&lock);
}

void slr_workspace_left(cublasHandle_t handle)
{
    pthread_mutex_lock(&lock);
    struct given *g = *find_handle(handle);
    if (g) {
        g->usual = g->fresh;
        g->fresh = false;
    }
    pthread_mutex_unlock(&lock);
}

/* Other threads would use what is meant for this one: those that come to a hooked GEMM wait, and the others have to be
 * kept out. So the handle is only taken where this thread has given it a workspace since the GEMM before, and no other
 * one has made a GEMM with it. Both are known because all GEMMs are looked at from the first time on that a handle is
 * asked for: who is in one unseen has been there since before this thread's latest change of the handle, which the
 * program has to answer for ("extreme care needs to be taken when the handle configuration is changed", cuBLAS, Thread
 * Safety). Other calls with the handle are not seen, so to change it has to be the thread's habit, as it is PyTorch's. */
bool slr_workspace_take(cublasHandle_t handle)
{
    atomic_fetch_or(&slr_gemm_watch, SLR_GEMM_WATCH_HANDLES);
    pthread_mutex_lock(&lock);
    struct given *g = *find_handle(handle);
    const bool own = g && g->fresh && g->usual && !g->shared;
    if (own)
        g->taken = true;
    pthread_mutex_unlock(&lock);
    return own;
}

void slr_workspace_return(cublasHandle_t handle)
{
    pthread_mutex_lock(&lock);
    struct given *g = *find_handle(handle);
    if (g)
        g->taken = false;
    pthread_cond_broadcast(&returned);
    pthread_mutex_unlock(&lock);
}

struct slr_extent slr_workspace_of(cublasHandle_t handle)
{
    struct slr_extent at = {0};
    if (!atomic_load(&slr_workspaces))
        return at;
    if (atomic_load(&lost))
        return (struct slr_extent){0, UINTPTR_MAX};
    pthread_mutex_lock(&lock);
    const struct given *g = *find_handle(handle);
    if (g)
        at = g->at;
    pthread_mutex_unlock(&lock);
    return at;
}
