/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement: what each rank posts, compares and decides. */
#include "plugin/comm/comm.h"
#include "plugin/lifecycle/init.h"
#include "plugin/lifecycle/lifecycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/settings.h"
#include "base/wait.h"
#include "base/status.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/connect/connect.h"
#include "plugin/hosts/hosts.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/callers/callers.h"
#include "plugin/comm/control.h"
#include "plugin/comm/lane.h"
#include "plugin/profiler/profile.h"
#include "plugin/transfer/transfer.h"
#include "plugin/trials/trials.h"
#include "plugin/lifecycle/lifecycle_impl.h"

void slr_init_begin(struct slr_init *init, const struct slr_key *key, ncclComm_t *out)
{
    *init = (struct slr_init){.key = *key, .out = out, .pass = SLR_R_NO_CONTROL};
    init->begun = slr_bootstrap_begin(&init->bootstrap, key);
    slr_tune_expect(init);
}

void slr_init_cancel(struct slr_init *init)
{
    slr_tune_forget(init);
    if (init->begun)
        slr_bootstrap_end(&init->bootstrap);
    init->begun = false;
    slr_profile_init_end(&init->profile);
}

void slr_inits_free(struct slr_init *list)
{
    for (struct slr_init *init = list, *next; init; init = next) {
        next = init->next;
        slr_making_lock(); /* the program is told the truth now, also where there is no memory */
        slr_making_remove(&init->making);
        slr_making_unlock();
        slr_init_cancel(init);
        slr_hosts_split_over(&init->split);
        free(init);
    }
}

/* The first refusal stays; returns what was decided. */
static uint32_t refuse(struct slr_comm *c, enum slr_reason why, int rank)
{
    uint32_t word = SLR_UNDECIDED, mine = slr_refusal(why, rank);
    return atomic_compare_exchange_strong(&c->shared.control->decision, &word, mine) ? mine : word;
}

/* Among the first quarter of those that the program may have: else it will need them all. */
static bool is_low(int fd)
{
    struct rlimit most;
    return getrlimit(RLIMIT_NOFILE, &most) == 0 && (rlim_t)fd < most.rlim_cur / 4;
}

static enum slr_reason map_control(struct slr_init *init, int fd)
{
    struct slr_comm *c = init->comm;
    struct slr_shared *s = &c->shared;
    size_t bytes = slr_control_bytes(c->nranks);
    struct slr_control *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED || !is_low(fd)) {
        close(fd);
        fd = -1;
    }
    if (m == MAP_FAILED)
        return SLR_R_NO_CONTROL;
    s->control = m;
    s->bytes = bytes;
    s->file = slr_keep(fd);
    if (m->magic != SLR_CONTROL_MAGIC || m->nranks != c->nranks)
        return SLR_R_VERSION_DIFFERS;
    slr_shared_open_watches(s);
    return SLR_R_RING;
}

/* How NCCL reads these two variables: peer-to-peer is to be left alone on this machine. Its other
 * levels say between which devices NCCL may use it; they are NCCL's own choice, and not about
 * whether it works. Level 0 is the old name of LOC. */
static bool p2p_off(void)
{
    const char *disable = getenv("NCCL_P2P_DISABLE"), *level = getenv("NCCL_P2P_LEVEL");
    if (disable && strtol(disable, NULL, 0) == 1)
        return true;
    if (!level || !*level)
        return false;
    char *end;
    long number = strtol(level, &end, 0);
    return strcmp(level, "LOC") == 0 || (end != level && number <= 0);
}

static void fill_post(struct slr_comm *c, struct slr_post *post)
{
    memcpy(post->name, c->name, sizeof c->name);
    slr_real.cuDeviceGetUuid(&post->device_uuid, c->shared.device);
    post->device = c->shared.device;
    post->p2p_off = p2p_off();
    post->captures = slr_graphs_may();
    post->sums = slr_sums_post(c);
    c->lane->ring.code = slr_copies_of(c);
    post->slots_given = slr_settings()->given[SLR_S_SLOT_BYTES];
    post->tries = slr_trials_prepare(c);
    for (int i = 0; i < SLR_S_COUNT; i++)
        post->settings[i] = slr_setting_rows[i].scope == SLR_SCOPE_UNIFORM ? slr_settings()->num[i] : 0;
}

/* Post: what this rank is. The state comes last: peers that see POSTED may read the rest. It is
 * posted in a refusal, too, so that nobody waits for this rank. */
static void step_post(struct slr_init *init, int fd)
{
    struct slr_comm *c = init->comm;
    enum slr_reason r = map_control(init, fd);
    if (r != SLR_R_RING) {
        init->word = slr_refusal(r, c->rank);
        return;
    }
    struct slr_post *post = &c->shared.control->post[c->rank];
    post->tune = slr_tune_word(init);
    r = slr_comm_know_device(c, init->device, (char *)c->shared.control + slr_control_flags_at(c->nranks));
    if (r == SLR_R_RING)
        fill_post(c, post);
    if (r != SLR_R_RING)
        init->word = refuse(c, r, c->rank);
    atomic_store(&post->state, SLR_RANK_POSTED);
}

/* A rank that died before it reached `state`, or -1. Others may be missing too: those whom a dead
 * root never answered do not take part. */
static int first_dead(const struct slr_comm *c, uint32_t state)
{
    for (int r = 0; r < c->nranks; r++)
        if (c->shared.peer_dead[r] && atomic_load(&c->shared.control->post[r].state) < state)
            return r;
    return -1;
}

/* Waits until every rank has reached `state`, the word is decided, a peer dies or time is up. */
static uint32_t await(struct slr_comm *c, uint32_t state, uint64_t deadline)
{
    struct slr_control *ctl = c->shared.control;
    for (unsigned spin = 0;; spin++) {
        int missing = -1;
        for (int r = 0; r < c->nranks && missing < 0; r++)
            if (atomic_load(&ctl->post[r].state) < state)
                missing = r;
        uint32_t word = atomic_load(&ctl->decision);
        if (word != SLR_UNDECIDED || missing < 0)
            return word;
        if (spin % 16 == 15)
            slr_shared_watch_peers(&c->shared);
        int dead = first_dead(c, state);
        if (dead >= 0)
            return refuse(c, SLR_R_PEER_DIED, dead);
        if (slr_now_ms() >= deadline)
            return refuse(c, SLR_R_AGREE_TIMEOUT, missing);
        /* Ranks leave NCCL's barrier together, so most waits are short. */
        nanosleep(&(struct timespec){.tv_nsec = spin < 100 ? 50000 : 1000000}, NULL);
    }
}

/* The first setting in which a rank differs from rank 0; SLR_S_COUNT: none. */
static int first_difference(const struct slr_post *post, int rank)
{
    int i = 0;
    while (i < SLR_S_COUNT && post[rank].settings[i] == post[0].settings[i])
        i++;
    return i;
}

/* The refusal names the rank; the user wants to know the setting as well, whichever rank's log is
 * read. */
static void log_setting(const struct slr_comm *c, int rank)
{
    const struct slr_post *post = c->shared.control->post;
    int i = first_difference(post, rank);
    if (i < SLR_S_COUNT)
        slr_log(SLR_LOG_WARN, "settings_differ",
                "comm=%s crank=%d peer=%d setting=" SLR_SETTING_PREFIX "%s peer_value=%llu rank0_value=%llu", c->name,
                c->rank, rank, slr_setting_rows[i].name, (unsigned long long)post[rank].settings[i],
                (unsigned long long)post[0].settings[i]);
}

/* Compares what all ranks posted. Every rank compares the same words in the same order, so all come
 * to the same result. */
static uint32_t judge(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 1; r < c->nranks; r++) {
        if (first_difference(post, r) < SLR_S_COUNT)
            return slr_refusal(SLR_R_SETTINGS_DIFFER, r);
    }
    for (int r = 0; r < c->nranks; r++) {
        if (post[r].p2p_off)
            return slr_refusal(SLR_R_P2P_OFF, r);
        for (int q = 0; q < r; q++)
            if (post[q].pid == post[r].pid && !memcmp(&post[q].device_uuid, &post[r].device_uuid, sizeof(CUuuid)))
                return slr_refusal(SLR_R_SAME_DEVICE, r);
    }
    return SLR_UNDECIDED;
}

/* Judge: all have posted. */
static void step_judge(struct slr_init *init, uint64_t deadline)
{
    struct slr_comm *c = init->comm;
    init->word = await(c, SLR_RANK_POSTED, deadline);
    if (init->word != SLR_UNDECIDED)
        return;
    init->word = judge(c);
    if (init->word != SLR_UNDECIDED) {
        init->word = refuse(c, slr_refusal_reason(init->word), slr_refusal_rank(init->word));
        return;
    }
    c->put = slr_transfer_put(c); /* from what all have posted, so equal on all ranks */
    c->slots_given = slr_slots_any_given(c);
    slr_trials_open(c); /* likewise */
    atomic_store(&c->shared.control->post[c->rank].state, SLR_RANK_READY);
}

/* All are ready: whoever sees it first commits, so nobody depends on the life of the last one. */
static void step_commit(struct slr_init *init, uint64_t deadline)
{
    struct slr_comm *c = init->comm;
    uint32_t word = SLR_UNDECIDED;
    init->word = await(c, SLR_RANK_READY, deadline);
    if (init->word == SLR_UNDECIDED)
        init->word =
            atomic_compare_exchange_strong(&c->shared.control->decision, &word, SLR_COMMIT) ? SLR_COMMIT : word;
}

bool slr_init_know(struct slr_init *init, ncclComm_t nccl)
{
    if (!nccl || slr_real.ncclCommUserRank(nccl, &init->rank) != ncclSuccess ||
        slr_real.ncclCommCount(nccl, &init->nranks) != ncclSuccess ||
        slr_real.ncclCommCuDevice(nccl, &init->device) != ncclSuccess)
        return false;
    init->nccl = nccl;
    return true;
}

static struct slr_comm *new_comm(struct slr_init *init)
{
    struct slr_comm *c = slr_comm_new();
    if (!c)
        return NULL;
    c->nccl = init->nccl;
    c->nonblocking = init->nonblocking;
    c->key = init->key;
    c->id = slr_key_public(&init->key);
    c->pass = init->pass;
    c->least_bytes = slr_get(SLR_S_MIN_BYTES);
    slr_key_name(&init->key, c->name);
    c->rank = init->rank;
    c->nranks = init->nranks;
    c->spans = 1;
    c->shared.rank = c->rank;
    c->shared.nranks = c->nranks;
    slr_log_set_rank(c->rank);
    slr_about_log();
    slr_callers_tell();
    slr_launched_made(slr_comm_id(c), c->rank);
    return c;
}

/* Refusals for facts that every rank knows alike: no agreement is needed. */
static uint32_t known_before(const struct slr_init *init)
{
    if (!init->begun)
        return slr_refusal(init->pass, 0xffff);
    if (init->comm->nranks < 2)
        return slr_refusal(SLR_R_ONE_RANK, 0xffff);
    return init->comm->nranks > SLR_MAX_RANKS ? slr_refusal(SLR_R_TOO_MANY_RANKS, 0xffff) : SLR_UNDECIDED;
}

/* From here on calls find it; but not when the program has ended it meanwhile: then it goes, and its peers see that. */
static void enlist(struct slr_init *init, struct slr_comm *c)
{
    slr_making_lock();
    const bool ended = init->making.ended;
    if (!ended)
        slr_comm_add(c);
    slr_making_remove(&init->making); /* behind it: who does not find it here looks there */
    slr_making_unlock();
    if (ended)
        slr_comm_dispose(c);
}

/* Nothing of its own was set up. */
static void hosts_made(struct slr_init *init)
{
    struct slr_comm *c = init->comm;
    if (init->lost) {
        c->pass = SLR_R_COMM_ERROR;
        atomic_store(&c->error, ncclSystemError);
        slr_log(SLR_LOG_ERROR, "communicator_failed", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "the other hosts did not answer: they may go on without this rank");
        enlist(init, c);
        return;
    }
    c->hosts = init->hosts;
    c->inside = init->hosts->inside;
    c->pass = SLR_R_HOSTS;
    struct slr_comm *inside = slr_comm_inside(c);
    slr_log(SLR_LOG_INFO, "communicator", "comm=%s crank=%d nranks=%d decision=hosts hosts=%d per_host=%d inside=%s",
            c->name, c->rank, c->nranks, c->hosts->hosts, c->hosts->per, inside ? inside->name : "");
    slr_comm_put(inside);
    enlist(init, c);
}

static void finish_one(struct slr_init *init)
{
    struct slr_comm *c = init->comm;
    slr_init_cancel(init);
    if (init->word == SLR_COMMIT) {
        c->pass = SLR_R_RING;
        slr_trials_ready(c);
        c->looked_ms = slr_now_ms();
        slr_log(SLR_LOG_INFO, "communicator", "comm=%s crank=%d nranks=%d decision=ring protocol=%s", c->name, c->rank,
                c->nranks, c->put ? "put" : "pull");
        enlist(init, c);
        slr_threads_start();
        return;
    }
    if (init->hosts || init->lost) {
        hosts_made(init);
        return;
    }
    /* What had been set up goes; a bare record stays, for the log and for communicators split from
     * this one. */
    struct slr_comm *bare = new_comm(init);
    if (bare) {
        if (slr_refusal_reason(init->word) == SLR_R_SETTINGS_DIFFER)
            log_setting(c, slr_refusal_rank(init->word));
        slr_comm_passes(bare, slr_refusal_reason(init->word),
                        slr_refusal_rank(init->word) == 0xffff ? -1 : slr_refusal_rank(init->word));
        enlist(init, bare);
    }
    /* What peers may still use is freed by the threads, and what is measured is written by them. */
    bool threads = c->shared.control != NULL || slr_get(SLR_S_TRACE) != 0;
    slr_comm_dispose(c);
    if (threads)
        slr_threads_start();
}

#define EACH(init, list)                                                                                               \
    for (struct slr_init * (init) = (list); (init); (init) = (init)->next)                                             \
        if ((init)->comm && (init)->word == SLR_UNDECIDED)

static struct slr_bootstrap_self self_of(const struct slr_comm *c)
{
    return (struct slr_bootstrap_self){.rank = c->rank, .nranks = c->nranks, .process = slr_oob_process()};
}

static void bootstrap_all(struct slr_init *list, uint64_t deadline)
{
    int fd = -1;
    EACH(init, list)
    if (init->bootstrap.member >= 0) {
        struct slr_bootstrap_self self = self_of(init->comm);
        init->word = slr_bootstrap_hello(&init->bootstrap, &self);
    }
    /* Roots first: members of the same thread wait for their verdict. */
    EACH(init, list)
    if (init->bootstrap.root >= 0) {
        struct slr_bootstrap_self self = self_of(init->comm);
        init->word = slr_bootstrap_collect(&init->bootstrap, &self, deadline, &fd);
        if (init->word == SLR_UNDECIDED)
            step_post(init, fd);
    }
    EACH(init, list)
    if (init->bootstrap.member >= 0) {
        struct slr_bootstrap_self self = self_of(init->comm);
        init->word = slr_bootstrap_answer(&init->bootstrap, &self, deadline, &fd);
        if (init->word == SLR_UNDECIDED)
            step_post(init, fd);
    }
}

void slr_inits_agree(struct slr_init *list)
{
    uint64_t deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    if (list && !slr_callers_tool())
        slr_nvtx_open();
    for (struct slr_init *init = list; init; init = init->next) {
        if (!init->later)
            slr_init_know(init, *init->out);
        init->comm = init->nccl ? new_comm(init) : NULL;
        if (init->comm)
            init->word = known_before(init);
    }
    slr_tune_match(list);
    bool marked = list && list->comm && slr_nvtx_begin("communicator", list->comm->name, (uint64_t)list->comm->nranks);
    bootstrap_all(list, deadline);
    /* In step: a rank that waited for the end of its own agreement before the next rank of this
     * thread had posted would wait for itself. */
    EACH(init, list)
    step_judge(init, deadline);
    EACH(init, list)
    step_commit(init, deadline);
    slr_tune_agree(list, deadline);
    slr_nvtx_end(marked);
}

void slr_inits_enlist(struct slr_init *list)
{
    for (struct slr_init *init = list, *next; init; init = next) {
        next = init->next;
        if (init->comm)
            finish_one(init);
        else
            slr_init_cancel(init);
    }
}
