/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: the period of random sequences of calls and the comparison of random places, each against a plain way to
 * the same answer or a construction with a known one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "tools/symmetry/phases.h"

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
    for (unsigned i = 0; i <= SYM_SITE_STATES; i++)
        for (unsigned j = 0; j < i; j++)
            cr_expect_str_neq(sym_site_state_name(i), sym_site_state_name(j));
    for (unsigned i = 0; i <= SYM_DIFFERENCES; i++)
        for (unsigned j = 0; j < i; j++)
            cr_expect_str_neq(sym_difference_name(i), sym_difference_name(j));
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
    for (unsigned p = 1; p <= SYM_PERIOD_MAX; p++)
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
        struct sym_period p;
        unsigned first = 0;
        random_tokens();
        cr_assert(sym_period_open(&p, WIDTH - 1));
        for (unsigned i = 0; i < CALLS; i++) {
            if (below(500) == 0) {
                sym_period_gap(&p);
                first = i;
            }
            sym_period_add(&p, tokens[i]);
            for (unsigned places = 0; places < 2; places++) {
                unsigned want = plain_find(first, i, places, 16);
                cr_assert_eq(sym_period_find(&p, places, 16), want, "round %d call %u", round, i);
                found += want > 1;
            }
        }
        sym_period_close(&p);
    }
    cr_assert_gt(found, 1000, "the sequences had periods to be found");
}

/* ---- comparison ---- */

enum { RANKS = 5 };

static struct sym_where random_place(void)
{
    return (struct sym_where){.known = true, .ordinal = below(1000), .size = 4096 + below(1000), .offset = below(4096)};
}

static void all_alike(struct sym_use *use, struct sym_where recv, struct sym_where send)
{
    for (int r = 0; r < RANKS; r++)
        use[r] = (struct sym_use){.shard = 64, .at = {[SYM_RECV] = recv, [SYM_SEND] = send}};
}

/* Changes the place in one way, and with luck in those that are looked for later; returns the way. */
static enum sym_difference disturb(struct sym_where *w)
{
    enum sym_difference what = SYM_DIFF_UNKNOWN + below(SYM_DIFFERENCES - SYM_DIFF_UNKNOWN);
    if (what <= SYM_DIFF_OFFSET && (what == SYM_DIFF_OFFSET || below(2)))
        w->offset += 1 + below(9);
    if (what <= SYM_DIFF_SIZE && (what == SYM_DIFF_SIZE || below(2)))
        w->size += 1 + below(9);
    if (what <= SYM_DIFF_ORDINAL && (what == SYM_DIFF_ORDINAL || below(2)))
        w->ordinal += 1 + below(9);
    w->known = what != SYM_DIFF_UNKNOWN;
    w->many = what == SYM_DIFF_MANY;
    return what;
}

static uint64_t field(const struct sym_where *w, enum sym_difference what)
{
    return what == SYM_DIFF_ORDINAL  ? w->ordinal
           : what == SYM_DIFF_SIZE   ? w->size
           : what == SYM_DIFF_OFFSET ? w->offset
                                     : 0;
}

/* Whether the odd rank stands out against the others, or against what it was itself. */
static void check_one_odd(bool against_past)
{
    struct sym_use before[RANKS], now[RANKS];
    enum sym_side side = below(2) ? SYM_SEND : SYM_RECV, other = SYM_SEND - side;
    struct sym_where place = random_place();
    all_alike(before, place, place);
    memcpy(now, before, sizeof now);
    cr_assert_eq(sym_site_compare(before, now, RANKS, side).state, SYM_SITE_SYMMETRIC);
    cr_assert_eq(sym_site_compare(NULL, now, RANKS, side).state, SYM_SITE_FRESH);
    int odd = (int)below(RANKS);
    enum sym_difference what = disturb(&now[odd].at[side]);
    if (!against_past)
        before[odd] = now[odd];
    struct sym_finding f = sym_site_compare(before, now, RANKS, side);
    /* What is known of too many places differs from itself as well. */
    bool moves = what == SYM_DIFF_MANY || (against_past && what != SYM_DIFF_UNKNOWN);
    cr_assert_eq(f.state, moves ? SYM_SITE_MOVES : SYM_SITE_DIFFERS);
    cr_assert(f.odd_rank == odd && f.odd_ranks == 1 && f.what == what, "%d %d %d", f.odd_rank, f.odd_ranks, f.what);
    cr_assert_eq(f.value, field(&now[odd].at[side], what));
    cr_assert_eq(f.expected, field(&place, what));
    cr_assert_eq(f.like_rank, moves || what == SYM_DIFF_UNKNOWN ? -1 : odd == 0);
    cr_assert_eq(sym_site_compare(before, now, RANKS, other).state, SYM_SITE_SYMMETRIC);
}

Test(symmetry, the_odd_rank_is_named_and_how)
{
    for (int i = 0; i < 20000; i++)
        check_one_odd(i % 2 == 0);
}

Test(symmetry, the_majority_is_what_others_are_compared_with)
{
    struct sym_use now[RANKS];
    struct sym_where here = random_place(), there = here;
    there.offset++;
    all_alike(now, here, here);
    now[0].at[SYM_RECV] = now[2].at[SYM_RECV] = there;
    struct sym_finding f = sym_site_compare(now, now, RANKS, SYM_RECV);
    cr_expect(f.odd_rank == 0 && f.odd_ranks == 2 && f.like_rank == 1 && f.value == f.expected + 1);
    now[4].at[SYM_RECV] = there;
    f = sym_site_compare(now, now, RANKS, SYM_RECV);
    cr_expect(f.odd_rank == 1 && f.odd_ranks == 2 && f.like_rank == 0 && f.value + 1 == f.expected);
    f = sym_site_compare(now, now, 2, SYM_RECV); /* of two the first counts */
    cr_expect(f.odd_rank == 1 && f.odd_ranks == 1 && f.like_rank == 0);
}

Test(symmetry, a_site_remembers_since_when_and_counts_breaks)
{
    struct sym_sites s;
    struct sym_use use[RANKS];
    struct sym_where place = random_place();
    cr_assert(sym_sites_open(&s, 2, RANKS));
    all_alike(use, place, place);
    for (uint64_t call = 1; call < 20; call += 2)
        cr_assert_eq(sym_site_take(&s, 0, call, use), call == 3 ? 3 : 0);
    const struct sym_site_side *recv = &s.site[0].side[SYM_RECV];
    cr_expect(recv->since == 1 && recv->breaks == 0 && recv->moves == 0 && s.site[0].calls == 10);
    use[3].at[SYM_RECV].offset++;
    cr_expect_eq(sym_site_take(&s, 0, 21, use), 1u << SYM_RECV);
    cr_expect(recv->found.state == SYM_SITE_MOVES && recv->since == 21);
    cr_expect_eq(sym_site_take(&s, 0, 23, use), 1u << SYM_RECV);
    cr_expect(recv->found.state == SYM_SITE_DIFFERS && recv->since == 21);
    use[3].at[SYM_RECV].offset--;
    sym_site_take(&s, 0, 25, use);
    sym_site_take(&s, 0, 27, use);
    cr_expect(recv->found.state == SYM_SITE_SYMMETRIC && recv->since == 25);
    cr_expect(recv->breaks == 1 && recv->moves == 2 && recv->changes == 5);
    cr_expect(s.site[0].side[SYM_SEND].since == 1 && s.site[0].side[SYM_SEND].changes == 1);
    cr_expect_eq(s.site[1].calls, 0);
    sym_sites_close(&s);
}

/* ---- phases ---- */

/* One iteration; a site's size is one of two, so most sites can be told apart by their places only. */
struct program {
    unsigned sites;
    uint64_t shard[SYM_PERIOD_MAX];
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
static void program_call(const struct program *g, unsigned n, int moving, struct sym_use *use)
{
    struct sym_where place = {.known = true, .ordinal = g->base + n % g->sites, .size = 1 << 20};
    all_alike(use, place, place);
    for (int r = 0; r < RANKS; r++) {
        use[r].shard = g->shard[n % g->sites];
        if (r == moving || moving == RANKS)
            use[r].at[SYM_RECV].offset = 1 + n;
    }
}

static unsigned over;

static void count_over(void *ctx, const struct sym_phases *p)
{
    (void)ctx;
    over += p->by != SYM_BY_NOTHING && p->sites.count == p->length;
}

static void check_sites(const struct sym_phases *p, uint64_t first, int moving)
{
    cr_assert_eq(p->first, first);
    for (unsigned i = 0; i < p->length; i++) {
        const struct sym_site_side *recv = &p->sites.site[i].side[SYM_RECV], *send = &p->sites.site[i].side[SYM_SEND];
        cr_assert(send->found.state == SYM_SITE_SYMMETRIC && send->since == first + i && send->breaks == 0);
        cr_assert_eq(recv->found.state, moving < 0 ? SYM_SITE_SYMMETRIC : SYM_SITE_MOVES);
        if (moving >= 0)
            cr_assert_eq(recv->found.odd_rank, moving);
    }
}

/* A prologue of calls like no others, then two programs, one after the other. */
static void check_phases(unsigned prologue, unsigned sites, int moving)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    uint64_t call = 0;
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned i = 0; i < prologue; i++) {
        struct program once = {.sites = 1, .shard = {1000000 + i}, .base = 1000000 + i};
        program_call(&once, 0, -1, use);
        sym_phases_take(&p, ++call, use);
    }
    for (unsigned phase = 1; phase <= 2; phase++) {
        struct program g = random_program(sites, 10000 * phase);
        uint64_t first = call + 1, due = first + sites + (2 * sites > 16 ? 2 * sites : 16) - 1;
        for (unsigned n = 0; n < 5 * sites + 20; n++) {
            program_call(&g, n, moving, use);
            sym_phases_take(&p, ++call, use);
            cr_assert_eq(p.by == SYM_BY_PLACES && p.length == sites, call >= due, "%u sites, phase %u, call %u of %u",
                         sites, phase, (unsigned)call, (unsigned)due);
        }
        cr_assert_eq(p.phases, phase);
        check_sites(&p, first, moving);
        cr_assert_eq(sym_phases_symmetric(&p), moving < 0 ? sites : 0);
        sites = 1 + below(SYM_PERIOD_MAX);
    }
    sym_phases_close(&p);
}

Test(symmetry, phases_and_their_sites_are_found)
{
    check_phases(0, SYM_PERIOD_MAX, -1);
    check_phases(7, 1, 2);
    for (int i = 0; i < 40; i++)
        check_phases(below(40), 1 + below(SYM_PERIOD_MAX), (int)below(RANKS) - 1);
}

Test(symmetry, sizes_count_when_all_ranks_move)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    struct program g = {.sites = 3, .shard = {8, 8, 16}, .base = 1};
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 500; n++) {
        program_call(&g, n, RANKS, use);
        for (int r = 0; r < RANKS; r++)
            use[r].at[SYM_SEND].offset = n;
        sym_phases_take(&p, n + 1, use);
        cr_assert_eq(p.by, n + 1 >= SYM_PHASE_KNOWN ? SYM_BY_SIZES : SYM_BY_NOTHING);
    }
    cr_expect(p.length == 3 && p.first == 1 && p.phases == 1 && sym_phases_symmetric(&p) == 0);
    sym_phases_close(&p);
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 12; n++) {
        program_call(&g, n, RANKS, use);
        sym_phases_take(&p, n + 1, use);
    }
    cr_expect_eq(p.by, SYM_BY_NOTHING);
    sym_phases_end(&p);
    cr_expect(p.by == SYM_BY_SIZES && p.length == 3 && p.first == 1);
    sym_phases_close(&p);
}

/* A break costs the site its state, not its place in the iteration. */
Test(symmetry, skipped_calls_do_not_shift_the_sites)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    struct program g = random_program(11, 50);
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 3000; n++) {
        if (n > 100 && n % 300 < 150)
            continue;
        program_call(&g, n, -1, use);
        sym_phases_take(&p, n + 1, use);
    }
    cr_expect_eq(p.phases, 1);
    check_sites(&p, 1, -1);
    cr_expect_eq(sym_phases_breaks(&p), 0);
    sym_phases_close(&p);
}

/* What is missing is no match: evidence begins anew. */
Test(symmetry, a_gap_is_no_evidence)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    struct program g = random_program(1, 50);
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 40; n++) {
        if (n >= 10 && n < 20)
            continue;
        program_call(&g, n, -1, use);
        sym_phases_take(&p, n + 1, use);
        cr_assert_eq(p.length, n >= 20 + 16, "call %u", n + 1);
    }
    check_sites(&p, 21, -1);
    sym_phases_close(&p);
}

/* Most calls of an iteration are alike: behind a gap they look like an iteration of one call. */
Test(symmetry, behind_a_gap_a_phase_stays_while_nothing_denies_it)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    uint64_t phases = 0;
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 3300; n++) {
        struct sym_where place = {.known = true, .ordinal = n % 30 == 29, .size = 1 << 20};
        all_alike(use, place, place);
        if (n >= 300 && n < 3000)
            continue;
        sym_phases_take(&p, n + 1, use);
        phases = n < 300 ? p.phases : phases;
        cr_assert(n < 200 || (p.phases == phases && p.length == 30), "call %u", n + 1);
    }
    sym_phases_close(&p);
}

/* Where all buffers move all the time, a reduce-scatter is still no gather of as many bytes. */
Test(symmetry, a_reduce_scatter_is_no_gather)
{
    struct sym_phases p;
    struct sym_use use[RANKS];
    cr_assert(sym_phases_open(&p, RANKS, count_over, NULL));
    for (unsigned n = 0; n < 60; n++) {
        all_alike(use, random_place(), random_place());
        for (int r = 0; r < RANKS; r++)
            use[r].op = n % 3 == 1 ? SLR_REDUCE_SCATTER : SLR_ALL_GATHER;
        sym_phases_take(&p, n + 1, use);
    }
    sym_phases_end(&p);
    cr_assert(p.by == SYM_BY_SIZES && p.length == 3 && p.first == 1, "%u", p.length);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(p.sites.site[i].op, i == 1 ? SLR_REDUCE_SCATTER : SLR_ALL_GATHER);
    /* Of a site that was a gather's: the iteration is another one. */
    all_alike(use, random_place(), random_place());
    use[0].op = SLR_ALL_REDUCE;
    sym_phases_take(&p, 61, use);
    cr_expect_eq(p.by, SYM_BY_NOTHING);
    sym_phases_close(&p);
}
