/* SPDX-License-Identifier: Apache-2.0 */
/* A change that all ranks of a communicator make at one call, although only some ranks know that it
 * is due, and nobody waits. The calls are a sequence that is the same on all ranks, counted from 0.
 * A rank proposes, and all change over at one call that none of them has decided yet. Then the next
 * change may be proposed.
 *
 * Shared by the ranks: a word, and two numbers of each rank.
 *
 *   horizon[r] = h   rank r has decided its calls below h; 0: it has made none. Written by r only,
 *                    grows.
 *   learnt[r] = n    rank r knows n changes. Written by r only, grows.
 *   word             0 nothing | PROPOSED(place, by, try, n) | CONFIRMED(place, .., n): the n-th
 *                    change is made from call `place` on
 *
 * A rank that comes to call c >= its horizon
 *   1. stores horizon c + ahead
 *   2. reads the word
 *   3. PROPOSED with place < its horizon: cancels it by compare-and-swap to 0; failing that, reads
 *      again
 *   4. CONFIRMED with the number that comes next and place < its horizon: learns it. It copies what
 *      belongs to the change (`learn`), and then stores learnt[r]. (Not earlier: it would have two
 *      changes to come.)
 *
 * A rank that proposes change n
 *   1. has written what belongs to it, when 2 held; nobody reads that before 4. (One rank proposes,
 *      or nothing belongs to the change.)
 *   2. goes on only if learnt[r] is n - 1 for all r, itself too, and the word is 0 or the CONFIRMED of
 *      change n - 1
 *   3. place = largest horizon + ahead; word -> PROPOSED(place, own rank, a number of its own, n)
 *   4. reads all horizons: each known and <= place: PROPOSED -> CONFIRMED, else PROPOSED -> 0
 *
 * All are sequentially consistent.
 *
 * Why all change over at the same call. The word becomes CONFIRMED(place, n) once for each n: 2 lets
 * no second one be proposed. Rank r decides call `place` at the one step at which its horizon passes
 * it.
 *
 *   - Its store of that horizon comes before the proposer's reading of it: then the proposer does
 *     not confirm.
 *   - Or it comes after: then r's reading of the word comes after PROPOSED was written. It sees
 *     PROPOSED, which it cancels (then the confirmation fails) or fails to cancel because it is
 *     CONFIRMED by now; or it sees CONFIRMED; or that somebody else has cancelled.
 *
 * In each case what r does and what became of the word agree. It can not miss CONFIRMED(place, n),
 * because nobody overwrites that before r has learnt it (2). The proposer's rank and number in the
 * word keep a late confirmation from hitting a second proposal of the same place.
 *
 * Why nothing waits. No step waits for another rank. A rank that has died or never calls again
 * keeps its horizon: then proposals are made that nobody reaches. Two that propose at once: one
 * compare-and-swap wins.
 *
 * What it costs: a store and a load in shared memory every `ahead` calls. A change comes `ahead` to
 * twice as many calls late. */
#ifndef SLR_PLUGIN_COMM_AGREED_CHANGE_H
#define SLR_PLUGIN_COMM_AGREED_CHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "kernels/flags.h"

struct slr_agreed_shared {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint64_t horizon[SLR_MAX_RANKS];
    _Atomic uint32_t learnt[SLR_MAX_RANKS];
};

/* Of one rank. One thread at a time. */
struct slr_agreed {
    struct slr_agreed_shared *shared; /* NULL: none in common, nothing is ever changed */
    int rank, nranks;
    uint32_t ahead;               /* calls */
    void (*learn)(void *context); /* copies what belongs to the change; NULL: nothing does */
    void *context;
    uint64_t calls;   /* number of the next call */
    uint64_t horizon; /* own */
    uint64_t place;   /* first call with the latest change; UINT64_MAX: there is none yet */
    uint32_t changes; /* learnt */
    uint32_t tries;   /* proposals so far */
};

/* The next call. Its number; the latest change holds from call `place` on, so place == number: it
 * begins with this one. */
uint64_t slr_agreed_call(struct slr_agreed *agreed);

/* Whether a change can be proposed, and what belongs to it be written: all know the one before, and
 * none is to come. */
bool slr_agreed_ready(struct slr_agreed *agreed);

/* True: the next change is confirmed. False: not now. */
bool slr_agreed_propose(struct slr_agreed *agreed);

#endif
