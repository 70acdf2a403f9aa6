/* SPDX-License-Identifier: Apache-2.0 */
/* One thread per stream that ever had work: takes operations in order, waits for what they follow, runs them. */
#include "sg.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* At exit nothing new starts; the process ends under us. */
static void park_if_exiting_locked(void)
{
    if (!sg_exiting())
        return;
    sg_release();
    for (;;)
        pause();
}

/* Other work that still gets done means that the one we wait for may only be slow. */
static int64_t wait_deps_locked(struct sg_stream *s, struct sg_op *op)
{
    int64_t t = 0;

    for (unsigned i = 0; i < op->ndeps; i++) {
        uint64_t progress = sg_progress;
        int64_t period = (int64_t)(sg_cfg.hang_seconds * 1e9);
        while (!sg_fence_wait_locked(op->deps[i], &s->cv, sg_now() + period)) {
            if (progress == sg_progress)
                sg_report_hang_locked();
            progress = sg_progress;
        }
        if (op->deps[i]->t > t)
            t = op->deps[i]->t;
    }
    return t;
}

static bool runs_in_poisoned_context(const struct sg_op *op)
{
    return op->kind == SG_OP_ORDER || op->kind == SG_OP_FREE || (op->kind == SG_OP_HOST && op->u.host.callback);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Waits until the operation may begin; when that is. */
static int64_t await_begin_locked(struct sg_stream *s, struct sg_op *op)
{
    int64_t start = wait_deps_locked(s, op);

    start = later(start, sg_connection_turn_locked(s, op));
    park_if_exiting_locked();
    return later(start, later(op->enqueued, s->vtime));
}

static void run_head_locked(struct sg_stream *s)
{
    struct sg_op *op = s->head;
    int64_t start = await_begin_locked(s, op), t;
    CUresult rc;
    bool runs;

    rc = s->ctx->sticky ? s->ctx->sticky : sg_ranges_check_locked(op, true);
    if (rc && !s->ctx->sticky)
        s->ctx->sticky = rc;
    t = start;
    runs = !rc || runs_in_poisoned_context(op);
    sg_race_start_locked(s, op, runs);
    if (op->kind != SG_OP_WAIT)
        sg_connection_begun_locked(op, start);
    if (runs) {
        sg_release();
        t = sg_op_execute(s, op, start);
        sg_acquire();
    }
    sg_connection_begun_locked(op, t);
    sg_race_done_locked(s, op, runs);
    sg_ranges_unpin_locked(op);
    if (op->kind == SG_OP_FREE) {
        if (!op->u.mem->dead)
            sg_mem_retire_locked(op->u.mem);
        sg_mem_unpin_locked(op->u.mem);
    }
    s->vtime = t;
    s->head = op->next;
    if (!s->head) {
        s->tail = NULL;
        sg_connection_idle_locked(s);
    }
    sg_progress++;
    sg_entry_done_locked(s, op);
    sg_fence_done_locked(op->fence, t);
    sg_op_free_locked(op);
}

static void *work(void *arg)
{
    struct sg_stream *s = arg;

    sg_acquire();
    for (;;) {
        while (!s->head && !s->destroyed)
            pthread_cond_wait(&s->cv, &sg_lock);
        if (!s->head)
            break;
        run_head_locked(s);
    }
    sg_stream_free_locked(s);
    sg_release();
    return NULL;
}

/* Signals are the application's threads' business. */
void sg_worker_start_locked(struct sg_stream *s)
{
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t thread;

    if (s->has_worker)
        return;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, &attr, work, s)) {
        sg_misuse("no thread for stream %p", (void *)s->handle);
        abort();
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    s->has_worker = true;
}
