/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites of one communicator: publishing on the application's threads, analysis in the
 * background (symmetry.h). */
#include "plugin/sites/symmetry.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/counters.h"
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/sites/phases.h"
#include "plugin/sites/symmetry_log.h"
#include "plugin/sites/published.h"

struct slr_symmetry {
    struct slr_phases phases;
    uint64_t next; /* call to be analysed */
    bool ended;
    struct slr_use *use; /* [nranks], of one call */
};

/* Who has made the latest calls, on this rank. Made, under the communicator's lock, at the first call that has a name. */
struct slr_site_callers {
    struct {
        _Atomic uint64_t number, caller;
    } of[SLR_PUBLISHED];
};

/* The ring of records of a rank, in the control block. */
static struct slr_published *ring_of(const struct slr_comm *c, int rank)
{
    /* Behind the descriptors. The place depends on the number of ranks only, so all agree on it. */
    char *all = (char *)c->shared.control + slr_control_published_at(c->nranks);
    return (struct slr_published *)all + (size_t)rank * SLR_PUBLISHED;
}

/* Memory that the cache does not know keeps its address, by which the period of the calls is found.
 */
static struct slr_place place_or_address(const struct slr_place *at, const void *p)
{
    return at->generation ? *at : (struct slr_place){.offset = (size_t)p};
}

bool slr_symmetry_shown(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 0; r < c->nranks; r++)
        if (post[r].shows_sites)
            return true;
    return false;
}

/* Before the record is published, so that who reads that finds it. Without memory there are no names. */
static void keep_caller(struct slr_comm *c, uint64_t number, uint64_t caller)
{
    struct slr_site_callers *kept = atomic_load_explicit(&c->callers, memory_order_relaxed);
    if (!kept) {
        kept = calloc(1, sizeof *kept);
        atomic_store_explicit(&c->callers, kept, memory_order_release);
    }
    if (!kept)
        return;
    atomic_store_explicit(&kept->of[number % SLR_PUBLISHED].number, number, memory_order_relaxed);
    atomic_store_explicit(&kept->of[number % SLR_PUBLISHED].caller, caller, memory_order_relaxed);
}

/* That a later call takes the place meanwhile gives one wrong name at worst, of the site that is 512 calls on. */
static uint64_t caller_of(struct slr_comm *c, uint64_t number)
{
    struct slr_site_callers *kept = atomic_load_explicit(&c->callers, memory_order_acquire);
    if (!kept || atomic_load_explicit(&kept->of[number % SLR_PUBLISHED].number, memory_order_relaxed) != number)
        return 0;
    return atomic_load_explicit(&kept->of[number % SLR_PUBLISHED].caller, memory_order_relaxed);
}

void slr_symmetry_publish(const struct slr_call *call, const struct slr_place *send, const struct slr_place *recv)
{
    const struct slr_comm *c = call->comm;
    struct slr_place from = place_or_address(send, call->send), to = place_or_address(recv, call->recv);
    if (call->caller)
        keep_caller(call->comm, call->number, call->caller);
    slr_published_write(ring_of(c, c->rank), call->number, call->flow->kind->sends_all, call->shard,
                        slr_call_in_place(call), &from, &to);
}

/* Of every communicator's analysis. One is enough: besides the house-keeping thread only ends of
 * communicators take it, and no gather does. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The communicator's analysis, made when it has gathered. NULL: no memory; tried again at the next
 * tick. */
static struct slr_symmetry *of(struct slr_comm *c)
{
    if (c->symmetry)
        return c->symmetry;
    struct slr_symmetry *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->next = 1;
    s->use = calloc((size_t)c->nranks, sizeof(*s->use));
    if (!s->use || !slr_phases_open(&s->phases, c->name, c->rank, c->nranks)) {
        free(s->use);
        free(s);
        return NULL;
    }
    c->symmetry = s;
    return s;
}

/* Reads the next call of all ranks, or skips to one that can be read. False: nothing can be done
 * now. */
static bool advance(struct slr_comm *c, struct slr_symmetry *s)
{
    enum slr_published_result all = SLR_PUBLISHED_OK;
    uint64_t newest = 0;
    /* NOT_YET < GONE: a call that one rank has overwritten is lost, whoever is still to come to it.
     */
    for (int r = 0; r < c->nranks; r++) {
        uint64_t newer = 0;
        enum slr_published_result one = slr_published_read(ring_of(c, r), s->next, r, &s->use[r], &newer);
        newest = newer > newest ? newer : newest;
        all = one > all ? one : all;
    }
    if (all == SLR_PUBLISHED_NOT_YET)
        return false;
    if (all == SLR_PUBLISHED_GONE) {
        /* Not to the oldest record that is left: its rank goes on writing. A quarter of the ring is
         * the headroom. */
        uint64_t to = newest - SLR_PUBLISHED / 4 * 3;
        s->phases.skipped += to - s->next;
        s->next = to;
    } else {
        s->use[c->rank].caller = caller_of(c, s->next);
        slr_phases_take(&s->phases, s->next, s->use);
        s->next++;
    }
    return true;
}

/* As long as there are new calls. More than a ring holds can not be waiting; the bound is for a
 * program that goes on publishing meanwhile. */
static void analyse(struct slr_comm *c)
{
    unsigned steps = 4 * SLR_PUBLISHED;
    /* A rank whose log is silent leaves the work to others; its counters of sites stay 0. */
    if (!slr_log_enabled(SLR_LOG_INFO) || c->pass != SLR_R_RING || !c->shared.control)
        return;
    /* Record 1 is that of the first call: a communicator that never gathers costs no memory. */
    bool any = c->symmetry != NULL || atomic_load(&ring_of(c, c->rank)[1].call) != 0;
    struct slr_symmetry *s = any ? of(c) : NULL;
    while (s && !s->ended && steps-- > 0 && advance(c, s))
        ;
}

void slr_symmetry_tick(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    analyse(c);
    pthread_mutex_unlock(&lock);
}

static void count(const struct slr_phases *p)
{
    atomic_fetch_add(&slr_counters.sites, p->sites.count);
    atomic_fetch_add(&slr_counters.sites_symmetric, slr_phases_symmetric(p));
    atomic_fetch_add(&slr_counters.sites_broken, slr_phases_breaks(p));
}

/* Once: the process may end before the communicator does, and both report. */
static void end(struct slr_comm *c)
{
    /* Once more: of what came after the last tick, or of all where there was none. */
    analyse(c);
    struct slr_symmetry *s = c->symmetry;
    if (!s || s->ended)
        return;
    s->ended = true;
    slr_phases_end(&s->phases);
    count(&s->phases);
    slr_symmetry_log_end(&s->phases, slr_phases_symmetric(&s->phases), slr_phases_breaks(&s->phases));
}

void slr_symmetry_end(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    end(c);
    pthread_mutex_unlock(&lock);
}

void slr_symmetry_dispose(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    end(c);
    if (c->symmetry) {
        slr_phases_close(&c->symmetry->phases);
        free(c->symmetry->use);
        free(c->symmetry);
        c->symmetry = NULL;
    }
    free(c->callers);
    c->callers = NULL;
    pthread_mutex_unlock(&lock);
}
