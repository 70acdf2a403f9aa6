/* SPDX-License-Identifier: Apache-2.0 */
/* slipring bench: bench/ag_gemm alternately without and with slipring; medians, and their ratio. */
#ifndef SLR_TOOLS_BENCH_H
#define SLR_TOOLS_BENCH_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "tools/common/words.h"

/* Exit status besides that of wrong usage and that of a failing ag_gemm. */
enum { BENCH_ERROR = 3 };

enum side { WITHOUT, WITH, SIDES };

struct bench {
    long rounds;                 /* of each side; 0: not chosen yet */
    const char *json, *markdown; /* files, or NULL */
    const char *with;            /* as it is shown; "" at first: the launcher */
    bool softgpu, gpu;           /* asked for; neither: what there is */
    int devices;                 /* of the software GPU; 0: as many as it has by itself */
    char ag_gemm[PATH_MAX];
    struct words device;   /* prefix of both sides: the software GPU, or nothing */
    struct words prefix;   /* of the side with slipring */
    struct words options;  /* ag_gemm's */
    char folder[PATH_MAX]; /* of temporary files */
};

/* Whether ag_gemm's options have --NAME. */
bool bench_has_option(const struct bench *b, const char *name);

/* Says which device is used, on stderr, and sets `device` and what is missing of `options`. 0 or an
 * exit status. */
int bench_choose_device(struct bench *b);

/* Runs everything; two arrays of ag_gemm's results. 0 or an exit status, after a message. */
int bench_run(struct bench *b, json_t *runs[SIDES]);

/* The summary, which owns new references of `runs`. */
json_t *bench_summary(const struct bench *b, json_t *const runs[SIDES]);

void bench_table(FILE *out, const json_t *summary);
void bench_markdown(FILE *out, const json_t *summary);

#endif
