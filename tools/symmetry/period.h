/* SPDX-License-Identifier: Apache-2.0 */
/* The period of a communicator's calls, as an unmodified program does not tell where its iterations
 * begin.
 *
 * Every call is given as tokens: one of its size, and one of each rank's size and places. Equal
 * tokens mean the same. A period p is *confirmed*, by sizes or by a rank, when each of the latest
 * calls has the token of p calls before, for at least 2p calls and a given least number. The places
 * of a rank are the better evidence: layers of one size differ in them. Any one rank is enough, as
 * another may move all the time.
 *
 * Each new call compares itself with the 128 calls before: runs of matches are kept, not searched
 * for, so a call costs the same whatever the program does.
 */
#ifndef SLR_TOOLS_SYMMETRY_PERIOD_H
#define SLR_TOOLS_SYMMETRY_PERIOD_H

#include <stdbool.h>
#include <stdint.h>

#define SYM_PERIOD_MAX 128u

struct sym_period {
    unsigned width;  /* tokens of one call: 1 + ranks */
    uint64_t seen;   /* calls since the beginning or the last gap */
    uint64_t *token; /* [width][SYM_PERIOD_MAX], of the latest calls */
    uint32_t *run;   /* [width][SYM_PERIOD_MAX], [p - 1]: matches in a row with the call p before */
};

/* False: out of memory. */
bool sym_period_open(struct sym_period *p, int nranks);
void sym_period_close(struct sym_period *p);

/* token[0] is that of the size, token[1 + r] that of rank r. */
void sym_period_add(struct sym_period *p, const uint64_t *token);

/* Calls are missing here: what comes is not compared with what was. */
void sym_period_gap(struct sym_period *p);

/* Matches with the call `period` before that lead up to the latest call; by places: of the rank
 * that has most. */
uint32_t sym_period_by_sizes(const struct sym_period *p, unsigned period);
uint32_t sym_period_by_places(const struct sym_period *p, unsigned period);

/* The smallest confirmed period, 0: none. */
unsigned sym_period_find(const struct sym_period *p, bool by_places, unsigned least);

#endif
