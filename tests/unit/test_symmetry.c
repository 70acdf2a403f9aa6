/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: the period of random sequences of calls, the comparison of random places, and the records that carry
 * them, each against a plain way to the same answer or a construction with a known one. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/sites/phases.h"
#include "plugin/sites/published.h"

static uint64_t state = 88172645463325252u;

static unsigned below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32) % n;
}

Test(symmetry, names_are_unique)
{
    for (unsigned i = 0; i <= SLR_SITE_STATES; i++)
        for (unsigned j = 0; j < i; j++)
            cr_expect_str_neq(slr_site_state_name(i), slr_site_state_name(j));
    for (unsigned i = 0; i <= SLR_DIFFERENCES; i++)
        for (unsigned j = 0; j < i; j++)
            cr_expect_str_neq(slr_difference_name(i), slr_difference_name(j));
}

/* ---- period ---- */

enum { CALLS = 700, WIDTH = 4 };
static uint64_t tokens[CALLS][WIDTH];

static uint32_t plain_run(unsigned first, unsigned now, unsigned period, unsigned k)
{
    uint32_t n = 0;
    while (now >= first + period + n && tokens[now - n][k] == tokens[now - n - period][k])
        n++;
    return n;
}

static unsigned plain_find(unsigned first, unsigned now, bool places, unsigned least)
{
    for (unsigned p = 1; p <= SLR_PERIOD_MAX; p++)
        for (unsigned k = places ? 1 : 0; k < (places ? WIDTH : 1); k++) {
            uint32_t n = plain_run(first, now, p, k);
            if (n >= 2 * p && n >= least)
                return p;
        }
    return 0;
}

/* Periodic for a while, then of another period, with a disturbance now and then. */
static void random_tokens(void)
{
    unsigned period = 1 + below(below(2) ? 5 : 128), kinds = 1 + below(3), disturb = below(3) ? 0 : 1 + below(200);
    for (unsigned i = 0; i < CALLS; i++) {
        if (below(400) == 0)
            period = 1 + below(9);
        for (unsigned k = 0; k < WIDTH; k++)
            tokens[i][k] = i < period || (disturb && below(disturb) == 0) ? below(kinds) : tokens[i - period][k];
    }
}

Test(symmetry, the_period_is_the_smallest_that_is_confirmed)
{
    unsigned found = 0;
    for (int round = 0; round < 30; round++) {
        struct slr_period p;
        unsigned first = 0;
        random_tokens();
        cr_assert(slr_period_open(&p, WIDTH - 1));
        for (unsigned i = 0; i < CALLS; i++) {
            if (below(500) == 0) {
                slr_period_gap(&p);
                first = i;
            }
            slr_period_add(&p, tokens[i]);
            for (unsigned places = 0; places < 2; places++) {
                unsigned want = plain_find(first, i, places, 16);
                cr_assert_eq(slr_period_find(&p, places, 16), want, "round %d call %u", round, i);
                found += want > 1;
            }
        }
        slr_period_close(&p);
    }
    cr_assert_gt(found, 1000, "the sequences had periods to be found");
}

/* ---- comparison ---- */

enum { RANKS = 5 };

static struct slr_where random_place(void)
{
    return (struct slr_where){.known = true, .ordinal = below(1000), .size = 4096 + below(1000), .offset = below(4096)};
}

static void all_alike(struct slr_use *use, struct slr_where recv, struct slr_where send)
{
    for (int r = 0; r < RANKS; r++)
        use[r] = (struct slr_use){.shard = 64, .at = {[SLR_RECV] = recv, [SLR_SEND] = send}};
}

/* Changes the place in one way, and with luck in those that are looked for later; returns the way. */
static enum slr_difference disturb(struct slr_where *w)
{
    enum slr_difference what = SLR_DIFF_UNKNOWN + below(SLR_DIFFERENCES - SLR_DIFF_UNKNOWN);
    if (what <= SLR_DIFF_OFFSET && (what == SLR_DIFF_OFFSET || below(2)))
        w->offset += 1 + below(9);
    if (what <= SLR_DIFF_SIZE && (what == SLR_DIFF_SIZE || below(2)))
        w->size += 1 + below(9);
    if (what <= SLR_DIFF_ORDINAL && (what == SLR_DIFF_ORDINAL || below(2)))
        w->ordinal += 1 + below(9);
    w->known = what != SLR_DIFF_UNKNOWN;
    return what;
}

static uint64_t field(const struct slr_where *w, enum slr_difference what)
{
    return what == SLR_DIFF_ORDINAL  ? w->ordinal
           : what == SLR_DIFF_SIZE   ? w->size
           : what == SLR_DIFF_OFFSET ? w->offset
                                     : 0;
}

/* Whether the odd rank stands out against the others, or against what it was itself. */
static void check_one_odd(bool against_past)
{
    struct slr_use before[RANKS], now[RANKS];
    enum slr_side side = below(2) ? SLR_SEND : SLR_RECV, other = SLR_SEND - side;
    struct slr_where place = random_place();
    all_alike(before, place, place);
    memcpy(now, before, sizeof now);
    cr_assert_eq(slr_site_compare(before, now, RANKS, side).state, SLR_SITE_SYMMETRIC);
    cr_assert_eq(slr_site_compare(NULL, now, RANKS, side).state, SLR_SITE_FRESH);
    int odd = (int)below(RANKS);
    enum slr_difference what = disturb(&now[odd].at[side]);
    if (!against_past)
        before[odd] = now[odd];
    struct slr_finding f = slr_site_compare(before, now, RANKS, side);
    bool moves = against_past && what != SLR_DIFF_UNKNOWN;
    cr_assert_eq(f.state, moves ? SLR_SITE_MOVES : SLR_SITE_DIFFERS);
    cr_assert(f.odd_rank == odd && f.odd_ranks == 1 && f.what == what, "%d %d %d", f.odd_rank, f.odd_ranks, f.what);
    cr_assert_eq(f.value, field(&now[odd].at[side], what));
    cr_assert_eq(f.expected, field(&place, what));
    cr_assert_eq(f.like_rank, moves || what == SLR_DIFF_UNKNOWN ? -1 : odd == 0);
    cr_assert_eq(slr_site_compare(before, now, RANKS, other).state, SLR_SITE_SYMMETRIC);
}

Test(symmetry, the_odd_rank_is_named_and_how)
{
    for (int i = 0; i < 20000; i++)
        check_one_odd(i % 2 == 0);
}

Test(symmetry, the_majority_is_what_others_are_compared_with)
{
    struct slr_use now[RANKS];
    struct slr_where here = random_place(), there = here;
    there.offset++;
    all_alike(now, here, here);
    now[0].at[SLR_RECV] = now[2].at[SLR_RECV] = there;
    struct slr_finding f = slr_site_compare(now, now, RANKS, SLR_RECV);
    cr_expect(f.odd_rank == 0 && f.odd_ranks == 2 && f.like_rank == 1 && f.value == f.expected + 1);
    now[4].at[SLR_RECV] = there;
    f = slr_site_compare(now, now, RANKS, SLR_RECV);
    cr_expect(f.odd_rank == 1 && f.odd_ranks == 2 && f.like_rank == 0 && f.value + 1 == f.expected);
    f = slr_site_compare(now, now, 2, SLR_RECV); /* of two the first counts */
    cr_expect(f.odd_rank == 1 && f.odd_ranks == 1 && f.like_rank == 0);
}

Test(symmetry, a_site_remembers_since_when_and_counts_breaks)
{
    struct slr_sites s;
    struct slr_use use[RANKS];
    struct slr_where place = random_place();
    cr_assert(slr_sites_open(&s, 2, RANKS));
    all_alike(use, place, place);
    for (uint64_t call = 1; call < 20; call += 2)
        cr_assert_eq(slr_site_take(&s, 0, call, use), call == 3 ? 3 : 0);
    const struct slr_site_side *recv = &s.site[0].side[SLR_RECV];
    cr_expect(recv->since == 1 && recv->breaks == 0 && recv->moves == 0 && s.site[0].calls == 10);
    use[3].at[SLR_RECV].offset++;
    cr_expect_eq(slr_site_take(&s, 0, 21, use), 1u << SLR_RECV);
    cr_expect(recv->found.state == SLR_SITE_MOVES && recv->since == 21);
    cr_expect_eq(slr_site_take(&s, 0, 23, use), 1u << SLR_RECV);
    cr_expect(recv->found.state == SLR_SITE_DIFFERS && recv->since == 21);
    use[3].at[SLR_RECV].offset--;
    slr_site_take(&s, 0, 25, use);
    slr_site_take(&s, 0, 27, use);
    cr_expect(recv->found.state == SLR_SITE_SYMMETRIC && recv->since == 25);
    cr_expect(recv->breaks == 1 && recv->moves == 2 && recv->changes == 5);
    cr_expect(s.site[0].side[SLR_SEND].since == 1 && s.site[0].side[SLR_SEND].changes == 1);
    cr_expect_eq(s.site[1].calls, 0);
    slr_sites_close(&s);
}

/* ---- phases ---- */

/* One iteration; a site's size is one of two, so most sites can be told apart by their places only. */
struct program {
    unsigned sites;
    uint64_t shard[SLR_PERIOD_MAX];
    unsigned base; /* ordinals */
};

static struct program random_program(unsigned sites, unsigned base)
{
    struct program g = {.sites = sites, .base = base};
    for (unsigned i = 0; i < sites; i++)
        g.shard[i] = base + below(2);
    return g;
}

/* Call `n` (from 0) of the program. `moving`: a rank whose memory is never the same; -1 none, RANKS all. */
static void program_call(const struct program *g, unsigned n, int moving, struct slr_use *use)
{
    struct slr_where place = {.known = true, .ordinal = g->base + n % g->sites, .size = 1 << 20};
    all_alike(use, place, place);
    for (int r = 0; r < RANKS; r++) {
        use[r].shard = g->shard[n % g->sites];
        if (r == moving || moving == RANKS)
            use[r].at[SLR_RECV].offset = 1 + n;
    }
}

static void check_sites(const struct slr_phases *p, uint64_t first, int moving)
{
    cr_assert_eq(p->first, first);
    for (unsigned i = 0; i < p->length; i++) {
        const struct slr_site_side *recv = &p->sites.site[i].side[SLR_RECV], *send = &p->sites.site[i].side[SLR_SEND];
        cr_assert(send->found.state == SLR_SITE_SYMMETRIC && send->since == first + i && send->breaks == 0);
        cr_assert_eq(recv->found.state, moving < 0 ? SLR_SITE_SYMMETRIC : SLR_SITE_MOVES);
        if (moving >= 0)
            cr_assert_eq(recv->found.odd_rank, moving);
    }
}

/* A prologue of calls like no others, then two programs, one after the other. */
static void check_phases(unsigned prologue, unsigned sites, int moving)
{
    struct slr_phases p;
    struct slr_use use[RANKS];
    uint64_t call = 0;
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned i = 0; i < prologue; i++) {
        struct program once = {.sites = 1, .shard = {1000000 + i}, .base = 1000000 + i};
        program_call(&once, 0, -1, use);
        slr_phases_take(&p, ++call, use);
    }
    for (unsigned phase = 1; phase <= 2; phase++) {
        struct program g = random_program(sites, 10000 * phase);
        uint64_t first = call + 1, due = first + sites + (2 * sites > 16 ? 2 * sites : 16) - 1;
        for (unsigned n = 0; n < 5 * sites + 20; n++) {
            program_call(&g, n, moving, use);
            slr_phases_take(&p, ++call, use);
            cr_assert_eq(p.by == SLR_BY_PLACES && p.length == sites, call >= due, "%u sites, phase %u, call %u of %u",
                         sites, phase, (unsigned)call, (unsigned)due);
        }
        cr_assert_eq(p.phases, phase);
        check_sites(&p, first, moving);
        cr_assert_eq(slr_phases_symmetric(&p), moving < 0 ? sites : 0);
        sites = 1 + below(SLR_PERIOD_MAX);
    }
    slr_phases_close(&p);
}

Test(symmetry, phases_and_their_sites_are_found)
{
    setenv("SLIPRING_LOG", "off", 1);
    check_phases(0, SLR_PERIOD_MAX, -1);
    check_phases(7, 1, 2);
    for (int i = 0; i < 40; i++)
        check_phases(below(40), 1 + below(SLR_PERIOD_MAX), (int)below(RANKS) - 1);
}

Test(symmetry, sizes_count_when_all_ranks_move)
{
    setenv("SLIPRING_LOG", "off", 1);
    struct slr_phases p;
    struct slr_use use[RANKS];
    struct program g = {.sites = 3, .shard = {8, 8, 16}, .base = 1};
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned n = 0; n < 500; n++) {
        program_call(&g, n, RANKS, use);
        for (int r = 0; r < RANKS; r++)
            use[r].at[SLR_SEND].offset = n;
        slr_phases_take(&p, n + 1, use);
        cr_assert_eq(p.by, n + 1 >= SLR_PHASE_KNOWN ? SLR_BY_SIZES : SLR_BY_NOTHING);
    }
    cr_expect(p.length == 3 && p.first == 1 && p.phases == 1 && slr_phases_symmetric(&p) == 0);
    slr_phases_close(&p);
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned n = 0; n < 12; n++) {
        program_call(&g, n, RANKS, use);
        slr_phases_take(&p, n + 1, use);
    }
    cr_expect_eq(p.by, SLR_BY_NOTHING);
    slr_phases_end(&p);
    cr_expect(p.by == SLR_BY_SIZES && p.length == 3 && p.first == 1);
    slr_phases_close(&p);
}

/* A break costs the site its state, not its place in the iteration. */
Test(symmetry, skipped_calls_do_not_shift_the_sites)
{
    setenv("SLIPRING_LOG", "off", 1);
    struct slr_phases p;
    struct slr_use use[RANKS];
    struct program g = random_program(11, 50);
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned n = 0; n < 3000; n++) {
        if (n > 100 && n % 300 < 150)
            continue;
        program_call(&g, n, -1, use);
        slr_phases_take(&p, n + 1, use);
    }
    cr_expect_eq(p.phases, 1);
    check_sites(&p, 1, -1);
    cr_expect_eq(slr_phases_breaks(&p), 0);
    slr_phases_close(&p);
}

/* What is missing is no match: evidence begins anew. */
Test(symmetry, a_gap_is_no_evidence)
{
    setenv("SLIPRING_LOG", "off", 1);
    struct slr_phases p;
    struct slr_use use[RANKS];
    struct program g = random_program(1, 50);
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned n = 0; n < 40; n++) {
        if (n >= 10 && n < 20)
            continue;
        program_call(&g, n, -1, use);
        slr_phases_take(&p, n + 1, use);
        cr_assert_eq(p.length, n >= 20 + 16, "call %u", n + 1);
    }
    check_sites(&p, 21, -1);
    slr_phases_close(&p);
}

/* Where all buffers move all the time, a reduce-scatter is still no gather of as many bytes. */
Test(symmetry, a_reduce_scatter_is_no_gather)
{
    setenv("SLIPRING_LOG", "off", 1);
    struct slr_phases p;
    struct slr_use use[RANKS];
    cr_assert(slr_phases_open(&p, "test", 0, RANKS));
    for (unsigned n = 0; n < 60; n++) {
        all_alike(use, random_place(), random_place());
        for (int r = 0; r < RANKS; r++)
            use[r].scatter = n % 3 == 1;
        slr_phases_take(&p, n + 1, use);
    }
    slr_phases_end(&p);
    cr_assert(p.by == SLR_BY_SIZES && p.length == 3 && p.first == 1, "%u", p.length);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(p.sites.site[i].scatter, i == 1);
    /* Of a site that was a gather's: the iteration is another one. */
    all_alike(use, random_place(), random_place());
    use[0].scatter = true;
    slr_phases_take(&p, 61, use);
    cr_expect_eq(p.by, SLR_BY_NOTHING);
    slr_phases_close(&p);
}

/* ---- records ---- */

static struct slr_place place_of(uint64_t call, unsigned side)
{
    return (struct slr_place){
        .generation = call, .ordinal = (uint32_t)call + side, .size = call * 3 + side, .offset = call * 5 + side};
}

static void publish(struct slr_published *ring, uint64_t call)
{
    struct slr_place send = place_of(call, 1), recv = place_of(call, 0);
    slr_published_write(ring, call, call % 3 == 0, call * 7, call % 2, &send, &recv);
}

/* Without Criterion's assertions, which take longer than many calls of the writer. */
static bool whole(const struct slr_use *use, uint64_t call, int rank)
{
    bool same = use->shard == call * 7 && use->scatter == (call % 3 == 0) && use->in_place == call % 2;
    for (unsigned side = 0; side < SLR_SIDES; side++) {
        const struct slr_where *w = &use->at[side];
        uint64_t less = side == (use->scatter ? SLR_RECV : SLR_SEND) && use->in_place ? (uint64_t)rank * use->shard : 0;
        same &=
            w->known && w->ordinal == call + side && w->size == call * 3 + side && w->offset == call * 5 + side - less;
    }
    return same;
}

Test(symmetry, a_record_is_read_until_it_is_used_again)
{
    static struct slr_published ring[SLR_PUBLISHED];
    struct slr_use use;
    uint64_t newer = 0;
    for (uint64_t call = 1; call <= 2000; call++) {
        cr_assert_eq(slr_published_read(ring, call, 3, &use, &newer), SLR_PUBLISHED_NOT_YET);
        publish(ring, call);
        uint64_t oldest = call > SLR_PUBLISHED ? call - SLR_PUBLISHED + 1 : 1;
        cr_assert_eq(slr_published_read(ring, oldest, 3, &use, &newer), SLR_PUBLISHED_OK);
        cr_assert(whole(&use, oldest, 3));
        if (oldest > 1) {
            cr_assert_eq(slr_published_read(ring, oldest - 1, 3, &use, &newer), SLR_PUBLISHED_GONE);
            cr_assert_eq(newer, call);
        }
    }
    struct slr_place nowhere = {.offset = 4711, .size = 5};
    slr_published_write(ring, 2001, false, 64, false, &nowhere, &nowhere);
    cr_assert_eq(slr_published_read(ring, 2001, 3, &use, &newer), SLR_PUBLISHED_OK);
    cr_expect(!use.at[SLR_RECV].known && use.at[SLR_RECV].offset == 4711);
}

enum { WRITTEN = 1000000 };

static void *write_all(void *ring)
{
    for (uint64_t call = 1; call <= WRITTEN; call++)
        publish(ring, call);
    return NULL;
}

/* The reader is overtaken again and again: whatever it takes is whole. */
Test(symmetry, no_torn_record_is_taken)
{
    static struct slr_published ring[SLR_PUBLISHED];
    pthread_t writer;
    uint64_t torn = 0, next = 1;
    cr_assert_eq(pthread_create(&writer, NULL, write_all, ring), 0);
    while (next <= WRITTEN) {
        struct slr_use use;
        uint64_t newer = 0;
        enum slr_published_result r = slr_published_read(ring, next, 1, &use, &newer);
        if (r == SLR_PUBLISHED_GONE) {
            next = newer - SLR_PUBLISHED + 1; /* the very next to be overwritten */
        } else if (r == SLR_PUBLISHED_OK) {
            torn += !whole(&use, next++, 1);
        }
    }
    pthread_join(writer, NULL);
    cr_expect_eq(torn, 0);
}
