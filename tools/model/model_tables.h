/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the model's files: look-up tables, and the files' parts. */
#ifndef SLR_TOOLS_MODEL_TABLES_H
#define SLR_TOOLS_MODEL_TABLES_H

#include "tools/model/model.h"

struct model_tables;

struct model_tables *model_tables_new(void);
void model_tables_free(struct model_tables *t);

/* The element for a key; made when it is new. Indices stay valid, pointers only until the next
 * call. */
uint32_t model_process(struct model *m, const char *host, int64_t pid);
/* A communicator that slipring does not know is "?": one for each process. */
uint32_t model_comm(struct model *m, const char *name, uint32_t process);
uint32_t model_member(struct model *m, uint32_t process, uint32_t comm, int32_t crank);

/* model_trials.c: a line `tried`, `duel`, `duel_of` or `site_way`; told with log_problem() and left out when it can
 * not be used. */
void model_add_trial(struct model *m, struct member *b, const struct log_record *r);
void model_add_duel(struct model *m, struct member *b, const struct log_record *r);
void model_add_duel_of(struct model *m, struct member *b, const struct log_record *r);
void model_add_site_way(struct model *m, struct member *b, const struct log_record *r);
/* The field context; lines of older libraries have none: then a size is one site. False: it can not be used, and that
 * has been said. */
bool model_context(struct model *m, const struct log_record *r, uint64_t *context);
/* When all lines are in order: finds the sites. */
void model_find_trial_sites(struct member *b);

/* model_callers.c: a line `caller` or `caller_place`. */
void model_add_caller(struct model *m, struct member *b, const struct log_record *r);

/* model_places.c: a line `place`, `places` or `places_end`; and when all lines are in order, phases and sites. */
void model_add_place(struct model *m, struct member *b, const struct log_record *r);
void model_add_placed(struct model *m, struct member *b, const struct log_record *r);
void model_add_places_end(struct member *b, const struct log_record *r);
void model_find_places(struct model *m);

/* model_sites.c: when phases are known, the call sites of all communicators, and of each call which it is of. */
void model_find_sites(struct model *m);

/* model_runs.c: which processes belong together, and their ranks. */
void model_find_runs(struct model *m);
/* model_order.c: gathers and spans in order, each once; members in order of their rank. */
void model_order(struct model *m);

#endif
