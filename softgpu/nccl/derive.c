/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made from others: split, shrink and grow. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DERIVE_POLL_MS 20

static struct derive_slot *slot_of(struct job *job, int rank)
{
    return &job->parent->block.slots[rank].derive[job->seq & 1];
}

ncclResult_t job_wait_for_rank(struct job *job, int rank, _Atomic uint64_t *word)
{
    struct block *b = &job->parent->block;
    for (;;) {
        uint32_t seen = atomic_load(&block_me(b)->bell);
        int gone = block_rank_gone(b, rank);
        if (atomic_load(word) >= job->seq)
            return ncclSuccess;
        if (gone)
            return nccl_warn(ncclRemoteError, "rank %d died or left while the ranks met", rank);
        if (atomic_load(&job->parent->abort) || (job->comm && atomic_load(&job->comm->abort)))
            return nccl_warn(ncclInternalError, "aborted while the ranks met");
        block_wait(b, seen, DERIVE_POLL_MS);
    }
}

static int takes_part(const struct job *job, int rank)
{
    return !job->excluded || !job->excluded[rank];
}

static int same_group(struct job *job, int rank)
{
    return takes_part(job, rank) && slot_of(job, rank)->color == job->color;
}

/* New ranks are ordered by key, then by rank in the parent. */
static int comes_before(struct job *job, int x, int y)
{
    int kx = slot_of(job, x)->key, ky = slot_of(job, y)->key;
    return kx < ky || (kx == ky && x < y);
}

/* Counts this rank's group and returns the parent's rank of its first member. */
static int find_group(struct job *job)
{
    int me = job->parent->rank, leader = me;
    job->comm->nranks = job->comm->rank = 0;
    for (int r = 0; r < job->parent->nranks; r++) {
        if (!same_group(job, r))
            continue;
        job->comm->nranks++;
        job->comm->rank += r != me && comes_before(job, r, me);
        if (comes_before(job, r, leader))
            leader = r;
    }
    return leader;
}

static ncclResult_t publish_child(struct job *job)
{
    struct derive_slot *mine = slot_of(job, job->parent->rank);
    ncclResult_t rc = block_create(&mine->child);
    if (rc != ncclSuccess)
        return rc;
    atomic_store(&mine->child_seq, job->seq);
    block_ring_all(&job->parent->block);
    return ncclSuccess;
}

void job_wait_for_turn(const struct job *job, _Atomic uint64_t *over)
{
    while (atomic_load(over) + 1 < job->seq && !atomic_load(&job->parent->abort))
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void turn_over(const struct job *job)
{
    uint64_t now = atomic_load(&job->parent->derived);
    while (now < job->seq && !atomic_compare_exchange_weak(&job->parent->derived, &now, job->seq))
        ;
}

static ncclResult_t derive(struct job *job)
{
    struct ncclComm *parent = job->parent;
    struct derive_slot *mine = slot_of(job, parent->rank);
    ncclResult_t rc = ncclSuccess;
    mine->color = job->color;
    mine->key = job->key;
    atomic_store(&block_me(&parent->block)->derive_seq, job->seq);
    block_ring_all(&parent->block);
    /* Ranks without a colour wait as well: it keeps anybody from being two calls ahead (see struct derive_slot). */
    for (int r = 0; r < parent->nranks && rc == ncclSuccess; r++)
        if (takes_part(job, r))
            rc = job_wait_for_rank(job, r, &parent->block.slots[r].derive_seq);
    if (rc != ncclSuccess || !job->comm)
        return rc;
    int leader = find_group(job);
    rc = leader == parent->rank ? publish_child(job) : job_wait_for_rank(job, leader, &slot_of(job, leader)->child_seq);
    return rc == ncclSuccess ? comm_connect(job->comm, &slot_of(job, leader)->child, &job->parent->abort) : rc;
}

static ncclResult_t run_derive(struct job *job)
{
    job_wait_for_turn(job, &job->parent->derived);
    ncclResult_t rc = derive(job);
    turn_over(job);
    return rc;
}

/* A new one on the parent's device, and as that is without a configuration. */
static ncclResult_t new_beside(struct ncclComm **out, struct ncclComm *parent, int nranks, int rank,
                               const ncclConfig_t *config)
{
    const struct softdrv *drv = softdrv_get();
    CUcontext before = NULL;
    drv->cuCtxGetCurrent(&before);
    drv->cuCtxSetCurrent(parent->ctx);
    const ncclResult_t rc = comm_new(out, nranks, rank, config);
    drv->cuCtxSetCurrent(before);
    if (rc == ncclSuccess && !config)
        (*out)->blocking = parent->blocking;
    return rc;
}

/* Takes over the reference to `parent`. */
static ncclResult_t submit(struct job *job, struct ncclComm *parent, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    ncclResult_t rc = ncclSuccess;
    job->parent = parent;
    job->run = run_derive;
    job->turn_over = turn_over;
    job->tells = parent;
    job->user = newcomm; /* NULL until it is made, as in NCCL */
    if (job->color != NCCL_SPLIT_NOCOLOR)
        rc = new_beside(&job->comm, parent, 0, 0, config);
    if (rc != ncclSuccess) {
        comm_put(parent);
        free(job->excluded);
        free(job);
        return rc;
    }
    pthread_mutex_lock(&parent->lock);
    job->seq = ++parent->derivations;
    pthread_mutex_unlock(&parent->lock);
    rc = group_submit_job(job);
    return rc == ncclInProgress ? ncclSuccess : rc; /* NCCL's answer where the parent is not blocking */
}

/* A revoked parent is still good for this. */
static ncclResult_t get_parent(ncclComm_t comm, const char *who, struct ncclComm **parent)
{
    *parent = comm ? comm_get(comm) : NULL;
    if (!*parent)
        return nccl_warn(ncclInvalidArgument, "%s : comm is not a live communicator", who);
    if (later_ask(*parent) != ncclInProgress)
        return ncclSuccess;
    comm_put(*parent);
    return nccl_warn(ncclInvalidArgument, "%s : the communicator's previous operation is not over", who);
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config)
{
    struct ncclComm *parent;
    if (!newcomm)
        return nccl_warn(ncclInvalidArgument, "CommSplit : newcomm argument is NULL");
    *newcomm = NULL;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return nccl_warn(ncclInvalidArgument, "CommSplit : invalid color %d", color);
    ncclResult_t rc = comm_check_config(config);
    if (rc != ncclSuccess || (rc = get_parent(comm, "CommSplit", &parent)) != ncclSuccess)
        return rc;
    struct job *job = calloc(1, sizeof *job);
    if (!job) {
        comm_put(parent);
        return ncclSystemError;
    }
    job->color = color;
    job->key = key;
    return submit(job, parent, newcomm, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    return group_note_error(split(comm, color, key, newcomm, config));
}
NCCL_ALIAS(ncclCommSplit);

static ncclResult_t fill_excluded(struct job *job, const struct ncclComm *parent, const int *list, int count)
{
    job->excluded = calloc((size_t)parent->nranks, 1);
    if (!job->excluded)
        return ncclSystemError;
    for (int i = 0; i < count; i++) {
        if (list[i] < 0 || list[i] >= parent->nranks || list[i] == parent->rank)
            return nccl_warn(ncclInvalidArgument, "CommShrink : rank %d can not be excluded", list[i]);
        job->excluded[list[i]] = 1;
    }
    return ncclSuccess;
}

static ncclResult_t shrink(ncclComm_t comm, const int *list, int count, ncclComm_t *newcomm, const ncclConfig_t *config,
                           int flags)
{
    struct ncclComm *parent;
    if (!newcomm || count < 1 || !list || (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT))
        return nccl_warn(ncclInvalidArgument, "CommShrink : invalid argument");
    *newcomm = NULL;
    ncclResult_t rc = comm_check_config(config);
    if (rc != ncclSuccess || (rc = get_parent(comm, "CommShrink", &parent)) != ncclSuccess)
        return rc;
    struct job *job = calloc(1, sizeof *job);
    rc = job ? fill_excluded(job, parent, list, count) : ncclSystemError;
    if (rc != ncclSuccess) {
        comm_put(parent);
        if (job)
            free(job->excluded);
        free(job);
        return rc;
    }
    if (flags == NCCL_SHRINK_ABORT) { /* what runs on the parent ends */
        atomic_store(&parent->revoked, 1);
        block_ring(&parent->block, parent->rank);
    }
    job->key = parent->rank;
    return submit(job, parent, newcomm, config);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *list, int count, ncclComm_t *newcomm, ncclConfig_t *config, int flags)
{
    return group_note_error(shrink(comm, list, count, newcomm, config, flags));
}
NCCL_ALIAS(ncclCommShrink);

/* ---- grow ----
 *
 * One rank of the parent makes an id, which the program hands to the ranks that join. The parent's other ranks have it
 * from that rank: as in NCCL the first and the last in the call, whether that blocks or not. */

static ncclResult_t offer_id(struct ncclComm *comm, ncclUniqueId *id)
{
    struct rank_slot *mine = block_me(&comm->block);
    if (atomic_load(&mine->grow_seq) > comm->grows)
        return nccl_warn(ncclInvalidUsage, "CommGetUniqueId : the previous id has not been used");
    ncclResult_t rc = block_create(&mine->grow);
    if (rc != ncclSuccess)
        return rc;
    memset(id, 0, sizeof *id);
    memcpy(id, &mine->grow, sizeof mine->grow);
    atomic_store(&mine->grow_seq, comm->grows + 1);
    block_ring_all(&comm->block);
    return ncclSuccess;
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    struct ncclComm *c;
    if (!id)
        return nccl_warn(ncclInvalidArgument, "CommGetUniqueId : out argument is NULL");
    ncclResult_t rc = comm_get_ready(comm, "CommGetUniqueId", &c);
    if (rc != ncclSuccess)
        return rc;
    rc = offer_id(c, id);
    comm_put(c);
    return rc;
}
NCCL_ALIAS(ncclCommGetUniqueId);

/* Whoever of the parent's ranks has made it. */
static ncclResult_t find_id(struct job *job)
{
    struct ncclComm *parent = job->parent;
    for (;;) {
        const uint32_t seen = atomic_load(&block_me(&parent->block)->bell);
        int gone = 0;
        for (int r = 0; r < parent->nranks; r++) {
            if (atomic_load(&parent->block.slots[r].grow_seq) == job->seq) {
                job->id = parent->block.slots[r].grow;
                return ncclSuccess;
            }
            gone |= r != parent->rank && block_rank_gone(&parent->block, r);
        }
        if (gone)
            return nccl_warn(ncclRemoteError, "CommGrow : a rank died or left before there was an id");
        if (atomic_load(&parent->abort) || (job->comm && atomic_load(&job->comm->abort)))
            return nccl_warn(ncclInternalError, "aborted while there was no id");
        block_wait(&parent->block, seen, DERIVE_POLL_MS);
    }
}

static ncclResult_t run_grow(struct job *job)
{
    const ncclResult_t rc = job->id.magic ? ncclSuccess : find_id(job);
    return rc == ncclSuccess ? comm_connect(job->comm, &job->id, &job->comm->abort) : rc;
}

/* `parent` NULL: a rank that joins. */
static ncclResult_t check_grow(const struct ncclComm *parent, int nranks, const ncclUniqueId *id, int rank)
{
    if (parent && rank != -1)
        return nccl_warn(ncclInvalidArgument, "CommGrow : rank of the communicator must be -1, is %d", rank);
    if (parent && nranks <= parent->nranks)
        return nccl_warn(ncclInvalidArgument, "CommGrow : %d ranks are not more than %d", nranks, parent->nranks);
    if (!parent && (!id || rank < 0 || rank >= nranks))
        return nccl_warn(ncclInvalidArgument, "CommGrow : joining rank %d of %d, id %p", rank, nranks,
                         (const void *)id);
    return ncclSuccess;
}

static ncclResult_t begin_grow(struct job *job, int nranks, const ncclUniqueId *id, int rank,
                               const ncclConfig_t *config)
{
    struct ncclComm *parent = job->parent;
    ncclResult_t rc = ncclSuccess;
    if (!parent) {
        memcpy(&job->id, id, sizeof job->id);
        return comm_new(&job->comm, nranks, rank, config);
    }
    pthread_mutex_lock(&parent->lock);
    job->seq = ++parent->grows;
    pthread_mutex_unlock(&parent->lock);
    if (parent->rank == 0 || parent->rank == parent->nranks - 1)
        rc = find_id(job);
    return rc == ncclSuccess ? new_beside(&job->comm, parent, nranks, parent->rank, config) : rc;
}

/* Takes over the reference to `parent`. */
static ncclResult_t submit_grow(struct ncclComm *parent, int nranks, const ncclUniqueId *id, int rank,
                                ncclComm_t *newcomm, const ncclConfig_t *config)
{
    struct job *job = calloc(1, sizeof *job);
    ncclResult_t rc = job ? ncclSuccess : ncclSystemError;
    if (job) {
        job->parent = parent;
        rc = begin_grow(job, nranks, id, rank, config);
    }
    if (rc != ncclSuccess) {
        comm_put(parent);
        free(job);
        return rc;
    }
    job->run = run_grow;
    job->tells = job->comm;
    job->user = newcomm;
    *newcomm = job->comm;
    rc = group_submit_job(job);
    return rc == ncclInProgress ? ncclSuccess : rc; /* NCCL's answer; the new one tells when it is made */
}

static ncclResult_t grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                         const ncclConfig_t *config)
{
    struct ncclComm *parent = NULL;
    if (!newcomm || nranks < 1)
        return nccl_warn(ncclInvalidArgument, "CommGrow : invalid argument");
    *newcomm = NULL;
    ncclResult_t rc = comm_check_config(config);
    if (rc == ncclSuccess && comm)
        rc = comm_get_ready(comm, "CommGrow", &parent);
    if (rc == ncclSuccess)
        rc = check_grow(parent, nranks, id, rank);
    if (rc == ncclSuccess)
        return submit_grow(parent, nranks, id, rank, newcomm, config);
    comm_put(parent);
    return rc;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config)
{
    return group_note_error(grow(comm, nranks, id, rank, newcomm, config));
}
NCCL_ALIAS(ncclCommGrow);
