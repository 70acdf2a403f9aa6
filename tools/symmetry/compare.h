/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: whether the ranks' buffers are the same allocation at the same offset, on all ranks
 * and every time.
 *
 * A site is one call of a communicator's iteration. For each of its two buffers it is in one of the
 * states of symmetry.def, decided anew by every call of the site from what the logs of all ranks say of
 * this call and of the one before:
 *
 *   the first that holds                     state       and what is told
 *   some rank's buffer is in no block        differs     unknown_memory, that rank
 *   some rank is not where it was            moves       the first such rank, what, from, to
 *   some rank is not where most ranks are    differs     the first such rank, what, a rank of the
 *                                                        majority
 *   else                                     symmetric   the call after which no rank has moved
 *
 * Places are compared by {ordinal, size of the block, offset}. In place the smaller buffer, if one is, lies
 * rank * shard bytes into the other by contract (base/collectives.def), so that distance is left out.
 *
 * Pure functions of their arguments; no locking.
 */
#ifndef SLR_TOOLS_SYMMETRY_COMPARE_H
#define SLR_TOOLS_SYMMETRY_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/counters.h"

enum sym_site_state {
#define STATE(id, name, doc) SYM_SITE_##id,
#include "tools/symmetry/symmetry.def"
    SYM_SITE_STATES
};
enum sym_difference {
#define DIFFERENCE(id, name, doc) SYM_DIFF_##id,
#include "tools/symmetry/symmetry.def"
    SYM_DIFFERENCES
};
const char *sym_site_state_name(enum sym_site_state s);
const char *sym_difference_name(enum sym_difference d);

enum sym_side { SYM_RECV, SYM_SEND, SYM_SIDES };

/* Where a buffer begins. Not known: offset is its address. Many: it is known only that no call was there that has been
 * told. Bytes. */
struct sym_where {
    uint64_t size, offset;
    uint32_t ordinal;
    bool known, many;
};

/* One call as one rank made it. */
struct sym_use {
    uint64_t shard;
    enum slr_collective_id op;
    bool in_place; /* the smaller buffer is the own shard of the larger one, or both are one; both of `at` are
                    * the larger one then */
    struct sym_where at[SYM_SIDES];
};

struct sym_finding {
    enum sym_site_state state;
    enum sym_difference what;
    int odd_rank;             /* the first that is not where it is expected, -1: none */
    int odd_ranks;            /* how many are not */
    int like_rank;            /* differs: a rank of the majority to compare with; else -1 */
    uint64_t value, expected; /* of `what`: the odd rank's; like_rank's, or its own before */
};

/* now[nranks] and before[nranks] (NULL: the site's first call). */
struct sym_finding sym_site_compare(const struct sym_use *before, const struct sym_use *now, int nranks,
                                    enum sym_side side);

struct sym_site_side {
    struct sym_finding found; /* by the latest call */
    uint64_t since;           /* call from which on no rank has moved */
    uint64_t breaks;          /* how often it was symmetric and then was not */
    uint64_t moves;           /* calls at which a rank was not where it had been */
    uint64_t changes;         /* of the state */
};

struct sym_site {
    uint64_t shard, calls;
    enum slr_collective_id op;
    bool in_place; /* the latest call was, on all ranks: both sides are one */
    struct sym_site_side side[SYM_SIDES];
};

struct sym_sites {
    int nranks;
    unsigned count;
    struct sym_site *site;
    struct sym_use *last; /* [count][nranks] */
};

/* False: out of memory, and there are none. */
bool sym_sites_open(struct sym_sites *s, unsigned count, int nranks);
void sym_sites_close(struct sym_sites *s);

/* Call number `call` was of site `i`. Returns the sides whose state it changed, as bits. */
unsigned sym_site_take(struct sym_sites *s, unsigned i, uint64_t call, const struct sym_use *use);

#endif
