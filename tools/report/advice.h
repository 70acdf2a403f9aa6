/* SPDX-License-Identifier: Apache-2.0 */
/* What to do, collected by cause and told in the order of what it costs (report_advice.c): first what has failed, then
 * what is known to have cost time, the most first, then the rest by its kind. */
#ifndef SLR_TOOLS_ADVICE_H
#define SLR_TOOLS_ADVICE_H

#include "tools/report/report.h"

enum advice_kind {
    ADVICE_FAILED, /* a communicator, or a rank */
    ADVICE_AWAY,   /* calls that stay with NCCL as a whole */
    ADVICE_LATE,   /* a rank for which the others wait */
    ADVICE_SIZE,   /* calls below the limit */
    ADVICE_HOST,   /* waits of the host */
    ADVICE_ROOM,   /* shards and slots */
    ADVICE_JOIN,   /* what else comes between gathers and GEMMs */
    ADVICE_REST,
    ADVICE_COPY /* a copy within a device: it costs least */
};

struct advice {
    enum advice_kind kind;
    double cost; /* ns that a rank has lost by it in the run; 0: not known */
    char *text;
};
VEC_TYPE(advices, struct advice);

void advice_add(struct advices *a, enum advice_kind kind, double cost, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Those of one cause each. */
void advise_failures(struct report *r, struct advices *a); /* advice_failed.c */
void advise_reasons(struct report *r, struct advices *a);  /* likewise: reasons that have a cure */
void advise_unknown(struct report *r, struct advices *a);  /* report_verdict.c: to know whether it helps */
void advise_late(struct report *r, struct advices *a);     /* late.c */
void advise_sizes(struct report *r, struct advices *a);    /* advice_sizes.c */
void advise_joins(struct report *r, struct advices *a);    /* advice_joins.c: what comes between gathers and GEMMs */
void advise_readings(struct report *r, struct advices *a); /* likewise: GEMMs that read something else */
void report_scatter_advice(struct report *r, struct advices *a); /* report_scatters.c */

/* report_notes.c. Ranks of a communicator without a log: how many, and a list of the first. */
uint32_t report_absent(const struct report *r, const struct comm *c, char *list, size_t room);

bool report_has_failed(const struct report *r); /* advice_failed.c: a communicator of the run has */

/* A rank that reaches the calls of a communicator later than the others, who wait for it. */
struct late {
    size_t who;         /* of the communicator's members */
    uint64_t calls, of; /* late in so many of those that were looked at */
    double median;      /* ns behind the others */
    double cost;        /* ns that another rank has waited in all, as far as it knows */
};
VEC_TYPE(late_list, struct late);
void late_find(const struct report *r, const struct comm *c, struct late_list *list); /* late.c */

/* Why the ways of calls of one size and collective have not been compared to the end. */
enum untried { UNTRIED_OFF, UNTRIED_CUBLAS, UNTRIED_CUT, UNTRIED_MANY, UNTRIED_FEW, UNTRIED_UNMEASURED };
/* trial_need.c. *calls: of their call site, for the last two. */
enum untried untried_why(const struct report *r, const struct comm *c, enum slr_collective_id op, uint64_t shard,
                         uint64_t *calls);
/* Calls of a site until its ways are compared, most, as the settings of the run say; 0: they never are. */
uint64_t trial_need(const struct report *r);
/* "SLIPRING_TRIALS=0 says that nothing is tried", of each. Into UNTRIED_ROOM bytes. */
enum { UNTRIED_ROOM = 300 };
const char *untried_words(char *buf, const struct report *r, enum untried why, uint64_t calls);

#endif
