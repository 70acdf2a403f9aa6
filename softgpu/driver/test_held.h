/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what waits and what goes on while a stream is held. */
#ifndef SOFTGPU_TEST_HELD_H
#define SOFTGPU_TEST_HELD_H

#include "test_util.h"
#include <pthread.h>

#define HOLDS_MS 100 /* what still waits after that long is held */

static uint32_t *held_word;
static CUdeviceptr held_at;

/* Everything later on the stream waits until let_go(). The word belongs to the context that is current at the first
 * call. */
static inline void hold(CUstream s)
{
    if (!held_word)
        held_word = flag_word(&held_at);
    set_flag(held_word, 0);
    OK(cuStreamWaitValue32(s, held_at, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static inline void let_go(void)
{
    set_flag(held_word, 1);
}

/* A call made by a thread of its own, in `ctx`. */
struct call {
    void (*fn)(void);
    CUcontext ctx;
    volatile int done;
    pthread_t thread;
};

static inline void *make_call(void *arg)
{
    struct call *c = arg;
    OK(cuCtxSetCurrent(c->ctx));
    c->fn();
    post(&c->done, 1);
    return NULL;
}

static inline void begin_call(struct call *c, CUcontext ctx, void (*fn)(void))
{
    *c = (struct call){.fn = fn, .ctx = ctx};
    cr_assert_eq(pthread_create(&c->thread, NULL, make_call, c), 0);
}

static inline void end_call(struct call *c)
{
    await(&c->done, 1);
    pthread_join(c->thread, NULL);
}

/* The call returns although the stream is held. */
static inline void expect_goes_on(CUcontext ctx, void (*fn)(void))
{
    struct call c;
    begin_call(&c, ctx, fn);
    end_call(&c);
}

/* The call is still waiting when the stream is let go, and returns then. */
static inline void expect_waits(CUcontext ctx, void (*fn)(void))
{
    struct call c;
    begin_call(&c, ctx, fn);
    usleep(HOLDS_MS * 1000);
    cr_assert_eq(__atomic_load_n(&c.done, __ATOMIC_ACQUIRE), 0, "the call did not wait");
    let_go();
    end_call(&c);
}

#endif
