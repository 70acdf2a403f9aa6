/* SPDX-License-Identifier: Apache-2.0 */
/* The list of shared parts that wait for their peers. */
#include "plugin/comm/lane.h"
#include "plugin/memory/exports.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "kernels/flags.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/shared.h"

struct deferred {
    struct slr_shared shared;
    struct deferred *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct deferred *list;
static unsigned being_released; /* taken off the list, memory not free yet; under the lock */

/* Whether no peer uses the memory, or will. */
static bool peers_let_go(struct slr_shared *s)
{
    slr_shared_watch_peers(s);
    /* EMPTY: the agreement was refused before that rank posted. It reads the refusal before it
     * would import anything. */
    for (int r = 0; r < s->nranks; r++) {
        uint32_t state = atomic_load(&s->control->post[r].state);
        if (r != s->rank && !s->peer_dead[r] && state != SLR_RANK_LEFT && state != SLR_RANK_EMPTY)
            return false;
    }
    return true;
}

static void unmap(struct slr_shared *s)
{
    for (int r = 0; r < s->nranks && r < SLR_MAX_RANKS; r++)
        slr_peer_process_unwatch(s->peer_watch[r]);
    if (s->control) {
        munmap(s->control, s->bytes);
        slr_kept_close(&s->file);
    }
    s->control = NULL;
}

/* In a context that was reset all of it is gone already, and its addresses may be somebody else's:
 * then only this process's own records of it are dropped. */
static void release(struct slr_shared *s)
{
    slr_device_freeing(1);
    for (unsigned k = 0; k < SLR_SLOT_CLASSES && slr_shared_gone(s); k++)
        slr_staging_forget(&s->staging[k]);
    if (s->ctx && slr_shared_enter(s) == SLR_OK) {
        if (s->registered)
            slr_cu_status(slr_real.cuMemHostUnregister((char *)s->control + slr_control_flags_at(s->nranks)),
                          "cuMemHostUnregister");
        for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
            slr_staging_free(&s->staging[k]);
        for (int i = 0; i < SLR_EXPORTS; i++)
            if (s->pinned[i])
                slr_block_unpin(s->pinned[i]);
        slr_shared_leave();
    }
    slr_device_freeing(-1);
    if (s->ctx)
        slr_real.cuDevicePrimaryCtxRelease(s->device);
    unmap(s);
}

void slr_defer_free(const struct slr_shared *s)
{
    struct slr_shared copy = *s;
    if (!copy.control) {
        release(&copy);
        return;
    }
    /* From here on the peers may free what this rank had mapped of theirs. */
    if (!copy.stuck)
        atomic_store(&copy.control->post[copy.rank].state, SLR_RANK_LEFT);
    struct deferred *d = malloc(sizeof *d);
    if (!d)
        return; /* nothing better than to keep the block for the life of the process */
    d->shared = copy;
    pthread_mutex_lock(&lock);
    d->next = list;
    list = d;
    pthread_mutex_unlock(&lock);
}

/* A word that this rank's device is still to write, behind a call that NCCL has: ncclCommAbort ends that only
 * after this library's part. After a reset of the device nothing is written any more. */
static bool device_let_go(const struct slr_shared *s)
{
    uint32_t done;
    void *flags = (char *)s->control + slr_control_flags_at(s->nranks);
    return !s->registered || !slr_turns_open(flags, s->nranks, s->rank, &done) || slr_shared_gone(s);
}

/* Takes those off the list that can be freed. */
static struct deferred *take_free(void)
{
    struct deferred *ready = NULL;
    pthread_mutex_lock(&lock);
    for (struct deferred **at = &list; *at;) {
        struct deferred *d = *at;
        if (!peers_let_go(&d->shared) || !device_let_go(&d->shared)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        d->next = ready;
        ready = d;
        being_released++;
    }
    pthread_mutex_unlock(&lock);
    return ready;
}

unsigned slr_deferred_free_tick(void)
{
    for (struct deferred *d = take_free(), *next; d; d = next) {
        next = d->next;
        release(&d->shared); /* cuMemFree may wait for the device: not under the lock */
        free(d);
        pthread_mutex_lock(&lock);
        being_released--;
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    unsigned n = being_released;
    for (struct deferred *d = list; d; d = d->next)
        n++;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Frees by itself as well: the returning thread may be the one that waits here. */
void slr_deferred_for_room(uint64_t bytes, uint64_t budget, unsigned ms)
{
    uint64_t end = slr_now_ms() + ms;
    while (slr_staging_held() + bytes > budget && slr_deferred_free_tick() > 0 && slr_now_ms() < end)
        slr_sleep_ms(1);
}

/* Whether a living peer still has to read what this rank published. */
static bool still_read(const struct slr_shared *s, uint32_t issued)
{
    void *flags = (char *)s->control + slr_control_flags_at(s->nranks);
    for (int r = 0; r < s->nranks; r++) {
        uint32_t state = atomic_load(&s->control->post[r].state);
        if (r == s->rank || s->peer_dead[r] || state != SLR_RANK_READY || slr_shared_same_process(s, r))
            continue;
        if (!slr_flag_reached(atomic_load(slr_flag(flags, s->nranks, SLR_FLAG_DONE, s->rank, r)), issued))
            return true;
    }
    return false;
}

/* A communicator that has failed is not waited for: its peers get no data from it anyway. */
static void look(struct slr_comm *c, void *busy)
{
    if (c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess)
        return;
    slr_shared_watch_peers(&c->shared);
    if (still_read(&c->shared, atomic_load(&c->lane->ring.issued)))
        *(bool *)busy = true;
}

static bool deferred_still_read(void)
{
    bool busy = false;
    pthread_mutex_lock(&lock);
    for (struct deferred *d = list; d && !busy; d = d->next) {
        slr_shared_watch_peers(&d->shared);
        busy = still_read(&d->shared, d->shared.issued);
    }
    pthread_mutex_unlock(&lock);
    return busy;
}

void slr_deferred_before_exit(unsigned ms)
{
    uint64_t end = slr_now_ms() + ms;
    for (;;) {
        bool busy = deferred_still_read();
        slr_comm_each(look, &busy);
        if (!busy || slr_now_ms() >= end)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}
