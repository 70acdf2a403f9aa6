/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators being made: every way in is an init (lifecycle.h) around the real call. */
#include <stdlib.h>
#include <string.h>
#include "base/settings.h"
#include "base/wait.h"
#include "plugin/comm/call.h"
#include "plugin/lifecycle/init.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/comm/group_kept.h"
#include "plugin/places/places.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"
#include "plugin/util/process.h"
#include "plugin/profiler/profile.h"
#include "plugin/tuner/tuner.h"

/* NCCL_COMM_BLOCKING overrides the configuration, where it is one of the two. */
static bool nonblocking(const ncclConfig_t *config)
{
    const char *env = getenv("NCCL_COMM_BLOCKING");
    char *end = NULL;
    const long value = env ? strtol(env, &end, 0) : -1;
    if (end != env && (value == 0 || value == 1))
        return value == 0;
    return config && config->blocking == 0;
}

/* Who is to watch the calls of communicators does, before there are any (comm/call.h). */
static void watch(void)
{
    if (slr_places_shown())
        slr_watch(&slr_places_watcher);
    slr_watch(&slr_trials_watcher);
    if (slr_get(SLR_S_TRACE))
        slr_watch(&slr_timeline_watcher);
    if (slr_get(SLR_S_PROFILE))
        slr_watch(&slr_profile_watcher);
}

/* A new init; nranks and rank are -1 where NCCL has yet to find them out. NULL: no memory; the communicator is NCCL's
 * alone. */
static struct slr_init *init_new(const struct slr_key *key, ncclComm_t *out, int nranks, int rank)
{
    slr_tuner_hook_called();
    watch();
    struct slr_init *init = calloc(1, sizeof *init);
    char name[9];
    if (!init)
        return NULL;
    slr_init_begin(init, key, out);
    slr_key_name(key, name);
    slr_profile_init(&init->profile, name, nranks, rank);
    return init;
}

/* One that tells of itself how far NCCL is. */
static struct slr_init *init_first(const struct slr_key *key, ncclComm_t *out, int nranks, int rank, bool later)
{
    struct slr_init *init = init_new(key, out, nranks, rank);
    if (init)
        init->later = init->nonblocking = later;
    return init;
}

/* It takes after the other without a configuration. */
static bool inherits(const ncclConfig_t *config, const struct slr_comm *parent)
{
    return config ? nonblocking(config) : parent->nonblocking;
}

/* Split or shrunk from another: that says whether the call waits, and tells of it. */
static void told_by_parent(struct slr_init *init, const struct slr_comm *parent)
{
    init->later = init->quiet = parent->nonblocking;
    init->making.parent = parent->nonblocking ? parent->nccl : NULL;
}

static struct slr_init *init_derived(const struct slr_key *key, ncclComm_t *out, const struct slr_comm *parent,
                                     const ncclConfig_t *config)
{
    struct slr_init *init = init_new(key, out, -1, -1);
    if (!init)
        return NULL;
    told_by_parent(init, parent);
    init->nonblocking = inherits(config, parent);
    return init;
}

/* Of a rank that gets none, but takes part in what the others agree on. */
static struct slr_init *init_none(ncclComm_t *out, const struct slr_comm *parent)
{
    struct slr_init *init = calloc(1, sizeof *init);
    if (!init)
        return NULL;
    init->out = out;
    told_by_parent(init, parent);
    return init;
}

/* Behind those that the group holds already. */
static void keep_for_end(struct slr_group *g, struct slr_init *init)
{
    struct slr_init **at = &g->inits;
    while (*at)
        at = &(*at)->next;
    *at = init;
}

/* What NCCL answers when it has made the communicators, or goes on. */
static bool taken(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

/* After the real call, outside of groups or at the outermost end, which makes them. What the call returns. */
static ncclResult_t inits_end(struct slr_init *list, ncclResult_t r)
{
    if (list && taken(r) && (list->later || r == ncclInProgress)) {
        const bool quiet = list->quiet;
        for (struct slr_init *init = list; init; init = init->next)
            init->later = true;
        slr_inits_later(list);
        return quiet ? r : ncclInProgress;
    }
    if (r == ncclSuccess) {
        slr_inits_agree(list);
        slr_hosts_agree(list);
        slr_inits_enlist(list);
    }
    slr_inits_free(list);
    return r;
}

/* In a group the real call only promised. */
static ncclResult_t init_done(struct slr_init *init, ncclResult_t r)
{
    if (!init || !slr_in_group() || !taken(r))
        return inits_end(init, r);
    keep_for_end(slr_group_now(), init);
    return r;
}

ncclResult_t slr_get_unique_id(ncclUniqueId *id)
{
    slr_guard++;
    const ncclResult_t r = slr_real.ncclGetUniqueId(id);
    if (r == ncclSuccess && !slr_process_off() && slr_get(SLR_S_HOSTS))
        slr_hosts_mark(id);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                bool with_config)
{
    slr_guard++;
    struct slr_init *init = NULL;
    if (!slr_process_off() && comm) {
        struct slr_key key = slr_key_of_id(&id, SLR_KEY_INIT_RANK, nranks);
        init = init_first(&key, comm, nranks, rank, nonblocking(config));
        slr_hosts_expect(init, &id);
    }
    ncclResult_t r = with_config ? slr_real.ncclCommInitRankConfig(comm, nranks, id, rank, config)
                                 : slr_real.ncclCommInitRank(comm, nranks, id, rank);
    r = init_done(init, r);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_init_rank_scalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                         ncclConfig_t *config)
{
    slr_guard++;
    struct slr_init *init = NULL;
    if (!slr_process_off() && comm && ids && nid > 0) {
        struct slr_key key = slr_key_of_id(&ids[0], SLR_KEY_INIT_RANK_SCALABLE, nranks);
        init = init_first(&key, comm, nranks, rank, nonblocking(config));
        slr_hosts_expect(init, &ids[0]);
    }
    ncclResult_t r = init_done(init, slr_real.ncclCommInitRankScalable(comm, nranks, rank, nid, ids, config));
    slr_guard--;
    return r;
}

static struct slr_init *inits_of_all(ncclComm_t *comms, int ndev)
{
    struct slr_init *first = NULL, **at = &first;
    struct slr_key key = slr_key_of_all();
    for (int i = 0; i < ndev; i++) {
        *at = init_first(&key, &comms[i], ndev, i, nonblocking(NULL));
        if (!*at) /* the ranks that have one will find that the others are absent */
            break;
        at = &(*at)->next;
    }
    return first;
}

ncclResult_t slr_comm_init_all(ncclComm_t *comms, int ndev, const int *devlist)
{
    slr_guard++;
    struct slr_init *list = !slr_process_off() && comms && ndev > 0 ? inits_of_all(comms, ndev) : NULL;
    ncclResult_t r = slr_real.ncclCommInitAll(comms, ndev, devlist);
    r = inits_end(list, r);
    slr_guard--;
    return r;
}

static struct slr_comm *parent_of(ncclComm_t comm)
{
    return slr_process_off() ? NULL : slr_comm_find(comm);
}

ncclResult_t slr_comm_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    slr_guard++;
    struct slr_init *init = NULL;
    struct slr_comm *parent = newcomm ? parent_of(comm) : NULL;
    if (parent) {
        /* Counted on every rank, also on one that gets no communicator: so the ranks derive the
         * same key. */
        struct slr_key k = slr_key_of_split(&parent->key, ++parent->splits, color);
        if (color != NCCL_SPLIT_NOCOLOR)
            init = init_derived(&k, newcomm, parent, config);
        else if (atomic_load(&parent->inside))
            init = init_none(newcomm, parent);
        if (init && atomic_load(&parent->inside))
            slr_hosts_split_begin(&init->split, parent, color, key);
    }
    ncclResult_t r = init_done(init, slr_real.ncclCommSplit(comm, color, key, newcomm, config));
    slr_comm_put(parent);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_shrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                             int flags)
{
    slr_guard++;
    struct slr_init *init = NULL;
    struct slr_comm *parent = newcomm && exclude && count > 0 ? parent_of(comm) : NULL;
    if (parent) {
        struct slr_key k = slr_key_of_shrink(&parent->key, ++parent->shrinks, exclude, count, flags);
        init = init_derived(&k, newcomm, parent, config);
    }
    ncclResult_t r = init_done(init, slr_real.ncclCommShrink(comm, exclude, count, newcomm, config, flags));
    slr_comm_put(parent);
    slr_guard--;
    return r;
}

/* ---- growing ----
 *
 * The ranks that join have the id alone, from which the key is derived. Of those that have the parent one makes the id,
 * and puts the key where the others find it: in the parent's control block. So all ranks take part in the bootstrap
 * before NCCL's part, as always. Who comes before there is an id waits for it, as NCCL's first and last rank do in the
 * call, blocking or not: at most SLIPRING_AGREE_TIMEOUT, and then NCCL has the new communicator on all ranks. */

ncclResult_t slr_comm_get_unique_id(ncclComm_t comm, ncclUniqueId *id)
{
    slr_guard++;
    const ncclResult_t r = slr_real.ncclCommGetUniqueId(comm, id);
    struct slr_comm *parent = r == ncclSuccess ? parent_of(comm) : NULL;
    if (parent) {
        const struct slr_key key = slr_key_of_id(id, SLR_KEY_GROW, 0);
        slr_comm_offer_key(parent, &key, parent->grows + 1);
    }
    slr_comm_put(parent);
    slr_guard--;
    return r;
}

/* False: nothing is to be waited for, or not any more. */
static bool await_offer(const struct slr_comm *parent, struct slr_key *key)
{
    const uint64_t end = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    while (!slr_comm_offered_key(parent, parent->grows, key)) {
        if (!parent->shared.control || atomic_load(&parent->error) != ncclSuccess || slr_now_ms() >= end)
            return false;
        slr_sleep_ms(1);
    }
    return true;
}

/* Of a rank that has the parent. Calls that NCCL refuses do not count. */
static struct slr_init *init_grown(ncclComm_t *out, struct slr_comm *parent, int nranks, int rank,
                                   const ncclConfig_t *config)
{
    struct slr_key key;
    if (rank != -1 || nranks <= parent->nranks)
        return NULL;
    parent->grows++;
    return await_offer(parent, &key) ? init_first(&key, out, nranks, parent->rank, inherits(config, parent)) : NULL;
}

static struct slr_init *init_joining(ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank,
                                     const ncclConfig_t *config)
{
    const struct slr_key key = slr_key_of_id(id, SLR_KEY_GROW, 0);
    return init_first(&key, out, nranks, rank, nonblocking(config));
}

ncclResult_t slr_comm_grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    slr_guard++;
    struct slr_init *init = NULL;
    struct slr_comm *parent = comm && newcomm ? parent_of(comm) : NULL;
    if (parent)
        init = init_grown(newcomm, parent, nranks, rank, config);
    else if (!comm && newcomm && id && !slr_process_off())
        init = init_joining(newcomm, nranks, id, rank, config);
    if (init)
        init->quiet = true;
    slr_comm_put(parent);
    const ncclResult_t r = init_done(init, slr_real.ncclCommGrow(comm, nranks, id, rank, newcomm, config));
    slr_guard--;
    return r;
}

void slr_inits_end(struct slr_init *list, ncclResult_t r)
{
    inits_end(list, r);
}
