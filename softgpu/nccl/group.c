/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: per thread, everything is collected until the outermost ncclGroupEnd. */
#include "comm.h"
#include "profiler.h"

#include <stdlib.h>

struct group {
    int depth;
    ncclResult_t error;
    struct job *jobs, **jobs_end;
    struct op *ops, **ops_end;
    int kind; /* of its communicators; 0: not known yet */
};
static _Thread_local struct group group;

static ncclResult_t finish_job(struct job *job)
{
    ncclResult_t rc = job->rc;
    if (job->comm)
        comm_made(job);
    comm_put(job->comm);
    comm_put(job->parent);
    free(job->excluded);
    free(job);
    return rc;
}

static void *job_thread(void *arg)
{
    struct job *job = arg;
    job->rc = job->run(job);
    return NULL;
}

/* One alone: on the caller's thread, as in NCCL. */
static ncclResult_t run_job(struct job *job)
{
    job_thread(job);
    return finish_job(job);
}

/* The jobs of one group wait for each other: each gets a thread. */
static ncclResult_t run_jobs(struct job *jobs)
{
    ncclResult_t rc = ncclSuccess;
    if (jobs && !jobs->next)
        return run_job(jobs);
    struct job *joinable = NULL;
    for (struct job *job = jobs, *next; job; job = next) {
        next = job->next;
        if (pthread_create(&job->thread, NULL, job_thread, job)) {
            job->rc = ncclSystemError;
            ncclResult_t one = finish_job(job);
            rc = rc == ncclSuccess ? one : rc;
        } else {
            job->next = joinable;
            joinable = job;
        }
    }
    for (struct job *job = joinable, *next; job; job = next) {
        next = job->next;
        pthread_join(job->thread, NULL);
        ncclResult_t one = finish_job(job);
        rc = rc == ncclSuccess ? one : rc;
    }
    return rc;
}

/* Takes the operations of the first one's communicator out of the list, in order. */
static struct op *take_one_comm(struct op **ops)
{
    struct op *taken = NULL, **end = &taken;
    struct ncclComm *comm = (*ops)->comm;
    for (struct op **at = ops; *at;) {
        if ((*at)->comm != comm) {
            at = &(*at)->next;
            continue;
        }
        *end = *at;
        *at = (*at)->next;
        end = &(*end)->next;
        *end = NULL;
    }
    return taken;
}

static ncclResult_t launch_ops(struct op *ops)
{
    ncclResult_t rc = ncclSuccess;
    profiler_launching();
    connect_announce(ops);
    while (ops) {
        struct op *one = take_one_comm(&ops);
        if (rc == ncclSuccess)
            rc = plan_launch(one->comm, one);
        else
            ops_free(one);
    }
    profiler_launched();
    return rc;
}

ncclResult_t group_run(struct job *jobs, struct op *ops)
{
    ncclResult_t rc = run_jobs(jobs);
    if (rc != ncclSuccess) {
        ops_free(ops);
        return rc;
    }
    return launch_ops(ops);
}

enum { BLOCKING = 1, NOT_BLOCKING };

ncclResult_t group_is_of(const struct ncclComm *comm)
{
    if (!comm) /* a window: of either */
        return ncclSuccess;
    const int kind = comm->blocking ? BLOCKING : NOT_BLOCKING;
    if (group.depth && group.kind && group.kind != kind)
        return nccl_warn(ncclInvalidArgument,
                         "Blocking and nonblocking communicators are not allowed in the same group.");
    group.kind = group.depth ? kind : 0;
    return ncclSuccess;
}

static void drop_jobs(struct job *jobs, ncclResult_t rc)
{
    for (struct job *next; jobs; jobs = next) {
        next = jobs->next;
        jobs->rc = rc;
        if (jobs->turn_over)
            jobs->turn_over(jobs);
        finish_job(jobs);
    }
}

ncclResult_t group_submit_job(struct job *job)
{
    ncclResult_t rc = group_is_of(job->tells);
    if (rc != ncclSuccess) {
        drop_jobs(job, rc);
        return rc;
    }
    if (!group.depth)
        return job->tells && !job->tells->blocking ? later_start(job, NULL) : run_job(job);
    if (!group.jobs)
        group.jobs_end = &group.jobs;
    *group.jobs_end = job;
    group.jobs_end = &job->next;
    return ncclSuccess;
}

ncclResult_t group_submit_op(const struct op *op)
{
    ncclResult_t rc = group_is_of(op->comm);
    if (rc != ncclSuccess) {
        comm_put(op->comm);
        return rc;
    }
    struct op *copy = malloc(sizeof *copy);
    if (!copy) {
        comm_put(op->comm);
        return ncclSystemError;
    }
    *copy = *op;
    copy->next = NULL;
    profiler_call(copy, group.depth > 0);
    if (!group.depth)
        return copy->comm->blocking ? launch_ops(copy) : later_start(NULL, copy);
    if (!group.ops)
        group.ops_end = &group.ops;
    *group.ops_end = copy;
    group.ops_end = &copy->next;
    return ncclSuccess;
}

ncclResult_t group_note_error(ncclResult_t rc)
{
    if (group.depth && rc != ncclSuccess && rc != ncclInProgress && group.error == ncclSuccess)
        group.error = rc;
    return rc;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGroupStart);

/* Leaves one level; at the outermost one hands over what was collected. */
static int close_level(struct group *out)
{
    if (--group.depth)
        return 0;
    *out = group;
    group = (struct group){0};
    return 1;
}

ncclResult_t ncclGroupEnd(void)
{
    struct group g;
    if (!group.depth)
        return nccl_warn(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (!close_level(&g))
        return ncclSuccess;
    if (g.error != ncclSuccess) {
        drop_jobs(g.jobs, g.error);
        ops_free(g.ops);
        return g.error;
    }
    return g.kind == NOT_BLOCKING ? later_start(g.jobs, g.ops) : group_run(g.jobs, g.ops);
}
NCCL_ALIAS(ncclGroupEnd);

/* The estimate is what the links of an NVLink 4 GPU (450 GB/s per direction) need for the bytes to be received. */
#define NOMINAL_BYTES_PER_US 450e3
#define NOMINAL_LAUNCH_US 10.0

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    struct group g;
    if (!group.depth)
        return nccl_warn(ncclInvalidUsage, "ncclGroupSimulateEnd: not in a group call.");
    if (info && info->magic != 0x74685283)
        return nccl_warn(ncclInvalidArgument, "ncclSimInfo_t was not made with NCCL_SIM_INFO_INITIALIZER");
    if (!close_level(&g))
        return ncclSuccess;
    double us = NOMINAL_LAUNCH_US;
    for (const struct op *op = g.ops; op; op = op->next)
        us += op_link_bytes(op) / NOMINAL_BYTES_PER_US;
    drop_jobs(g.jobs, ncclInvalidUsage);
    ops_free(g.ops);
    if (info && g.error == ncclSuccess)
        info->estimatedTime = (float)us;
    return g.error;
}
NCCL_ALIAS(ncclGroupSimulateEnd);
