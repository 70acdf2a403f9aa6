/* SPDX-License-Identifier: Apache-2.0 */
/* A tuner from NCCL's init to its finalize, and what it answers (tuner.h). */
#include "plugin/tuner/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/tuner/tune_table.h"
#include "plugin/util/process.h"

_Thread_local bool slr_tuner_simulating __attribute__((tls_model("initial-exec")));

/* One line for NCCL's log and one for slipring's, so that a user sees who tunes. */
static void introduce(int version, slr_nccl_logger log, bool hooked)
{
    if (slr_process_off()) {
        if (slr_log_first(0x74756e65))
            slr_log(SLR_LOG_INFO, "tuner", "interface=v%d msg=%s", version,
                    "NCCL has loaded this library as its tuner; it is switched off: NCCL's defaults");
        return;
    }
    const struct slr_tune_state *s = slr_tune_state();
    if (log)
        log(SLR_NCCL_LOG_INFO, SLR_NCCL_SUBSYS_INIT | SLR_NCCL_SUBSYS_TUNING, __FILE__, __LINE__,
            "slipring tuner: %zu rules%s%s", s->table->count, s->path[0] ? " of " : "", s->path);
    /* The key is "tune" in ASCII, so that no other line has it. One line for each case: `hooked`
     * changes when the program makes its first communicator through a hook. */
    if (slr_log_first(slr_mix(0x74756e65, hooked)))
        slr_log(SLR_LOG_INFO, "tuner", "interface=v%d interposed=%d msg=%s", version, (int)hooked,
                hooked ? "NCCL has loaded this library as its tuner"
                       : "only named in the environment, not preloaded: tuner alone, no call is substituted, and "
                         "nothing compares the tables of the ranks");
}

struct slr_tuner *slr_tuner_new(int version, uint64_t comm_hash, size_t nranks, size_t nnodes, bool hooked,
                                slr_nccl_logger log)
{
    struct slr_tuner *tuner = calloc(1, sizeof *tuner);
    if (!tuner)
        return NULL;
    introduce(version, log, hooked);
    atomic_store(&tuner->refs, 1); /* NCCL's */
    tuner->comm_hash = comm_hash;
    tuner->nranks = nranks;
    tuner->nnodes = nnodes;
    pthread_mutex_init(&tuner->lock, NULL);
    /* Hooked, it stays WAITING, which is 0, until its communicator has agreed. Not hooked, nobody
     * will ever tell it: the user answers for equal tables. */
    if (slr_process_off())
        atomic_store(&tuner->state, SLR_TUNER_OFF);
    else if (!hooked)
        atomic_store(&tuner->state, SLR_TUNER_ON);
    return tuner;
}

static void hold(struct slr_tuner *tuner)
{
    atomic_fetch_add(&tuner->refs, 1);
}

void slr_tuner_put(struct slr_tuner *tuner)
{
    /* NCCL may finalize it while its communicator is being made: the later one frees. */
    if (!tuner || atomic_fetch_sub(&tuner->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&tuner->lock);
    free(tuner);
}

/* Where a decision comes from, for the log. */
struct origin {
    const char *file; /* NULL: `word` says it */
    int line;
    const char *word;
};

static void say(const struct slr_tuner *tuner, const struct slr_tuner_ask *ask, const struct slr_tuner_choice *choice,
                const struct origin *from)
{
    /* One line for each power of two: a program may have many sizes. */
    uint64_t size_class = ask->bytes ? 63 - (uint64_t)__builtin_clzll(ask->bytes) : 0;
    uint64_t key =
        slr_mix(slr_mix(tuner->comm_hash, size_class), (uint64_t)ask->func << 32 | (uint64_t)ask->registered);
    key = slr_mix(key, (uint64_t)(choice->algo + 1) << 32 | (uint64_t)(choice->proto + 1) << 16 |
                           (uint64_t)choice->channels);
    if (!slr_log_enabled(SLR_LOG_INFO) || !slr_log_first(slr_mix(key, (uint64_t)(uintptr_t)tuner)))
        return;
    char where[512];
    if (from->file)
        snprintf(where, sizeof where, "%s:%d", from->file, from->line);
    slr_log(
        SLR_LOG_INFO, "tuned",
        "comm_hash=%016llx func=%s bytes=%zu nranks=%zu nnodes=%zu registered=%d algo=%s proto=%s channels=%d from=%s",
        (unsigned long long)tuner->comm_hash, slr_tune_func_name(ask->func), ask->bytes, tuner->nranks, tuner->nnodes,
        (int)ask->registered, slr_tune_algo_name(choice->algo), slr_tune_proto_name(choice->proto), choice->channels,
        from->file ? where : from->word);
}

/* The cheapest entry that NCCL has not excluded, of the given algorithm and protocol (-1: any). -1:
 * none. Costs are microseconds; a negative one is excluded. */
static int cheapest(const struct slr_tuner_ask *ask, int algo, int proto)
{
    int best = -1;
    for (int i = 0; i < ask->algos * ask->protos; i++) {
        bool fits = (algo < 0 || i / ask->protos == algo) && (proto < 0 || i % ask->protos == proto);
        if (fits && ask->cost[i] >= 0 && (best < 0 || ask->cost[i] < ask->cost[best]))
            best = i;
    }
    return best;
}

static bool is_collnet(int algo)
{
    return algo == SLR_NCCL_COLLNET_DIRECT || algo == SLR_NCCL_COLLNET_CHAIN;
}

/* v2 has no costs: both or neither, and what the two flags allow. */
static bool allow_v2(const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice)
{
    bool possible = (!is_collnet(choice->algo) || ask->collnet) &&
                    ((choice->algo != SLR_NCCL_NVLS && choice->algo != SLR_NCCL_NVLS_TREE) || ask->nvls);
    if (choice->algo < 0 || choice->proto < 0)
        choice->algo = choice->proto = -1;
    return possible;
}

/* Turns a wish into what NCCL can do. False: it has excluded that for this call. */
static bool allow(const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice)
{
    if (!ask->cost)
        return allow_v2(ask, choice);
    int best = cheapest(ask, choice->algo, choice->proto);
    if (best < 0)
        return false;
    bool wished = choice->algo >= 0 || choice->proto >= 0;
    /* Without a wish `best` is what NCCL will take, and decides only about the channels. */
    if (is_collnet(best / ask->protos))
        choice->channels = 0; /* NCCL does not bound them there */
    if (wished) {
        choice->algo = best / ask->protos;
        choice->proto = best % ask->protos;
        ask->cost[best] = 0; /* NCCL takes the cheapest entry */
    }
    return true;
}

/* A rule asks for what NCCL does not offer for this call. Once for each rule and function. */
static void excluded(const struct slr_tuner_ask *ask, const struct slr_tuner_choice *choice, const struct origin *from)
{
    if (!slr_log_first(slr_mix(slr_mix(0x6578636c, (uint64_t)from->line), (uint64_t)ask->func)))
        return;
    slr_log(SLR_LOG_WARN, "tune_rule_unusable", "file=%s line=%d func=%s bytes=%zu algo=%s proto=%s msg=%s", from->file,
            from->line, slr_tune_func_name(ask->func), ask->bytes, slr_tune_algo_name(choice->algo),
            slr_tune_proto_name(choice->proto), "NCCL has excluded this for the call: NCCL's choice stays");
}

/* Whether the table or the exploration has a wish. */
static bool wish(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice,
                 struct origin *from)
{
    const struct slr_tune_state *s = slr_tune_state();
    struct slr_tune_call call = {ask->func, ask->bytes, tuner->nranks, tuner->nnodes, ask->registered};
    /* Also while exploring: the candidate to be confirmed is the rule's. */
    const struct slr_tune_rule *r = slr_tune_find(s->table, &call);
    /* Measuring comes before the table, which it is to make or to confirm. */
    if (slr_explore_choose(tuner, ask, r, choice)) {
        *from = (struct origin){.word = "explore"};
        return true;
    }
    if (!r)
        return false;
    *choice = (struct slr_tuner_choice){r->algo, r->proto, r->channels};
    *from = (struct origin){s->path, r->line, NULL};
    return true;
}

static void choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice)
{
    static const struct slr_tuner_choice nothing = {-1, -1, 0};
    struct origin from = {0};
    bool wished = wish(tuner, ask, choice, &from);
    if (wished) {
        struct slr_tuner_choice asked = *choice;
        wished = allow(ask, choice);
        if (!wished && from.file)
            excluded(ask, &asked, &from);
        else if (!wished)
            slr_explore_drop();
    }
    if (!wished)
        *choice = nothing;
    if (wished)
        say(tuner, ask, choice, &from);
}

void slr_tuner_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice)
{
    *choice = (struct slr_tuner_choice){-1, -1, 0};
    if (atomic_load_explicit(&tuner->state, memory_order_acquire) != SLR_TUNER_ON || slr_tuner_simulating ||
        slr_process_off())
        return;
    /* The application's threads come here, too: slr_tuner_gather_passes(). */
    pthread_mutex_lock(&tuner->lock);
    choose(tuner, ask, choice);
    pthread_mutex_unlock(&tuner->lock);
}

/* ---- whose tuner is it? NCCL does not say, so it is told by the thread, or by what else is being made ---- */

static _Atomic bool hooked, loaded; /* loaded: by NCCL. Both stay true */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_tuner *alone; /* made on a thread of NCCL's; a reference each; under the lock */
static unsigned expecting;      /* communicators being made in this process; under the lock */

/* Of the communicator that this thread began to make last. */
static _Thread_local struct slr_tuner **current __attribute__((tls_model("initial-exec")));

void slr_tuner_hook_called(void)
{
    atomic_store_explicit(&hooked, true, memory_order_relaxed);
}

bool slr_tuner_hooked(void)
{
    return atomic_load_explicit(&hooked, memory_order_relaxed);
}

bool slr_tuner_any(void)
{
    return atomic_load(&loaded);
}

/* While the count is more than the caller's own, a tuner from NCCL's threads may be another's. */
void slr_tuner_expect(struct slr_tuner **slot)
{
    pthread_mutex_lock(&lock);
    expecting++;
    pthread_mutex_unlock(&lock);
    current = slot;
}

void slr_tuner_returned(struct slr_tuner **slot)
{
    if (current == slot)
        current = NULL;
}

void slr_tuner_forget(struct slr_tuner **slot)
{
    slr_tuner_returned(slot);
    pthread_mutex_lock(&lock);
    expecting--;
    pthread_mutex_unlock(&lock);
    slr_tuner_put(*slot);
    *slot = NULL;
}

void slr_tuner_made(struct slr_tuner *tuner)
{
    hold(tuner);
    atomic_store(&loaded, true);
    /* On this thread NCCL makes the communicator that the thread has announced. */
    if (current && !*current) {
        *current = tuner;
        return;
    }
    /* On a thread of its own, as in groups: it waits until it can be matched. */
    pthread_mutex_lock(&lock);
    tuner->next = alone;
    alone = tuner;
    pthread_mutex_unlock(&lock);
}

struct slr_tuner *slr_tuner_take_alone(unsigned own)
{
    struct slr_tuner *taken = NULL;
    pthread_mutex_lock(&lock);
    /* Else they stay on the list, until only one caller is left that waits for any. */
    if (expecting == own) {
        taken = alone;
        alone = NULL;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}
