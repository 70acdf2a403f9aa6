/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the process's communicators. */
#include <string.h>
#include "base/wait.h"
#include "plugin/comm/comm.h"

/* A list: processes have a handful of communicators, rarely a hundred. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct slr_comm *comms;

struct slr_comm *slr_comm_find(ncclComm_t nccl)
{
    pthread_rwlock_rdlock(&lock);
    struct slr_comm *c = nccl ? comms : NULL; /* orphans have none */
    while (c && c->nccl != nccl)
        c = c->next;
    /* Counted before the lock is given up: whoever removes it afterwards waits for this use. */
    if (c)
        slr_comm_hold(c);
    pthread_rwlock_unlock(&lock);
    return c;
}

struct slr_comm *slr_comm_find_id(const struct slr_label *id, int rank)
{
    pthread_rwlock_rdlock(&lock);
    struct slr_comm *c = comms;
    while (c && (c->rank != rank || memcmp(&c->id, id, sizeof *id)))
        c = c->next;
    if (c)
        slr_comm_hold(c);
    pthread_rwlock_unlock(&lock);
    return c;
}

void slr_comm_hold(struct slr_comm *c)
{
    atomic_fetch_add(&c->users, 1);
}

void slr_comm_put(struct slr_comm *c)
{
    if (c)
        atomic_fetch_sub(&c->users, 1);
}

/* Polls: an end is rare, and a call must not pay for waking somebody. */
bool slr_comm_last_user(struct slr_comm *c, int most_ms)
{
    for (int ms = 0; ms < most_ms && atomic_load(&c->users) > 1; ms++)
        slr_sleep_ms(1);
    return atomic_load(&c->users) <= 1;
}

void slr_comm_add(struct slr_comm *c)
{
    pthread_rwlock_wrlock(&lock);
    c->next = comms;
    comms = c;
    pthread_rwlock_unlock(&lock);
}

void slr_comm_remove(struct slr_comm *c)
{
    pthread_rwlock_wrlock(&lock);
    struct slr_comm **at = &comms;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pthread_rwlock_unlock(&lock);
}

/* So that the caller can work on each without the lock: that work may wait for the driver. */
int slr_comm_hold_all(struct slr_comm **list, int max)
{
    int n = 0;
    pthread_rwlock_rdlock(&lock);
    for (struct slr_comm *c = comms; c && n < max; c = c->next) {
        slr_comm_hold(c);
        list[n++] = c;
    }
    pthread_rwlock_unlock(&lock);
    return n;
}

void slr_comm_each(void (*visit)(struct slr_comm *c, void *ctx), void *ctx)
{
    pthread_rwlock_rdlock(&lock);
    for (struct slr_comm *c = comms; c; c = c->next)
        visit(c, ctx);
    pthread_rwlock_unlock(&lock);
}

/* Off the list, so that nobody else disposes of it; the caller puts back what it is not done
 * with. */
struct slr_comm *slr_comm_take_orphan(void)
{
    struct slr_comm **last = NULL, *taken = NULL;
    pthread_rwlock_wrlock(&lock);
    for (struct slr_comm **at = &comms; *at; at = &(*at)->next)
        if ((*at)->orphan)
            last = at;
    if (last) {
        taken = *last;
        *last = taken->next;
    }
    pthread_rwlock_unlock(&lock);
    return taken;
}
