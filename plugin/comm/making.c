/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/making.h"

#include <pthread.h>
#include <stdatomic.h>
#include "base/wait.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_making *list;
static _Atomic unsigned count; /* so that calls on others look at nothing else */

void slr_making_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slr_making_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void slr_making_add(struct slr_making *m)
{
    slr_making_lock();
    m->next = list;
    list = m;
    atomic_fetch_add(&count, 1);
    slr_making_unlock();
}

void slr_making_remove(struct slr_making *m)
{
    struct slr_making **at = &list;
    while (*at && *at != m)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = m->next;
    atomic_fetch_sub(&count, 1);
}

/* By its own handle, or as the one from which others are made. */
static bool tells(const struct slr_making *m, ncclComm_t comm)
{
    return !m->ended && (m->comm == comm || m->parent == comm);
}

/* NCCL has made it, whether slipring has seen that or not. */
static bool is_made(const struct slr_making *m, ncclComm_t comm)
{
    ncclResult_t now = ncclInProgress;
    if (m->ended || m->comm != comm)
        return false;
    if (m->agrees)
        return true;
    slr_guard++;
    const ncclResult_t r = slr_real.ncclCommGetAsyncError(comm, &now);
    slr_guard--;
    return r == ncclSuccess && now == ncclSuccess;
}

static bool any(bool (*what)(const struct slr_making *m, ncclComm_t comm), ncclComm_t comm)
{
    if (!comm || atomic_load_explicit(&count, memory_order_acquire) == 0)
        return false;
    slr_making_lock();
    const struct slr_making *m = list;
    while (m && !what(m, comm))
        m = m->next;
    slr_making_unlock();
    return m != NULL;
}

bool slr_making_now(ncclComm_t comm)
{
    return any(tells, comm);
}

/* What has been made does not end with its parent. */
void slr_making_end(ncclComm_t comm)
{
    if (!comm || atomic_load_explicit(&count, memory_order_acquire) == 0)
        return;
    slr_making_lock();
    for (struct slr_making *m = list; m; m = m->next)
        if (m->comm == comm || (m->parent == comm && !m->agrees))
            m->ended = true;
    slr_making_unlock();
}

void slr_making_await(ncclComm_t comm)
{
    while (any(is_made, comm))
        slr_sleep_ms(1);
}
