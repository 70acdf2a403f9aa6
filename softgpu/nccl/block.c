/* SPDX-License-Identifier: Apache-2.0 */
#include "block.h"
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_MAGIC 0x6c6363746668u
#define PAGE 4096u

/* Blocks that this process offers to others; closed once every rank has come. */
struct offer {
    struct offer *next;
    struct block_header *hdr;
    int fd;
};
static struct offer *offers;
static pthread_mutex_t offers_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t page_up(size_t n)
{
    return (n + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static size_t slots_at(void)
{
    return page_up(sizeof(struct block_header));
}

static size_t chans_at(int nranks)
{
    return slots_at() + page_up((size_t)nranks * sizeof(struct rank_slot));
}

static size_t block_bytes(int nranks)
{
    return chans_at(nranks) + (size_t)nranks * (size_t)nranks * sizeof(struct chan);
}

static int everyone_came(struct block_header *hdr)
{
    int n = atomic_load(&hdr->nranks);
    return n > 0 && atomic_load(&hdr->arrived) == n;
}

static void close_finished_offers(void)
{
    pthread_mutex_lock(&offers_lock);
    for (struct offer **at = &offers; *at;) {
        struct offer *o = *at;
        if (!everyone_came(o->hdr)) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        munmap(o->hdr, PAGE);
        close(o->fd);
        free(o);
    }
    pthread_mutex_unlock(&offers_lock);
}

static struct block_header *map_header(int fd)
{
    void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static struct offer *new_offer(void)
{
    struct offer *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->fd = memfd_create("softgpu-nccl", MFD_CLOEXEC);
    if (o->fd >= 0 && !ftruncate(o->fd, PAGE) && (o->hdr = map_header(o->fd)))
        return o;
    if (o->fd >= 0)
        close(o->fd);
    free(o);
    return NULL;
}

ncclResult_t block_create(struct block_id *id)
{
    close_finished_offers();
    struct offer *o = new_offer();
    if (!o)
        return nccl_warn(ncclSystemError, "no shared memory for a communicator: %s", strerror(errno));
    *id = (struct block_id){.magic = BLOCK_MAGIC, .pid = getpid(), .fd = o->fd};
    if (getrandom(id->secret, sizeof id->secret, 0) != (ssize_t)sizeof id->secret)
        return nccl_warn(ncclSystemError, "no random numbers: %s", strerror(errno));
    memcpy(o->hdr->secret, id->secret, sizeof id->secret);
    o->hdr->creator = id->pid;
    o->hdr->magic = BLOCK_MAGIC;
    pthread_mutex_lock(&offers_lock);
    o->next = offers;
    offers = o;
    pthread_mutex_unlock(&offers_lock);
    return ncclSuccess;
}

/* ---- doorbells ---- */

static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, val, timeout, NULL, 0);
}

void block_ring(struct block *b, int rank)
{
    struct rank_slot *s = &b->slots[rank];
    atomic_fetch_add(&s->bell, 1);
    if (atomic_load(&s->sleeping))
        futex(&s->bell, FUTEX_WAKE, INT32_MAX, NULL);
}

void block_ring_all(struct block *b)
{
    for (int r = 0; r < b->nranks; r++)
        block_ring(b, r);
}

void block_wait(struct block *b, uint32_t seen, int timeout_ms)
{
    struct rank_slot *s = block_me(b);
    struct timespec ts = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    atomic_fetch_add(&s->sleeping, 1);
    if (atomic_load(&s->bell) == seen)
        futex(&s->bell, FUTEX_WAIT, seen, &ts);
    atomic_fetch_sub(&s->sleeping, 1);
}

void block_poison(struct block *b, ncclResult_t error)
{
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&b->hdr->poison, &none, (int32_t)error))
        block_ring_all(b);
}

/* ---- who is alive ---- */

static int process_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

int block_rank_gone(struct block *b, int rank)
{
    int32_t state = atomic_load(&b->slots[rank].state);
    if (!b->dead[rank] && (state == RANK_LEFT || state == RANK_ABORTED))
        b->dead[rank] = 1;
    if (!b->dead[rank] && b->pidfds[rank] >= 0 && process_ended(b->pidfds[rank]))
        b->dead[rank] = 1;
    return b->dead[rank];
}

/* A rank that has just been seen: from now on its process is watched. */
static void watch_rank(struct block *b, int rank)
{
    pid_t pid = b->slots[rank].info.pid;
    if (pid == getpid())
        return;
    b->pidfds[rank] = pidfd_open(pid, 0);
    b->dead[rank] = b->pidfds[rank] < 0 && errno == ESRCH;
}

/* ---- joining ---- */

static ncclResult_t open_block(const struct block_id *id, int *fd)
{
    char path[64];
    if (id->magic != BLOCK_MAGIC)
        return nccl_warn(ncclInvalidArgument, "the unique id was not made by ncclGetUniqueId");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id->pid, (int)id->fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return nccl_warn(errno == ENOENT ? ncclRemoteError : ncclSystemError,
                         "can not reach the process %d that made the unique id: %s", (int)id->pid, strerror(errno));
    return ncclSuccess;
}

/* Checks that the descriptor is the block that the id means, and that all ranks agree on their number. */
static ncclResult_t check_block(int fd, const struct block_id *id, int nranks)
{
    int32_t agreed = 0;
    /* Another file may have this number by now: reading beyond the end of a mapped file would be a signal. */
    struct block_header *hdr = lseek(fd, 0, SEEK_END) >= (off_t)PAGE ? map_header(fd) : NULL;
    int same = hdr && hdr->magic == BLOCK_MAGIC && !memcmp(hdr->secret, id->secret, sizeof id->secret);
    if (same && atomic_compare_exchange_strong(&hdr->nranks, &agreed, nranks))
        agreed = nranks;
    if (same && agreed != nranks) /* the others can not succeed either: let them not wait */
        atomic_store(&hdr->poison, (int32_t)ncclInvalidArgument);
    if (hdr)
        munmap(hdr, PAGE);
    if (!same)
        return nccl_warn(ncclRemoteError, "the unique id is stale: its communicator was already made");
    if (agreed != nranks)
        return nccl_warn(ncclInvalidArgument, "this rank wants %d ranks, another one %d", nranks, (int)agreed);
    return ncclSuccess;
}

static ncclResult_t map_block(struct block *b, int fd, int nranks, int rank)
{
    b->bytes = block_bytes(nranks);
    b->nranks = nranks;
    b->rank = rank;
    b->pidfds = malloc((size_t)nranks * sizeof *b->pidfds);
    b->dead = calloc((size_t)nranks, sizeof *b->dead);
    if (!b->pidfds || !b->dead || ftruncate(fd, (off_t)b->bytes))
        return nccl_warn(ncclSystemError, "no memory for %d ranks: %s", nranks, strerror(errno));
    for (int r = 0; r < nranks; r++)
        b->pidfds[r] = -1;
    void *p = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return nccl_warn(ncclSystemError, "can not map %zu bytes: %s", b->bytes, strerror(errno));
    b->hdr = p;
    b->slots = (struct rank_slot *)((char *)p + slots_at());
    b->chans = (struct chan *)((char *)p + chans_at(nranks));
    return ncclSuccess;
}

static ncclResult_t take_place(struct block *b, const struct rank_info *me)
{
    struct rank_slot *s = block_me(b);
    int32_t free_place = 0;
    if (!atomic_compare_exchange_strong(&s->claimed, &free_place, 1))
        return nccl_warn(ncclInvalidUsage, "rank %d of %d has already checked in", b->rank, b->nranks);
    s->info = *me;
    atomic_store(&s->state, RANK_HERE);
    atomic_fetch_add(&b->hdr->arrived, 1);
    block_ring_all(b);
    return ncclSuccess;
}

/* One look at all places: how many ranks have come, and whether one of them is dead. */
static ncclResult_t look_around(struct block *b, int *came, unsigned char *watched)
{
    *came = 0;
    for (int r = 0; r < b->nranks; r++) {
        if (atomic_load(&b->slots[r].state) == RANK_ABSENT)
            continue;
        ++*came;
        if (!watched[r])
            watch_rank(b, r);
        watched[r] = 1;
    }
    if (*came == b->nranks)
        return ncclSuccess;
    for (int r = 0; r < b->nranks; r++)
        if (watched[r] && block_rank_gone(b, r))
            return nccl_warn(ncclRemoteError, "rank %d (process %d) died while the communicator was made", r,
                             (int)b->slots[r].info.pid);
    return ncclSuccess;
}

/* Ranks that have not come yet can only come while the process that made the id lives. */
static ncclResult_t wait_for_all(struct block *b, int creator_pidfd, const _Atomic int *abort_flag)
{
    unsigned char *watched = calloc((size_t)b->nranks, 1);
    ncclResult_t rc = watched ? ncclSuccess : ncclSystemError;
    int creator_dead = 0;
    for (int came = 0; rc == ncclSuccess;) {
        uint32_t seen = atomic_load(&block_me(b)->bell);
        rc = look_around(b, &came, watched);
        if (rc != ncclSuccess || came == b->nranks)
            break;
        if (creator_dead)
            rc = nccl_warn(ncclRemoteError, "process %d, which made the unique id, died before all ranks came",
                           (int)b->hdr->creator);
        else if (atomic_load(&b->hdr->poison))
            rc = nccl_warn(ncclRemoteError, "another rank gave up while the communicator was made");
        else if (atomic_load(abort_flag))
            rc = nccl_warn(ncclInternalError, "aborted while the communicator was made");
        else
            block_wait(b, seen, 20);
        creator_dead = creator_pidfd >= 0 && process_ended(creator_pidfd);
    }
    free(watched);
    return rc;
}

ncclResult_t block_join(struct block *b, const struct block_id *id, int nranks, int rank, const struct rank_info *me,
                        const _Atomic int *abort_flag)
{
    int fd = -1, creator = -1;
    ncclResult_t rc = open_block(id, &fd);
    if (rc != ncclSuccess)
        return rc;
    if ((rc = check_block(fd, id, nranks)) == ncclSuccess)
        rc = map_block(b, fd, nranks, rank);
    close(fd);
    if (rc != ncclSuccess)
        return rc;
    if ((rc = take_place(b, me)) != ncclSuccess) {
        block_poison(b, rc);
        block_unmap(b); /* the place belongs to somebody else */
        return rc;
    }
    if (id->pid != getpid())
        creator = pidfd_open(id->pid, 0);
    rc = wait_for_all(b, creator, abort_flag);
    if (creator >= 0)
        close(creator);
    if (rc != ncclSuccess)
        block_poison(b, rc);
    close_finished_offers();
    return rc;
}

void block_leave(struct block *b, enum rank_state how)
{
    if (!b->hdr)
        return;
    atomic_store(&block_me(b)->state, how);
    block_ring_all(b);
    /* Give the channels' memory back even if some process still holds the descriptor. */
    if (atomic_fetch_add(&b->hdr->left, 1) + 1 == b->nranks)
        madvise(b->chans, b->bytes - chans_at(b->nranks), MADV_REMOVE);
}

void block_unmap(struct block *b)
{
    for (int r = 0; b->pidfds && r < b->nranks; r++)
        if (b->pidfds[r] >= 0)
            close(b->pidfds[r]);
    free(b->pidfds);
    free(b->dead);
    if (b->hdr)
        munmap(b->hdr, b->bytes);
    *b = (struct block){0};
}
