/* SPDX-License-Identifier: Apache-2.0 */
/* slipring verify: COMMAND with every N-th substituted call compared with NCCL's,
 * and what the ranks' logs say of it. */
#ifndef SLR_TOOLS_VERIFY_H
#define SLR_TOOLS_VERIFY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/counters.h"
#include "base/status.h"

/* Exit status; part of the interface for scripts. */
enum { VERIFY_EQUAL = 0, VERIFY_DIFFERS = 1, VERIFY_NOTHING = 3, VERIFY_ERROR = 4 };

#define VERIFY_LISTED 20 /* differences that are told one by one; all are counted */

struct difference {
    enum slr_collective_id kind;
    char host[64], comm[24];
    long long rank, call, shard, offset, owner;
    char check[8], have[16], want[16]; /* of sums */
};

/* What all logs of a folder say together. Calls are counted on each rank. */
struct tally {
    unsigned long long logs, unreadable; /* files; lines; whoever reads them sets both */
    unsigned long long ended;            /* processes that came to their end; of these: */
    unsigned long long calls[SLR_COLLECTIVES], substituted[SLR_COLLECTIVES];
    unsigned long long compared[SLR_COLLECTIVES], differing[SLR_COLLECTIVES],
        skipped;                                             /* skipped: no memory for the comparison */
    unsigned long long reason[SLR_COLLECTIVES][SLR_R_COUNT]; /* calls, by what became of them */
    unsigned long long refused[SLR_R_COUNT];                 /* communicators that stay with NCCL, by reason */
    struct difference first[VERIFY_LISTED];                  /* in the order in which they came */
};

static inline unsigned long long tally_sum(const unsigned long long of[SLR_COLLECTIVES])
{
    unsigned long long sum = 0;
    for (int k = 0; k < SLR_COLLECTIVES; k++)
        sum += of[k];
    return sum;
}

/* One event of a log into the tally. */
void tally_event(void *tally, const json_t *event);

/* The report. `every`: SLIPRING_VERIFY; `status`: COMMAND's. Returns the exit status. */
int verify_report(FILE *out, const struct tally *t, unsigned long long every, int status);

#endif
