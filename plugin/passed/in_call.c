/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/in_call.h"

#include <stdatomic.h>

/* An entry's word: FREE, CLAIMED (its context is not there yet), or the serial with IN, and TOLD. */
#define FREE UINT64_C(0)
#define CLAIMED UINT64_C(1)
#define IN UINT64_C(2)
#define TOLD UINT64_C(4)
#define SERIAL UINT64_C(8) /* from one to the next */

static struct entry {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic(CUcontext) ctx;
    _Atomic(const struct slr_comm *) own;
    uint64_t serial; /* of the latest one; whoever is in */
    /* Under the look lock: the word, not told, that was last seen, and when, how long it counts as hung, and when it
     * was told. */
    uint64_t seen, looked, hung, told;
} entries[SLR_IN_CALL];

/* Where the thread looks first, so that threads do not share a line. */
static unsigned own_place(void)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned place __attribute__((tls_model("initial-exec")));
    if (!place)
        place = 1 + atomic_fetch_add(&threads, 1) % SLR_IN_CALL;
    return place - 1;
}

static bool claim(struct entry *e)
{
    uint64_t none = FREE;
    return atomic_load_explicit(&e->word, memory_order_relaxed) == FREE &&
           atomic_compare_exchange_strong(&e->word, &none, CLAIMED);
}

unsigned slr_in_call_enter(CUcontext ctx, const struct slr_comm *own)
{
    const unsigned first = own_place();
    for (unsigned i = 0; i < SLR_IN_CALL; i++) {
        const unsigned at = (first + i) % SLR_IN_CALL;
        struct entry *e = &entries[at];
        if (!claim(e))
            continue;
        e->serial += SERIAL;
        atomic_store_explicit(&e->ctx, ctx, memory_order_relaxed);
        atomic_store_explicit(&e->own, own, memory_order_relaxed);
        atomic_store_explicit(&e->word, e->serial | IN, memory_order_release);
        return at;
    }
    return SLR_IN_CALL;
}

bool slr_in_call_leave(unsigned entry)
{
    return entry == SLR_IN_CALL || !(atomic_exchange(&entries[entry].word, FREE) & TOLD);
}

/* Another look at the same call: what lies between two looks counts, but no more than looks usually have. */
static void count(struct entry *e, uint64_t word, uint64_t now)
{
    const uint64_t passed = now - e->looked;
    if (e->seen == (word & ~TOLD))
        e->hung += passed < SLR_IN_CALL_LOOK_MS ? passed : SLR_IN_CALL_LOOK_MS;
    else
        e->hung = 0;
    e->seen = word & ~TOLD;
    e->looked = now;
}

/* Whether this call returns the error; tells it when it has been in for long enough. */
static bool tell(struct entry *e, uint64_t word, uint64_t now, uint64_t limit)
{
    if (word & TOLD)
        return true;
    if (!limit)
        return false;
    count(e, word, now);
    if (e->hung < limit || !atomic_compare_exchange_strong(&e->word, &word, word | TOLD))
        return false;
    e->told = now;
    return true;
}

enum slr_in_call slr_in_call_tell(CUcontext ctx, uint64_t now, uint64_t limit)
{
    enum slr_in_call most = SLR_IN_CALL_NONE;
    for (unsigned i = 0; i < SLR_IN_CALL; i++) {
        struct entry *e = &entries[i];
        const uint64_t word = atomic_load(&e->word);
        if (!(word & IN) || atomic_load_explicit(&e->ctx, memory_order_relaxed) != ctx || !tell(e, word, now, limit))
            continue;
        if (most == SLR_IN_CALL_NONE)
            most = SLR_IN_CALL_TOLD;
        if (now - e->told >= SLR_IN_CALL_HELD_MS)
            most = SLR_IN_CALL_HELD;
    }
    return most;
}

bool slr_in_call_tell_own(const struct slr_comm *c, uint64_t now, uint64_t *since)
{
    bool any = false;
    *since = 0;
    for (unsigned i = 0; i < SLR_IN_CALL; i++) {
        struct entry *e = &entries[i];
        uint64_t word = atomic_load(&e->word);
        if (!(word & IN) || atomic_load_explicit(&e->own, memory_order_relaxed) != c)
            continue;
        if (!(word & TOLD)) {
            if (!atomic_compare_exchange_strong(&e->word, &word, word | TOLD))
                continue;
            e->told = now;
        }
        any = true;
        *since = now - e->told > *since ? now - e->told : *since;
    }
    return any;
}
