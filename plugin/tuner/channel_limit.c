/* SPDX-License-Identifier: Apache-2.0 */
/* The change to fewer channels at one call of all ranks. channel_limit.h has the protocol and why
 * it holds. */
#include "plugin/tuner/channel_limit.h"

#include <stddef.h>

/* A test lets other ranks run at each of these: before every access to what the ranks share. */
#ifndef SLR_CHANNEL_LIMIT_POINT
#define SLR_CHANNEL_LIMIT_POINT() ((void)0)
#endif

/* The word: bits 63..62 state, 61..56 rank of the proposer, 55..40 its number, 39..0 place. The
 * number may come again after 65,536 proposals: it only has to differ while one is being confirmed,
 * which takes moments. */
#define PROPOSED (1ull << 62)
#define CONFIRMED (2ull << 62)
#define STATE (3ull << 62)
#define PLACE ((1ull << 40) - 1)
_Static_assert(SLR_MAX_RANKS <= 64, "six bits for the rank");

static uint64_t load(const _Atomic uint64_t *at)
{
    SLR_CHANNEL_LIMIT_POINT();
    return atomic_load(at);
}

static void store(_Atomic uint64_t *at, uint64_t value)
{
    SLR_CHANNEL_LIMIT_POINT();
    atomic_store(at, value);
}

static bool swap(_Atomic uint64_t *at, uint64_t from, uint64_t to)
{
    SLR_CHANNEL_LIMIT_POINT();
    return atomic_compare_exchange_strong(at, &from, to);
}

void slr_channel_limit_init(struct slr_channel_limit *limit, struct slr_channel_limit_shared *shared, int rank,
                            int nranks)
{
    *limit = (struct slr_channel_limit){.shared = shared, .rank = rank, .nranks = nranks, .place = UINT64_MAX};
}

/* Settles the calls up to the new horizon. */
static void settle(struct slr_channel_limit *limit, uint64_t now)
{
    struct slr_channel_limit_shared *s = limit->shared;
    /* Stored before the word is read: the proof in the header rests on this order. */
    limit->horizon = now + SLR_CHANNEL_LIMIT_AHEAD;
    store(&s->horizon[limit->rank], limit->horizon);
    /* Again when the compare-and-swap fails: somebody has confirmed or cancelled meanwhile. */
    for (;;) {
        uint64_t word = load(&s->word);
        if ((word & STATE) == CONFIRMED)
            limit->place = word & PLACE;
        if ((word & STATE) != PROPOSED || (word & PLACE) >= limit->horizon || swap(&s->word, word, 0))
            return;
    }
}

/* Usually one comparison: shared memory is touched once in SLR_CHANNEL_LIMIT_AHEAD calls. */
bool slr_channel_limit_call(struct slr_channel_limit *limit)
{
    uint64_t now = limit->calls++;
    if (limit->shared && limit->place == UINT64_MAX && now >= limit->horizon)
        settle(limit, now);
    return now >= limit->place;
}

/* Every rank has made a call, and none has settled call `place` yet. */
static bool all_reach(struct slr_channel_limit *limit, uint64_t place)
{
    for (int r = 0; r < limit->nranks; r++) {
        uint64_t h = load(&limit->shared->horizon[r]);
        if (h == 0 || h > place)
            return false;
    }
    return true;
}

static void propose(struct slr_channel_limit *limit)
{
    struct slr_channel_limit_shared *s = limit->shared;
    uint64_t place = 0;
    for (int r = 0; r < limit->nranks; r++) {
        uint64_t h = load(&s->horizon[r]);
        place = h > place ? h : place;
    }
    /* So far ahead that no rank comes there while this one asks; if one does, nothing is confirmed.
     */
    place += SLR_CHANNEL_LIMIT_AHEAD;
    if (place > PLACE) /* 2^40 calls */
        return;
    uint64_t mine = PROPOSED | (uint64_t)limit->rank << 56 | (uint64_t)(limit->tries++ & 0xffff) << 40 | place;
    /* Only in place of nothing: another rank's proposal goes first, and CONFIRMED is for good. */
    if (load(&s->word) == 0 && swap(&s->word, 0, mine))
        swap(&s->word, mine, all_reach(limit, place) ? CONFIRMED | place : 0);
}

void slr_channel_limit_seen(struct slr_channel_limit *limit, bool beside)
{
    /* Half of a window, as one GEMM beside a gather may be chance and the change is for good. */
    limit->history = (limit->history << 1 | beside) & ((1u << SLR_CHANNEL_LIMIT_WINDOW) - 1);
    limit->known += limit->known < SLR_CHANNEL_LIMIT_WINDOW;
    if (!limit->shared || limit->place != UINT64_MAX || limit->known < SLR_CHANNEL_LIMIT_WINDOW ||
        2 * (unsigned)__builtin_popcount(limit->history) < SLR_CHANNEL_LIMIT_WINDOW)
        return;
    limit->known = 0; /* the next proposal only after as many gathers again */
    propose(limit);
}
