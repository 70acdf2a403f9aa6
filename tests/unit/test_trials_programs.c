/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose calls come with several GEMMs in turn. */
#include <string.h>
#include "trials_play.h"

TestSuite(trials_programs, .init = trials_open, .fini = trials_close);

/* Each GEMM is measured in each way, whatever the period, but where there are more of them than rows. */
static void all_are_measured(const char *gemms_of, unsigned gemms)
{
    program = gemms_of;
    const int period = (int)strlen(program), run = period + 1 > (int)SLR_TRIAL_RUN ? period + 1 : (int)SLR_TRIAL_RUN;
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
