/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator a tuner belongs to, and whether the ranks' tuners decide alike.
 *
 * Match. NCCL makes the tuner inside the call that makes the communicator, but only tells how many
 * ranks and, since 2.28, a number of its own. A tuner that is made on the thread of the call
 * belongs to it: so it is with one communicator at a time. Those of a group, or of ncclCommInitAll,
 * are made on NCCL's threads: they are matched after the call, when nothing else is being made in
 * the process, by the number of ranks; where that is not certain, they stay alone.
 *
 * Agreement. Each rank posts a word of what its tuner decides by (table, settings), 0 without
 * either, in the control block. Once all ranks have posted, any that has a tuner compares, and the
 * first writes the result by compare-and-swap into the block's word `tune`, which all obey: ON, or
 * OFF with the rank that differs. A rank that dies, or is not there by the deadline, is one that
 * differs. This does not depend on whether the ring is used. Without a control block (a rank has no
 * slipring): OFF, except where NCCL counts several hosts, where nobody can compare. */
#include "plugin/lifecycle/lifecycle_impl.h"

#include <string.h>
#include "base/wait.h"
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/lifecycle/init.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/tuner/tuner.h"

/* The word `tune`: 0 undecided, ON, or OFF with a rank. */
#define ON 1u
#define OFF 0x80000000u

void slr_tune_expect(struct slr_init *init)
{
    init->expects = true;
    slr_tuner_expect(&init->tuner);
}

void slr_tune_returned(struct slr_init *init)
{
    if (init->expects)
        slr_tuner_returned(&init->tuner);
}

void slr_tune_forget(struct slr_init *init)
{
    if (init->expects)
        slr_tuner_forget(&init->tuner);
    init->expects = false;
}

/* How many inits of the list wait for a tuner of that many ranks. 0 also when they are of different
 * communicators. */
static unsigned waiting(const struct slr_init *list, size_t nranks)
{
    const struct slr_init *first = NULL;
    unsigned n = 0;
    for (const struct slr_init *init = list; init; init = init->next) {
        if (!init->expects || init->tuner || !init->comm || (size_t)init->comm->nranks != nranks)
            continue;
        if (first && memcmp(&first->key, &init->key, sizeof init->key) != 0)
            return 0;
        first = init;
        n++;
    }
    return n;
}

/* The same of the tuners that are nobody's yet. */
static unsigned unmatched(const struct slr_tuner *alone, size_t nranks)
{
    const struct slr_tuner *first = NULL;
    unsigned n = 0;
    for (const struct slr_tuner *t = alone; t; t = t->next) {
        if (t->nranks != nranks)
            continue;
        if (first && first->comm_hash != t->comm_hash)
            return 0;
        first = t;
        n++;
    }
    return n;
}

static struct slr_tuner *take(struct slr_tuner **alone, size_t nranks)
{
    struct slr_tuner **at = alone;
    while (*at && (*at)->nranks != nranks)
        at = &(*at)->next;
    struct slr_tuner *t = *at;
    if (t)
        *at = t->next;
    return t;
}

/* Which of several ranks of one process gets which tuner does not matter: they are asked the
 * same. */
static void match(struct slr_init *list, struct slr_tuner **alone)
{
    for (struct slr_init *init = list; init; init = init->next) {
        if (!init->expects || init->tuner || !init->comm)
            continue;
        size_t nranks = (size_t)init->comm->nranks;
        unsigned n = waiting(list, nranks);
        if (n == 0 || n != unmatched(*alone, nranks))
            continue;
        for (struct slr_init *same = list; same; same = same->next)
            if (same->expects && !same->tuner && same->comm && (size_t)same->comm->nranks == nranks)
                same->tuner = take(alone, nranks);
    }
}

static void put_all(struct slr_tuner *list)
{
    for (struct slr_tuner *t = list, *next; t; t = next) {
        next = t->next;
        slr_tuner_put(t);
    }
}

void slr_tune_match(struct slr_init *list)
{
    unsigned own = 0;
    for (const struct slr_init *init = list; init; init = init->next)
        own += init->expects;
    struct slr_tuner *alone = slr_tuner_take_alone(own); /* taken, so that no other thread matches them */
    match(list, &alone);
    put_all(alone);
    for (struct slr_init *init = list; init; init = init->next) {
        if (!init->tuner && init->comm && init->expects && slr_tuner_any())
            slr_log(SLR_LOG_INFO, "tune_off", "comm=%s crank=%d msg=%s", init->comm->name, init->comm->rank,
                    "its tuner can not be told from those of other communicators that are being made: NCCL's defaults");
    }
}

uint64_t slr_tune_word(const struct slr_init *init)
{
    return init->tuner ? slr_tune_state()->word : 0;
}

/* Writes the word; whoever comes first decides for all. */
static uint32_t decide_once(struct slr_control *ctl, uint32_t verdict)
{
    uint32_t word = 0;
    return atomic_compare_exchange_strong(&ctl->tune, &word, verdict) ? verdict : word;
}

/* The first rank that has not posted, or -1. */
static int missing(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (atomic_load(&c->shared.control->post[r].state) < SLR_RANK_POSTED)
            return r;
    return -1;
}

/* ON, or OFF with the first rank whose word differs from rank 0's. Only called when all have
 * posted. */
static uint32_t compare(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 1; r < c->nranks; r++)
        if (post[r].tune != post[0].tune)
            return OFF | (uint32_t)r;
    return ON;
}

/* Ranks post before anything can go wrong for them, so there is hardly ever anything to wait
 * for. */
static uint32_t decide(struct slr_comm *c, uint64_t deadline)
{
    struct slr_control *ctl = c->shared.control;
    for (;;) {
        uint32_t word = atomic_load(&ctl->tune);
        int late = missing(c);
        if (word)
            return word;
        if (late < 0)
            return decide_once(ctl, compare(c));
        slr_shared_watch_peers(&c->shared);
        if (c->shared.peer_dead[late] || slr_now_ms() >= deadline)
            return decide_once(ctl, OFF | (uint32_t)late);
        slr_sleep_ms(1);
    }
}

static void say_off(const struct slr_comm *c, uint32_t word)
{
    const struct slr_post *post = c->shared.control->post;
    int peer = (int)(word & 0xffff);
    slr_log(SLR_LOG_WARN, "tune_differs", "comm=%s crank=%d peer=%d peer_word=%016llx rank0_word=%016llx msg=%s",
            c->name, c->rank, peer, (unsigned long long)post[peer].tune, (unsigned long long)post[0].tune,
            post[peer].tune
                ? "its tune file or its settings for tuning differ from rank 0's: NCCL's defaults on all ranks"
            : post[0].tune ? "it has no tuner: NCCL's defaults on all ranks"
                           : "it has a tuner and rank 0 has none: NCCL's defaults on all ranks");
}

static void agree(struct slr_init *init, uint64_t deadline)
{
    struct slr_comm *c = init->comm;
    struct slr_tuner *t = init->tuner;
    bool several_hosts = t->nnodes > 1;
    if (atomic_load(&t->state) == SLR_TUNER_OFF)
        return;
    if (!c->shared.control || c->shared.control->magic != SLR_CONTROL_MAGIC) {
        atomic_store(&t->state, several_hosts || c->nranks == 1 ? SLR_TUNER_ON : SLR_TUNER_OFF);
        if (!several_hosts && c->nranks > 1)
            slr_log(SLR_LOG_INFO, "tune_off", "comm=%s crank=%d msg=%s", c->name, c->rank,
                    "the ranks could not compare what they tune by: NCCL's defaults");
        return;
    }
    uint32_t word = decide(c, deadline);
    if (word != ON)
        say_off(c, word);
    atomic_store(&t->state, word == ON ? SLR_TUNER_ON : SLR_TUNER_OFF);
}

void slr_tune_agree(struct slr_init *list, uint64_t deadline)
{
    for (struct slr_init *init = list; init; init = init->next)
        if (init->comm && init->tuner)
            agree(init, deadline);
}
