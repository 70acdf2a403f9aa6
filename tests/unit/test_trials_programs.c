/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose calls come with several GEMMs in turn. */
#include <string.h>
#include "trials_play.h"

TestSuite(trials_programs, .init = trials_open, .fini = trials_close);

/* Each GEMM is measured in each way, whatever the period, but where there are more of them than rows. */
static void all_are_measured(const char *gemms_of, unsigned gemms)
{
    program = gemms_of;
    const int period = (int)strlen(program), run = 1 + ((int)SLR_TRIAL_RUN + period - 2) / period * period;
    model.nccl = 8, model.pace = 2, model.parts[3] = 1;
    go(48 + 3 * SLR_WAYS * run + 40);
    cr_expect_eq(ranks[0].comm.trials->in_force.period[0], (uint32_t)period);
    cr_expect_eq(in_stage(0, -1), 3 * SLR_WAYS * run);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(control_rows(r), gemms);
        for (uint32_t i = 0; i < control_rows(r); i++)
            for (int w = 0; w < SLR_WAYS; w++)
                cr_expect_gt(ranks[0].comm.trials->shared->post[r].site[0].row[i].ms[w], 0,
                             "%s: rank %d, row %u, way %d", program, r, i, w);
    }
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
}

Test(trials_programs, two_gemms_in_turn)
{
    all_are_measured("ab", 2);
}

Test(trials_programs, three_layers_forward_and_backward)
{
    all_are_measured("abcabccba", 3);
}

Test(trials_programs, a_long_period)
{
    all_are_measured("aabbccddeeff", 6);
}

/* ---- random programs ---- */

static uint64_t drawn;

static double draw(double from, double to)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return from + (to - from) * (double)(drawn >> 40) / (double)(1 << 24);
}

/* The best number of parts, and what it takes. */
static uint32_t best(const struct model *m, double *ms)
{
    static const uint32_t parts[] = {1, 2, 3, 4, 6};
    uint32_t found = 0;
    *ms = m->pace;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (m->parts[parts[i]] < *ms) {
            *ms = m->parts[parts[i]];
            found = parts[i];
        }
    return found;
}

static struct model a_model(void)
{
    struct model m = {.nccl = draw(0.5, 2), .pace = draw(0.5, 2)};
    for (int parts = 1; parts <= 6; parts++)
        m.parts[parts] = m.pace * draw(0.5, 1.5);
    return m;
}

/* The program's calls go as is best for all of them together, and over the ring each GEMM as is best for it. What is as
 * good may be either. */
static void random_program(uint64_t seed)
{
    struct model of[6];
    char name[SLR_TRIAL_PERIOD + 1] = {0};
    double ring = 0, nccl = 0, ms;
    drawn = seed;
    for (int i = 0; i < 6; i++)
        of[i] = a_model();
    models = of;
    for (int i = 0, n = (int)draw(1, SLR_TRIAL_PERIOD + 1), gemms = (int)draw(1, 7); i < n; i++)
        name[i] = (char)('a' + (int)draw(0, gemms));
    program = name;
    go(48 + 3 * SLR_WAYS * (SLR_TRIAL_PERIOD + 1) + 3 * 2 * (SLR_DUEL_FIRST + SLR_TRIAL_PERIOD) + 150);
    while (latest()->trying) /* looked at again */
        go(1);
    for (const char *p = program; *p; p++) {
        best(&of[*p - 'a'], &ms);
        ring += ms;
        nccl += of[*p - 'a'].nccl;
    }
    for (size_t i = 0; i < strlen(program); i++) {
        go(1);
        cr_expect(latest()->why == SLR_R_MEASURED || ring < nccl * 0.98, "seed %lu, %s: ring %g, NCCL %g, chosen ring",
                  (unsigned long)seed, program, ring, nccl);
        cr_expect(latest()->why == SLR_R_RING || ring > nccl * 0.95, "seed %lu, %s: ring %g, NCCL %g, chosen NCCL",
                  (unsigned long)seed, program, ring, nccl);
        const struct model *m = &of[gemm_m / 8 - 1];
        cr_expect(latest()->why != SLR_R_RING || latest()->parts == best(m, &ms) || ms > 0.99 * m->pace,
                  "seed %lu, %s: GEMM %c in %u parts, best in %u: %g %g %g %g %g %g", (unsigned long)seed, program,
                  (char)(m - of) + 97, latest()->parts, best(m, &ms), m->pace, m->parts[1], m->parts[2], m->parts[3],
                  m->parts[4], m->parts[6]);
    }
    models = NULL;
    program = NULL;
}

Test(trials_programs, random_programs)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_program(seed);
        trials_close();
        memset(ranks, 0, sizeof ranks);
        trials_open();
    }
}

/* ---- several calls of one size, each with what is best for it ---- */

/* Forward n times a and g, backward n times b, b and g; g is of another size. */
static char forward_backward[2][5 * 8 + 1];

static void make_layers(int n)
{
    char *gemm = forward_backward[0], *size = forward_backward[1];
    memset(forward_backward, 0, sizeof forward_backward);
    for (int i = 0; i < n; i++)
        strcat(gemm, "ag"), strcat(size, "12");
    for (int i = 0; i < n; i++)
        strcat(gemm, "bbg"), strcat(size, "112");
    program = gemm;
    sizes = size;
}

static int iterations(int n)
{
    const int length = (int)strlen(program);
    return n * length;
}

/* What the calls of the next iteration take, and how many of GEMM `of` went over the ring. */
static double iteration(char of, int *ring)
{
    double ms = 0;
    *ring = 0;
    for (size_t i = 0; i < strlen(program); i++) {
        const char gemm = program[(size_t)ranks[0].calls % strlen(program)];
        go(1);
        const struct model *m = &models[gemm - 'a'];
        *ring += gemm == of && latest()->why == SLR_R_RING;
        ms += latest()->why != SLR_R_RING     ? m->nccl
              : m->parts[latest()->parts] > 0 ? m->parts[latest()->parts]
                                              : m->pace;
    }
    return ms;
}

static void begin_again(void)
{
    trials_close();
    memset(ranks, 0, sizeof ranks);
    trials_open();
}

static struct model way_model(double ring, double nccl)
{
    struct model m = {.nccl = nccl, .pace = ring};
    for (int parts = 1; parts <= 6; parts++)
        m.parts[parts] = ring * 1.2;
    return m;
}

/* The first forward call of an iteration stands where a backward one does. */
Test(trials_programs, forward_and_backward_have_their_own_way)
{
    static struct model of[8];
    of[0] = way_model(1, 2), of[1] = way_model(2, 1), of[6] = way_model(1, 3);
    int ring;
    models = of;
    for (int turned = 0; turned < 2; turned++) {
        make_layers(4);
        go(iterations(40));
        iteration('a', &ring);
        cr_expect(turned ? ring <= 1 : ring >= 3, "forward: %d of 4 over the ring", ring);
        iteration('b', &ring);
        cr_expect(turned ? ring >= 7 : ring <= 1, "backward: %d of 8 over the ring", ring);
        iteration('g', &ring);
        cr_expect_eq(ring, 8);
        of[0] = way_model(2, 1), of[1] = way_model(1, 2);
        begin_again();
    }
}

/* Of the latest `calls` calls behind that GEMM, and of the others, over the ring. */
static void of_latest(int calls, char gemm, int over_ring[2])
{
    const int n = (int)strlen(program);
    over_ring[0] = over_ring[1] = 0;
    for (int i = ranks[0].calls - calls; i < ranks[0].calls; i++)
        over_ring[program[i % n] == gemm] += ranks[0].went[i].why == SLR_R_RING;
}

/* All calls are of one size: the GEMM before them is what tells them apart, and the call's number where that is. */
Test(trials_programs, all_reduces_of_one_size_have_their_own_way)
{
    static struct model of[2];
    int ring[2];
    of[0] = way_model(1, 2), of[1] = way_model(1.4, 1);
    models = of;
    reduces = true;
    for (int layers = 3; layers <= 48; layers *= 4) { /* of the longest, an iteration is 192 calls */
        static char text[200];
        memset(text, 0, sizeof text);
        memset(text, 'a', (size_t)layers * 2);
        memset(text + layers * 2, 'b', (size_t)layers * 2);
        program = text;
        go(layers < 48 ? 200 * layers : CALLS);
        of_latest(4 * layers, 'a', ring);
        cr_expect(ring[1] == 2 * layers && ring[0] == 0, "%d layers: %d forward, %d backward", layers, ring[1],
                  ring[0]);
        begin_again();
    }
}

/* And where the program does otherwise: one call less, a call more, other layers. */
Test(trials_programs, all_reduces_of_a_program_that_changes)
{
    static struct model of[2];
    int ring[2];
    of[0] = way_model(1, 2), of[1] = way_model(1.4, 1);
    models = of;
    reduces = true;
    program = "aaaaaabbbbbb";
    go(12 * 120);
    program = "b";
    go(1);
    for (int changed = 0; changed < 2; changed++) {
        program = changed ? "aaaabbbb" : "abbbbbbaaaaa"; /* the calls before are no multiple of 12 */
        go((changed ? 9600 : 4800) - ranks[0].calls);
        of_latest(24, 'a', ring);
        cr_expect(ring[1] == 12 && ring[0] == 0, "%d: %d forward, %d backward", changed, ring[1], ring[0]);
    }
}

static double least(const struct model *m)
{
    double ring;
    best(m, &ring);
    return ring < m->nccl ? ring : m->nccl;
}

static double most(const struct model *m)
{
    return m->pace > m->nccl ? m->pace : m->nccl;
}

/* Forward calls alone, in between: as in an evaluation. From wherever the program is, so more calls are in rare contexts. */
static void train_and_evaluate(int layers, int left)
{
    static char forward[2][2 * 8 + 1];
    const char *const train[2] = {program, sizes};
    memset(forward, 0, sizeof forward);
    for (int i = 0; i < layers; i++)
        strcat(forward[0], "ag"), strcat(forward[1], "12");
    for (int some; left > 0; left -= some) {
        some = left < 4 * 5 * layers ? left : 4 * 5 * layers;
        go(some);
        program = forward[0], sizes = forward[1];
        go(2 * layers);
        program = train[0], sizes = train[1];
    }
}

/* In 40 iterations, or 60 where there are few calls in each, forward and backward calls go as is best for them. Where
 * one turns into the other a call stands in the other's context, too rare for a row there: three of an iteration.
 * Returns in how many of 100 programs, within so much of what that takes. */
static int random_layers(bool evaluate, double within)
{
    static struct model of[8];
    int good = 0;
    models = of;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        int n, ring;
        drawn = seed;
        for (int i = 0; i < 8; i++)
            of[i] = a_model();
        n = (int)draw(2, 9);
        make_layers(n);
        if (evaluate)
            train_and_evaluate(n, iterations(n > 3 ? 34 : 60));
        else
            go(iterations(n > 3 ? 40 : 60));
        const double takes = iteration('a', &ring), should = (n - 1) * least(&of[0]) + most(&of[0]) + 2 * most(&of[1]) +
                                                             (2 * n - 2) * least(&of[1]) + 2 * n * least(&of[6]);
        good += takes < should * within;
        begin_again();
    }
    return good;
}

Test(trials_programs, random_layers_go_as_is_best)
{
    cr_expect_eq(random_layers(false, 1.03), 100);
}

Test(trials_programs, evaluation_in_between)
{
    cr_expect_geq(random_layers(true, 1.06), 99);
}

Test(trials_programs, a_rank_with_hiccups)
{
    hiccup = 50;
    cr_expect_geq(random_layers(false, 1.03), 99);
}

/* Every second call has no GEMM, so that there is nothing to try for it but what a duel does: behind the others' trials, which
 * would be in what the program takes. */
Test(trials_programs, a_duel_waits_for_those_that_are_going_to_be_tried)
{
    int first = -1, last = -1;
    program = "a`b`c`d`e`f`a`b`c`d`e`b`", sizes = "12"; /* the letter before a: none */
    model.nccl = 1, model.pace = 1.05;
    go(1200);
    for (int i = 0; i < ranks[0].calls; i++) {
        const struct went *w = &ranks[0].went[i];
        first = w->trying && w->stage % 2 && first < 0 ? i : first;
        last = w->trying && w->stage % 2 == 0 ? i : last;
    }
    cr_expect(last >= 0 && first > last, "a duel from call %d, ways are tried until call %d", first, last);
}
