/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says, section by section. Each function writes one section, or nothing when the
 * logs say nothing of it.
 */
#ifndef SLR_TOOLS_REPORT_H
#define SLR_TOOLS_REPORT_H

#include "tools/report/form.h"
#include "tools/model/model.h"
#include "tools/report/out.h"
#include "tools/model/sites.h"

struct report {
    const struct model *m;
    uint32_t index; /* of the run */
    const struct run *run;
    struct sites sites;
    struct out *o;
    bool details; /* all sections */
};

enum { SITES_SHOWN = 40 }; /* rows of a table of call sites; more are summed up */

struct report_form {
    enum out_form form;
    bool bold;      /* text, on a terminal */
    bool details;   /* text and HTML: all sections; JSON has them always */
    unsigned width; /* text: columns */
};

/* report_body.c: all of it. */
void report_write(struct report *r, const struct report_form *form, FILE *to);

void report_glance(struct report *r);        /* report_glance.c */
void report_verdict(struct report *r);       /* report_verdict.c: the first line */
void report_calls(struct report *r);         /* report_calls.c: the call sites */
void report_sites(struct report *r);         /* report_sites.c: details of all-gathers */
void report_scatters(struct report *r);      /* report_scatters.c */
void report_places(struct report *r);        /* report_places.c: whether buffers are symmetric */
void report_trials(struct report *r);        /* report_trials.c: what was tried */
void report_ways(struct report *r);          /* report_ways.c: which way call sites go since */
void report_communicators(struct report *r); /* report_comms.c */
void report_nccl(struct report *r);          /* report_nccl.c */
void report_ranks(struct report *r);         /* report_ranks.c */
void report_differences(struct report *r);   /* report_differ.c */
void report_memory(struct report *r);        /* report_memory.c */
void report_notes(struct report *r);         /* report_notes.c: warnings, errors, what is missing */
void report_advice(struct report *r);        /* report_advice.c */
void report_timeline(struct report *r);      /* report_svg.c: HTML only */
void report_bars(struct report *r);          /* report_bars.c: HTML only */
void report_figures(struct report *r);       /* report_figures.c: JSON only, behind the sections */

/* report_facts.c. Sums over the processes of the run: of a field of their summary, and of a reason's count, of gathers
 * or of any collective. */
double report_sum(const struct report *r, enum log_field f);
uint64_t report_count(const struct report *r, const char *reason);
uint64_t report_count_of(const struct report *r, enum slr_collective_id op, const char *reason);
bool report_has_summary(const struct report *r);

/* Calls of all collectives that the ring had. */
double report_moved(const struct report *r);

/* The ranks with calls whose logs do not say how many there were in all: how many, and a list of them. */
unsigned report_endless(const struct report *r, char *list, size_t room);
/* Before a sum over the processes: nothing, or that it is not whole. */
const char *report_least(const struct report *r);

/* Traced reduce-scatters and all-reduces of the ring: of a collective, or SLR_COLLECTIVES: of all; of a rank, or
 * MODEL_NONE: of all. ns. */
struct reductions {
    uint64_t traced;
    double time, exposed, hidden;
};
struct reductions report_reductions(const struct report *r, enum slr_collective_id op, uint32_t rank);

/* Which sites are shown: indices, those that take the most time, in their order. Returns how
 * many. */
size_t report_chosen_sites(const struct report *r, bool pass, size_t *chosen, size_t room);

/* report_sites.c: what a site's buffer is, and report_places.c: all of that as numbers, for report_figures.c. */
void report_symmetry(char *buf, size_t size, const struct symmetry *y);
void report_place_figures(struct report *r, struct json_writer *w);

const char *report_rank_label(const struct report *r, const struct member *b);

/* trial_words.c, for report_trials.c and report_ways.c. */
typedef void (*report_member_fn)(void *ctx, const struct comm *c, const struct member *b);
void report_each_member(const struct report *r, report_member_fn fn, void *ctx);
enum { TRIAL_MS = 32, CALL_SITE = 80 };
/* Four digits that count: 0.1844, 1.844, 18.44; "-": there is none. Into TRIAL_MS bytes. */
const char *report_trial_ms(char *buf, double ms);
/* The communicator over hosts of which it is the part inside of one; NULL: of none. */
const char *report_whole_of(const struct report *r, const struct comm *c);
/* "#3: all-gather, 16 MiB", "#7: reduce-scatter, 16 MiB (b)": a letter where calls of one size are several sites. Into
 * CALL_SITE bytes. Of a communicator's, and of one that a member has told. */
const char *report_call_site(char *buf, const struct sites *s, uint32_t comm, uint32_t number);
const char *report_trial_site(char *buf, const struct sites *s, const struct member *b, uint32_t number);
/* The same of one of s->list. */
const char *site_label(const struct sites *s, size_t i, char *buf, size_t size);
/* One site, tried with one GEMM. */
bool report_trials_alike(const struct trial *a, const struct trial *b);
/* ms with the GEMM in so many equal parts; below 0: not told. */
double report_trial_parts(const struct trial *t, uint64_t parts);
/* ms over the ring as it was chosen. */
double report_trial_ring(const struct trial *t);
/* report_ways.c: ms of a call of the site, and of its GEMM, over the ring as it was chosen and by NCCL. False: not told. */
bool report_way_times(const struct member *b, const struct site_way *w, double *ring, double *nccl);

/* What a reason means, without what its meaning has in brackets or behind a colon; the name where it is not known. */
const char *report_reason_words(char *buf, size_t size, const char *reason);

/* report_callers.c. Who makes a site's calls: rows of a table with the columns `caller_columns`; nothing when it is not told. */
extern const struct column caller_columns[2];
void report_caller_rows(struct table *t, const char *site, const struct slr_names *names);
void report_callers(struct report *r, struct table *t); /* with what the names are; nothing without rows */

/* For report_differ.c. */
void differ_counts(struct report *r, struct table *t); /* differ_counts.c */
void differ_times(struct report *r, struct table *t);  /* differ_times.c */
/* One place where a rank is away from the others. */
void differ_row(struct table *t, const char *rank, const char *where, const char *what, const char *its,
                const char *others);

#endif
