#include "plugin/tuner/channel_limit.h"

#include <stddef.h>

/* A test lets other ranks run at each of these: before every access to what the ranks share. */
#ifndef SLR_CHANNEL_LIMIT_POINT
#define SLR_CHANNEL_LIMIT_POINT() ((void)0)
#endif

/* The word: bits 63..62 state, 61..56 rank of the proposer, 55..40 its number, 39..0 place. */
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

void slr_channel_limit_init(struct slr_channel_limit *n, struct slr_channel_limit_shared *shared, int rank, int nranks)
{
    *n = (struct slr_channel_limit){.shared = shared, .rank = rank, .nranks = nranks, .place = UINT64_MAX};
}

/* Settles the calls up to the new horizon. */
static void settle(struct slr_channel_limit *n, uint64_t now)
{
    struct slr_channel_limit_shared *s = n->shared;
    n->horizon = now + SLR_CHANNEL_LIMIT_AHEAD;
    store(&s->horizon[n->rank], n->horizon);
    for (;;) {
        uint64_t word = load(&s->word);
        if ((word & STATE) == CONFIRMED)
            n->place = word & PLACE;
        if ((word & STATE) != PROPOSED || (word & PLACE) >= n->horizon || swap(&s->word, word, 0))
            return;
    }
}

bool slr_channel_limit_call(struct slr_channel_limit *n)
{
    uint64_t now = n->calls++;
    if (n->shared && n->place == UINT64_MAX && now >= n->horizon)
        settle(n, now);
    return now >= n->place;
}

static bool all_reach(struct slr_channel_limit *n, uint64_t place)
{
    for (int r = 0; r < n->nranks; r++) {
        uint64_t h = load(&n->shared->horizon[r]);
        if (h == 0 || h > place)
            return false;
    }
    return true;
}

static void propose(struct slr_channel_limit *n)
{
    struct slr_channel_limit_shared *s = n->shared;
    uint64_t place = 0;
    for (int r = 0; r < n->nranks; r++) {
        uint64_t h = load(&s->horizon[r]);
        place = h > place ? h : place;
    }
    place += SLR_CHANNEL_LIMIT_AHEAD;
    if (place > PLACE)
        return;
    uint64_t mine = PROPOSED | (uint64_t)n->rank << 56 | (uint64_t)(n->tries++ & 0xffff) << 40 | place;
    if (load(&s->word) == 0 && swap(&s->word, 0, mine))
        swap(&s->word, mine, all_reach(n, place) ? CONFIRMED | place : 0);
}

void slr_channel_limit_seen(struct slr_channel_limit *n, bool beside)
{
    n->history = (n->history << 1 | beside) & ((1u << SLR_CHANNEL_LIMIT_WINDOW) - 1);
    n->known += n->known < SLR_CHANNEL_LIMIT_WINDOW;
    if (!n->shared || n->place != UINT64_MAX || n->known < SLR_CHANNEL_LIMIT_WINDOW ||
        2 * (unsigned)__builtin_popcount(n->history) < SLR_CHANNEL_LIMIT_WINDOW)
        return;
    n->known = 0; /* the next proposal only after as many gathers again */
    propose(n);
}
