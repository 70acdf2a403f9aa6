/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: whether the ranks' buffers are the same allocation at the same offset, on all ranks
 * and every time.
 *
 * A site is one call of a communicator's iteration. For each of its two buffers it is in one of the
 * states of symmetry.def, decided anew by every call of the site from what all ranks published of
 * this call and of the one before:
 *
 *   the first that holds                     state       and what is told
 *   some rank's buffer is in no block        differs     unknown_memory, that rank
 *   some rank is not where it was            moves       the first such rank, what, from, to
 *   some rank is not where most ranks are    differs     the first such rank, what, a rank of the
 *                                                        majority
 *   else                                     symmetric   the call after which no rank has moved
 *
 * Places are compared by {ordinal, size of the block, offset}. In place one buffer lies rank * shard
 * bytes into the other by contract, a gather's send buffer and a reduce-scatter's receive buffer, so
 * that distance is left out.
 *
 * Pure functions of their arguments; no locking.
 */
#ifndef SLR_PLUGIN_SITES_SITES_H
#define SLR_PLUGIN_SITES_SITES_H

#include <stdbool.h>
#include <stdint.h>

struct slr_names;

enum slr_site_state {
#define STATE(id, name, doc) SLR_SITE_##id,
#include "plugin/sites/symmetry.def"
    SLR_SITE_STATES
};
enum slr_difference {
#define DIFFERENCE(id, name, doc) SLR_DIFF_##id,
#include "plugin/sites/symmetry.def"
    SLR_DIFFERENCES
};
const char *slr_site_state_name(enum slr_site_state s);
const char *slr_difference_name(enum slr_difference d);

enum slr_side { SLR_RECV, SLR_SEND, SLR_SIDES };

/* Where a buffer begins. Not known: offset is its address. Bytes. */
struct slr_where {
    uint64_t size, offset;
    uint32_t ordinal;
    bool known;
};

/* One call as one rank made it. */
struct slr_use {
    uint64_t shard;
    bool scatter;  /* a reduce-scatter; else a gather */
    bool in_place; /* send == recv + rank * shard, or of a reduce-scatter recv == send + rank * shard; both of
                    * `at` are the larger buffer then */
    struct slr_where at[SLR_SIDES];
    uint64_t caller; /* who has made it, on this rank: callers/callers.h; 0: not known, another rank's */
};

struct slr_finding {
    enum slr_site_state state;
    enum slr_difference what;
    int odd_rank;             /* the first that is not where it is expected, -1: none */
    int odd_ranks;            /* how many are not */
    int like_rank;            /* differs: a rank of the majority to compare with; else -1 */
    uint64_t value, expected; /* of `what`: the odd rank's; like_rank's, or its own before */
};

/* now[nranks] and before[nranks] (NULL: the site's first call). */
struct slr_finding slr_site_compare(const struct slr_use *before, const struct slr_use *now, int nranks,
                                    enum slr_side side);

struct slr_site_side {
    struct slr_finding found; /* by the latest call */
    uint64_t since;           /* call from which on no rank has moved */
    uint64_t breaks;          /* how often it was symmetric and then was not */
    uint64_t moves;           /* calls at which a rank was not where it had been */
    uint64_t changes;         /* of the state */
};

struct slr_site {
    uint64_t shard, calls;
    bool scatter;
    bool in_place; /* the latest call was, on all ranks: both sides are one */
    struct slr_site_side side[SLR_SIDES];
    struct slr_names *callers; /* from the heap; NULL: none yet */
    unsigned caller_lines;     /* of them, in the log */
};

struct slr_sites {
    int nranks;
    unsigned count;
    struct slr_site *site;
    struct slr_use *last; /* [count][nranks] */
};

/* False: out of memory, and there are none. */
bool slr_sites_open(struct slr_sites *s, unsigned count, int nranks);
void slr_sites_close(struct slr_sites *s);

/* A name of who calls site `i`: what is new, to be logged (callers/names.h); NULL: nothing. */
const char *slr_site_called_from(struct slr_sites *s, unsigned i, const char *caller);

/* Call number `call` was of site `i`. Returns the sides whose state it changed, as bits. */
unsigned slr_site_take(struct slr_sites *s, unsigned i, uint64_t call, const struct slr_use *use);

#endif
