/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gathers of a run by their call sites (model.h), with the figures of all ranks together and of each: of a call
 * site those of the ring, and those that NCCL had for one reason. */
#ifndef SLR_TOOLS_SITES_H
#define SLR_TOOLS_SITES_H

#include "tools/model/model.h"

VEC_TYPE(times, int64_t);
VEC_TYPE(tallies, struct reason_count);

/* late: of the time that a gather was exposed, what passed before the last rank of its communicator had
 * reached the call: waiting for a slow rank, not for the data. Known where all ranks are of one host, else 0.
 *
 * Sums are doubles: they hold every whole number of ns of 100 days. */
struct choice { /* what NCCL ran for the passed calls of a site */
    const char *algo, *proto;
    uint32_t channels;
    uint64_t n;
};

struct ending { /* the gathers of a site, on all ranks, that ended in one way */
    const char *reason;
    struct times time, exposed, late, share; /* share: hidden part of the time, in 1/10000 */
    double time_sum, hidden_sum;
    int64_t median, exposed_median, late_median, share_median;
};

struct site_rank {
    uint32_t member;
    uint64_t calls;  /* traced */
    uint64_t graphs; /* of those, made by a graph's launch */
    struct times time, exposed, late;
    double time_sum, exposed_sum, late_sum, hidden_sum;
    uint64_t slot, place, push;
    struct tallies ended;
    int64_t median, exposed_median;
};

struct site {
    uint32_t comm;
    uint32_t number;            /* of the communicator's call sites */
    bool pass, in_place, mixed; /* mixed: calls of several types, or in place or not */
    uint64_t shard, count;
    const char *dtype, *reason;
    uint64_t calls;  /* of one rank: most that are known of; 0 unknown */
    uint64_t traced; /* of one rank, the most */
    VEC(struct site_rank) ranks;
    /* Of all ranks together; traced 0: none of these. */
    int64_t median, p90, exposed_median, late_median;
    double time_sum, exposed_sum, hidden_sum; /* hidden: of each gather what is left of its time, at least 0 */
    uint64_t slot, place, push;
    enum { SITE_CALLED, SITE_IN_GRAPHS, SITE_BOTH } made; /* its calls, by the program or by graphs' launches */
    uint64_t parts; /* median number of parts of its fused GEMM; 0: not fused or unknown */
    struct tallies ended;
    VEC(struct ending) endings;
    VEC(struct choice) choices;
    VEC(const struct symmetry *) buffers; /* at the places that its calls have in an iteration; none: not told */
    struct slr_names callers;             /* who makes its calls; none: not told */
    const struct shape *fused;            /* the GEMM, when one only has this communicator and shard */
};

struct sites {
    const struct model *m;
    VEC(struct site) list; /* by communicator, ring first, then call site */
    uint32_t *before;      /* of each communicator of the model: the run's call sites in front of its own */
    double ring_time, ring_hidden, ring_exposed, ring_late, pass_time;
    struct times share, fused_share; /* of each moved gather, as in struct ending; of the fused ones */
    uint64_t traced;                 /* gathers of all ranks */
    struct site_row *rows;           /* while they are being found */
};

void sites_find(struct sites *s, const struct model *m, uint32_t run);
void sites_free(struct sites *s);

/* hidden / time, between 0 and 1; -1 when there is no time. */
double overlap_of(double hidden, double time);

/* Sorts. The value below which `percent` of them lie; 0 for none. */
int64_t percentile(struct times *t, unsigned percent);

/* One more of a reason (NULL is none). */
void tally(struct tallies *t, const char *reason, uint64_t n);

/* What the table of reasons says; NULL when it has no such reason. */
const char *reason_meaning(const char *name);

/* What to do about it; NULL: nothing, or there is no such reason. */
const char *reason_cure(const char *name);

/* The number of a call site among the run's, of all collectives, from 1. */
uint32_t call_site_number(const struct sites *s, uint32_t comm, uint32_t site);

#endif
