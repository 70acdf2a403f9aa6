/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of one operation: what events, stream order and host synchronisation all come down to. */
#include "sg.h"
#include <stdlib.h>
#include <time.h>

struct sg_fence *sg_fence_new_locked(void)
{
    struct sg_fence *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    f->refs = 1;
    return f;
}

struct sg_fence *sg_fence_ref_locked(struct sg_fence *f)
{
    if (f)
        f->refs++;
    return f;
}

void sg_fence_put_locked(struct sg_fence *f)
{
    if (f && --f->refs == 0) {
        sg_clock_free(&f->clock);
        free(f);
    }
}

void sg_fence_done_locked(struct sg_fence *f, int64_t t)
{
    f->done = true;
    f->t = t;
    f->stream = NULL;
    for (struct sg_waiter *w = f->waiters; w; w = w->next)
        pthread_cond_signal(w->cv);
    sg_objects_fence_done_locked();
}

bool sg_fence_wait_locked(struct sg_fence *f, pthread_cond_t *cv, int64_t deadline)
{
    struct sg_waiter w = {cv, f->waiters}, **p;
    struct timespec ts = {deadline / 1000000000, deadline % 1000000000};

    f->waiters = &w;
    while (!f->done && !(deadline && sg_now() >= deadline)) {
        if (deadline)
            pthread_cond_clockwait(cv, &sg_lock, CLOCK_MONOTONIC, &ts);
        else
            pthread_cond_wait(cv, &sg_lock);
    }
    for (p = &f->waiters; *p != &w;)
        p = &(*p)->next;
    *p = w.next;
    return f->done;
}

void sg_fence_sync_locked(struct sg_fence *f)
{
    pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
    sg_race_saw_fence_locked(f && f->done ? f : NULL);
    if (!f || f->done)
        return;
    sg_fence_ref_locked(f);
    sg_fence_wait_locked(f, &cv, 0);
    sg_race_saw_fence_locked(f);
    sg_fence_put_locked(f);
    pthread_cond_destroy(&cv);
}
