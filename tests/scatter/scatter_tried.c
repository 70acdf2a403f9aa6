/* SPDX-License-Identifier: Apache-2.0 */
/* As many calls as it takes to try all ways. What was tried is in the log; results are right in each of them. */
#include "scatter.h"

#include <string.h>

enum { TRIED = 280, PLAIN = 200, VAIN = 40 }; /* calls */

/* One GEMM, and then another one whose output is as large and goes the same way. */
static void gemms(struct world *w, const struct scatter_case *c)
{
    static const struct shape shapes[] = {{.type = BF16, .m = 8, .cols = 12, .k = 16},
                                          {.type = BF16, .m = 8, .cols = 12, .k = 24}};
    struct site t[LENGTH(shapes)];
    for (int i = 0; i < LENGTH(shapes); i++)
        site_open(&t[i], w, &shapes[i]);
    for (int i = 0; i < LENGTH(shapes); i++)
        site_play(&t[i], TRIED, c->name);
    for (int i = 0; i < LENGTH(shapes); i++)
        site_close(&t[i]);
}

/* What no GEMM has made; `gemm`: one has written there, before something else did. */
static void copied(struct world *w, const struct scatter_case *c, int calls, bool gemm)
{
    static const struct shape shape = {.type = BF16, .m = 8, .cols = 12, .k = 16};
    struct site t;
    struct turn u;
    site_open(&t, w, &shape);
    turn_open(&u, &t);
    for (int i = 0; i < calls; i++) {
        turn_load(&u, w->s);
        if (gemm)
            site_gemm(&t, w->s);
        CUDA(cudaMemcpyAsync(t.c, t.spare, t.all * t.elem, cudaMemcpyDeviceToDevice, w->s));
        for (int r = 0; r < w->nranks; r++)
            memcpy(u.c[r], u.spare[r], t.all * sizeof(int));
        turn_expect(&u, u.c, 0, t.count, false);
        turn_expect_c(&u);
        site_call(&t, w->s);
        turn_fetch(&u, w->s);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
    }
    turn_close(&u);
    site_close(&t);
}

static void plain(struct world *w, const struct scatter_case *c)
{
    copied(w, c, PLAIN, false);
}

static void in_vain(struct world *w, const struct scatter_case *c)
{
    copied(w, c, VAIN, true);
}

const struct scatter_case tried_cases[] = {{.name = "tried-gemms", .list = "tried", .body = gemms},
                                           {.name = "tried-plain", .list = "tried", .body = plain},
                                           {.name = "in-vain", .list = "in-vain", .body = in_vain},
                                           {.name = NULL}};
