/* SPDX-License-Identifier: Apache-2.0 */
/* Lines `caller` and `caller_place`. */
#include "tools/model/model_tables.h"

void model_add_caller(struct model *m, struct member *b, const struct log_record *r)
{
    vec_push(&b->callers, ((struct caller){.call = r->event == E_CALLER_PLACE ? (uint64_t)r->num[F_CALL] : 0,
                                           .place = (uint32_t)r->num[F_ID],
                                           .shard = (uint64_t)r->num[F_SHARD],
                                           .count = (uint64_t)r->num[F_COUNT],
                                           .op = model_op(r),
                                           .in_place = r->num[F_IN_PLACE] != 0,
                                           .dtype = model_intern(m, r->text[F_DTYPE]),
                                           .reason = model_intern(m, r->text[F_REASON]),
                                           .name = model_intern(m, r->text[F_CALLED_FROM])}));
}

void comm_callers(const struct model *m, uint32_t comm, bool (*fits)(const void *what, const struct caller *c),
                  const void *what, struct slr_names *names)
{
    const struct comm *c = &m->comms.at[comm];
    for (size_t i = 0; i < c->members.n; i++) {
        const struct member *b = &m->members.at[c->members.at[i]];
        for (size_t k = 0; k < b->callers.n; k++)
            if (fits(what, &b->callers.at[k]))
                slr_names_add(names, b->callers.at[k].name);
    }
}
