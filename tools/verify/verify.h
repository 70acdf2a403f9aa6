/* SPDX-License-Identifier: Apache-2.0 */
/* slipring verify: COMMAND with every N-th substituted gather and reduce-scatter compared with NCCL's,
 * and what the ranks' logs say of it. */
#ifndef SLR_TOOLS_VERIFY_H
#define SLR_TOOLS_VERIFY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/reason.h"

/* Exit status; part of the interface for scripts. */
enum { VERIFY_EQUAL = 0, VERIFY_DIFFERS = 1, VERIFY_NOTHING = 2, VERIFY_ERROR = 3 };

#define VERIFY_LISTED 20 /* differences that are told one by one; all are counted */

enum kind { GATHERS, SCATTERS, KINDS };

struct difference {
    enum kind kind;
    char host[64], comm[24];
    long long rank, call, shard, offset, owner;
    char check[8], have[16], want[16]; /* of a reduce-scatter */
};

/* What all logs of a folder say together. Calls are counted on each rank. */
struct tally {
    unsigned long long logs, unreadable; /* files; lines; whoever reads them sets both */
    unsigned long long ended;            /* processes that came to their end; of these: */
    unsigned long long calls[KINDS], substituted[KINDS];
    unsigned long long compared[KINDS], differing[KINDS], skipped; /* skipped: no memory for the comparison */
    unsigned long long reason[KINDS][SLR_R_COUNT];                 /* calls, by what became of them */
    unsigned long long refused[SLR_R_COUNT];                       /* communicators that stay with NCCL, by reason */
    struct difference first[VERIFY_LISTED];                        /* of all kinds, in the order in which they came */
};

static inline unsigned long long tally_sum(const unsigned long long of[KINDS])
{
    return of[GATHERS] + of[SCATTERS];
}

/* One event of a log into the tally. */
void tally_event(void *tally, const json_t *event);

/* The report. `every`: SLIPRING_VERIFY; `status`: COMMAND's. Returns the exit status. */
int verify_report(FILE *out, const struct tally *t, unsigned long long every, int status);

#endif
