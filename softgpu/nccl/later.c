/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that go on when the call has returned (comm.h). */
#include "comm.h"

#include <stdlib.h>
#include <time.h>

#define LATER_US 500

struct later {
    struct job *jobs;
    struct op *ops;
    ncclResult_t (*what)(struct ncclComm *comm); /* NULL: those */
    CUcontext ctx;                               /* the caller's */
    unsigned count;
    struct ncclComm *comms[]; /* those whose state tells, each once, with a reference */
};

static void add(struct later *l, struct ncclComm *comm)
{
    unsigned i = 0;
    while (i < l->count && l->comms[i] != comm)
        i++;
    if (comm && i == l->count)
        l->comms[l->count++] = comm_get(comm);
}

static struct later *later_new(struct job *jobs, struct op *ops, unsigned room)
{
    for (const struct job *job = jobs; job; job = job->next)
        room++;
    for (const struct op *op = ops; op; op = op->next)
        room++;
    struct later *l = calloc(1, sizeof *l + room * sizeof *l->comms);
    if (!l)
        return NULL;
    l->jobs = jobs;
    l->ops = ops;
    softdrv_get()->cuCtxGetCurrent(&l->ctx);
    for (const struct job *job = jobs; job; job = job->next)
        add(l, job->tells);
    for (const struct op *op = ops; op; op = op->next)
        add(l, op->comm);
    return l;
}

static void begin(struct later *l)
{
    for (unsigned i = 0; i < l->count; i++) {
        struct ncclComm *c = l->comms[i];
        pthread_mutex_lock(&c->lock);
        c->later++;
        c->group = l;
        atomic_store(&c->async, ncclInProgress);
        pthread_mutex_unlock(&c->lock);
    }
}

static void end_one(struct ncclComm *c, ncclResult_t rc)
{
    pthread_mutex_lock(&c->lock);
    if (c->error == ncclSuccess)
        c->error = rc;
    c->group = NULL;
    atomic_store(&c->unjoined, 1);
    if (--c->later == 0)
        atomic_store(&c->async, c->error);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    comm_put(c);
}

static void end(struct later *l, ncclResult_t rc)
{
    for (unsigned i = 0; i < l->count; i++)
        end_one(l->comms[i], rc);
    free(l);
}

static void pause_for(const char *setting, long us)
{
    const char *value = getenv(setting);
    us = value ? strtol(value, NULL, 10) : us;
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void *go_on(void *arg)
{
    struct later *l = arg;
    pause_for("SOFTGPU_NCCL_LATER_US", LATER_US);
    softdrv_get()->cuCtxSetCurrent(l->ctx);
    end(l, l->what ? l->what(l->comms[0]) : group_run(l->jobs, l->ops));
    return NULL;
}

/* NCCL makes the thread joinable; who is not asked any more is not joined, so here it is not. */
static ncclResult_t start(struct later *l)
{
    pthread_t thread;
    begin(l);
    if (pthread_create(&thread, NULL, go_on, l)) {
        ops_free(l->ops);
        end(l, ncclSystemError);
        return ncclSystemError;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

ncclResult_t later_start(struct job *jobs, struct op *ops)
{
    if (!jobs && !ops)
        return ncclSuccess;
    struct later *l = later_new(jobs, ops, 0);
    return l ? start(l) : ncclSystemError;
}

ncclResult_t later_call(struct ncclComm *comm, ncclResult_t (*what)(struct ncclComm *comm))
{
    struct later *l = later_new(NULL, NULL, 1);
    if (!l)
        return ncclSystemError;
    l->what = what;
    add(l, comm);
    return start(l);
}

void later_abort(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->group) /* NCCL ends all of the group's jobs */
        for (unsigned i = 0; i < comm->group->count; i++)
            atomic_store(&comm->group->comms[i]->abort, 1);
    while (comm->later)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

ncclResult_t later_ask(struct ncclComm *comm)
{
    ncclResult_t rc = (ncclResult_t)atomic_load(&comm->async);
    if (rc == ncclInProgress || !atomic_load(&comm->unjoined))
        return rc;
    if (atomic_fetch_add(&comm->joining, 1))
        nccl_misuse(rc, "two threads at once ask a communicator whose operation has just ended: NCCL frees its record "
                        "twice");
    pause_for("SOFTGPU_NCCL_JOIN_US", 0);
    atomic_store(&comm->unjoined, 0);
    atomic_fetch_sub(&comm->joining, 1);
    return rc;
}
