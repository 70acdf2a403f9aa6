/* SPDX-License-Identifier: Apache-2.0 */
#include "dead_other.h"

#include <signal.h>
#include "tests/programs/ranks.h"

#define LOOK_US 10000

static bool is_stuck(const struct dead_other *o)
{
    const int64_t struck = atomic_load(&o->page->struck_us), now = dead_now();
    return o->page->plan.signal == SIGKILL && struck && now - struck > DEAD_PATIENCE_US && o->called &&
           now - o->called > DEAD_PATIENCE_US;
}

static void *abort_when_stuck(void *arg)
{
    struct dead_other *o = arg;
    for (bool done = false; !done; dead_sleep(LOOK_US)) {
        pthread_mutex_lock(&o->lock);
        o->freed = is_stuck(o);
        done = o->freed || o->over;
        pthread_mutex_unlock(&o->lock);
    }
    const int64_t begin = dead_now();
    if (o->freed)
        ncclCommAbort(o->comm);
    o->end_us = dead_now() - begin;
    return NULL;
}

void dead_other_begin(struct dead_other *o, const struct dead_page *page, ncclComm_t comm)
{
    *o = (struct dead_other){.page = page, .comm = comm, .begun = true};
    pthread_mutex_init(&o->lock, NULL);
    CHECK(pthread_create(&o->thread, NULL, abort_when_stuck, o) == 0, "no thread");
}

void dead_other_end(struct dead_other *o)
{
    if (!o->begun)
        return;
    pthread_mutex_lock(&o->lock);
    o->over = true;
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
}

void dead_calls_begin(struct dead_other *o)
{
    if (!o->begun)
        return;
    pthread_mutex_lock(&o->lock);
    o->called = dead_now();
    pthread_mutex_unlock(&o->lock);
}

bool dead_calls_end(struct dead_other *o)
{
    if (!o->begun)
        return true;
    pthread_mutex_lock(&o->lock);
    o->called = 0;
    const bool mine = !o->freed;
    pthread_mutex_unlock(&o->lock);
    return mine;
}
