/* SPDX-License-Identifier: Apache-2.0 */
/* A change at one call of all ranks. agreed_change.h has the protocol and why it holds. */
#include "plugin/comm/agreed_change.h"

#include <stddef.h>

/* A test lets other ranks run at each of these: before every access to what the ranks share. */
#ifndef SLR_AGREED_POINT
#define SLR_AGREED_POINT() ((void)0)
#endif

/* The word: bits 63..62 state, 61..56 rank of the proposer, 55..48 its number, 47..40 that of the
 * change, 39..0 place. The proposer's number may come again after 256 proposals: it only has to
 * differ while one is being confirmed, which takes moments. */
#define PROPOSED (1ull << 62)
#define CONFIRMED (2ull << 62)
#define STATE (3ull << 62)
#define CHANGE(n) ((uint64_t)((n)&0xff) << 40)
#define PLACE ((1ull << 40) - 1)
_Static_assert(SLR_MAX_RANKS <= 64, "six bits for the rank");

static uint64_t load(const _Atomic uint64_t *at)
{
    SLR_AGREED_POINT();
    return atomic_load(at);
}

static void store(_Atomic uint64_t *at, uint64_t value)
{
    SLR_AGREED_POINT();
    atomic_store(at, value);
}

static bool swap(_Atomic uint64_t *at, uint64_t from, uint64_t to)
{
    SLR_AGREED_POINT();
    return atomic_compare_exchange_strong(at, &from, to);
}

static bool confirms(uint64_t word, uint32_t change)
{
    return (word & (STATE | CHANGE(UINT32_MAX))) == (CONFIRMED | CHANGE(change));
}

static void learn(struct slr_agreed *a, uint64_t word)
{
    a->place = word & PLACE;
    a->changes++;
    if (a->learn)
        a->learn(a->context);
    SLR_AGREED_POINT();
    atomic_store(&a->shared->learnt[a->rank], a->changes);
}

/* Decides the calls up to the new horizon. */
static void decide_ahead(struct slr_agreed *a, uint64_t now)
{
    struct slr_agreed_shared *s = a->shared;
    /* Stored before the word is read: the proof in the header rests on this order. */
    a->horizon = now + a->ahead;
    store(&s->horizon[a->rank], a->horizon);
    /* Again when the compare-and-swap fails: somebody has confirmed or cancelled meanwhile. */
    for (;;) {
        uint64_t word = load(&s->word);
        if (confirms(word, a->changes + 1) && (word & PLACE) < a->horizon)
            learn(a, word);
        if ((word & STATE) != PROPOSED || (word & PLACE) >= a->horizon || swap(&s->word, word, 0))
            return;
    }
}

uint64_t slr_agreed_call(struct slr_agreed *a)
{
    uint64_t now = a->calls++;
    if (a->shared && now >= a->horizon)
        decide_ahead(a, now);
    return now;
}

/* Every rank has made a call, and none has decided call `place` yet. */
static bool all_reach(struct slr_agreed *a, uint64_t place)
{
    for (int r = 0; r < a->nranks; r++) {
        uint64_t h = load(&a->shared->horizon[r]);
        if (h == 0 || h > place)
            return false;
    }
    return true;
}

static bool all_have_learnt(struct slr_agreed *a)
{
    for (int r = 0; r < a->nranks; r++) {
        SLR_AGREED_POINT();
        if (atomic_load(&a->shared->learnt[r]) != a->changes)
            return false;
    }
    return true;
}

/* Another rank's proposal goes first, and a change that this rank has yet to learn stays: until then
 * the others may be copying what belongs to it. */
static bool nothing_to_come(const struct slr_agreed *a, uint64_t word)
{
    return word == 0 || confirms(word, a->changes);
}

bool slr_agreed_ready(struct slr_agreed *a)
{
    return a->shared && all_have_learnt(a) && nothing_to_come(a, load(&a->shared->word));
}

bool slr_agreed_propose(struct slr_agreed *a)
{
    struct slr_agreed_shared *s = a->shared;
    uint64_t place = 0;
    if (!s || !all_have_learnt(a))
        return false;
    uint64_t word = load(&s->word);
    if (!nothing_to_come(a, word))
        return false;
    for (int r = 0; r < a->nranks; r++) {
        uint64_t h = load(&s->horizon[r]);
        place = h > place ? h : place;
    }
    /* So far ahead that no rank comes there while this one asks; if one does, nothing is confirmed.
     */
    place += a->ahead;
    if (place > PLACE) /* 2^40 calls */
        return false;
    uint64_t mine =
        PROPOSED | (uint64_t)a->rank << 56 | (uint64_t)(a->tries++ & 0xff) << 48 | CHANGE(a->changes + 1) | place;
    if (!swap(&s->word, word, mine))
        return false;
    bool reached = all_reach(a, place);
    return swap(&s->word, mine, reached ? mine ^ PROPOSED ^ CONFIRMED : 0) && reached;
}
