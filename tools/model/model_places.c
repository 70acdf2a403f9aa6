/* SPDX-License-Identifier: Apache-2.0 */
/* Where buffers lay: lines `place`, `places` and `places_end` of all ranks, joined by the calls' numbers, and the phases
 * and sites that they show. */
#include <stdlib.h>
#include <string.h>
#include "tools/model/model_tables.h"
#include "tools/symmetry/phases.h"

enum { PLACES_MOST = 4096 }; /* more than a rank has */

static struct sym_where where(const struct log_record *r, enum log_field elsewhere, enum log_field known,
                              enum log_field ordinal, enum log_field size, enum log_field offset)
{
    const bool many = r->num[elsewhere] != 0;
    return (struct sym_where){.known = r->num[known] || many,
                              .many = many,
                              .ordinal = (uint32_t)r->num[ordinal],
                              .size = (uint64_t)r->num[size],
                              .offset = (uint64_t)r->num[offset]};
}

void model_add_place(struct model *m, struct member *b, const struct log_record *r)
{
    if (r->num[F_ID] >= PLACES_MOST) {
        log_problem(m->reader, r->line, "field \"id\" is too large, expected less than %d", PLACES_MOST);
        return;
    }
    const size_t id = (size_t)r->num[F_ID];
    while (b->places.n <= id)
        vec_add(&b->places);
    struct rank_place *p = &b->places.at[id];
    p->call = (uint64_t)r->num[F_CALL];
    p->use = (struct sym_use){
        .shard = (uint64_t)r->num[F_SHARD],
        .op = model_op(r),
        .in_place = r->num[F_IN_PLACE] != 0,
        .at = {[SYM_RECV] = where(r, F_RECV_ELSEWHERE, F_RECV_KNOWN, F_RECV_ORDINAL, F_RECV_SIZE, F_RECV_OFFSET),
               [SYM_SEND] = where(r, F_SEND_ELSEWHERE, F_SEND_KNOWN, F_SEND_ORDINAL, F_SEND_SIZE, F_SEND_OFFSET)}};
    /* By contract the smaller one at rank * shard; without that all ranks compare alike (compare.h). */
    const struct slr_collective *kind = &slr_collectives[p->use.op];
    if (p->use.in_place && kind->sends_all != kind->gets_all)
        p->use.at[kind->sends_all ? SYM_RECV : SYM_SEND].offset -= (uint64_t)b->crank * p->use.shard;
}

/* "0,1,-,1". */
void model_add_placed(struct model *m, struct member *b, const struct log_record *r)
{
    uint64_t call = (uint64_t)r->num[F_FIRST];
    for (const char *at = r->text[F_IDS]; *at; at += *at == ',', call++) {
        char *end = NULL;
        const unsigned long id = *at == '-' ? PLACES_MOST : strtoul(at, &end, 10);
        const char *behind = *at == '-' ? at + 1 : end;
        if (behind == at || (*behind && *behind != ',') || id > PLACES_MOST) {
            log_problem(m->reader, r->line, "field \"ids\" is no list, expected numbers of places and commas");
            return;
        }
        if (id < PLACES_MOST)
            vec_push(&b->placed, ((struct placed){call, (uint32_t)id}));
        at = behind;
    }
}

void model_add_places_end(struct member *b, const struct log_record *r)
{
    b->placed_calls = (uint64_t)r->num[F_CALLS];
    b->placed_more = (uint64_t)r->num[F_MORE];
}

/* ---- all ranks together ---- */

struct joined {
    struct comm *c;
    const struct member **member; /* those that tell anything, in order of their ranks */
    size_t *next;                 /* of each: in `placed` */
    int n;
};

static void add_side(struct joined *j, const struct sym_phases *p, unsigned i, enum sym_side side)
{
    const struct sym_site *site = &p->sites.site[i];
    const struct sym_site_side *s = &site->side[side];
    struct symmetry y = {.phase = p->phases,
                         .site = i,
                         .shard = site->shard,
                         .calls = site->calls,
                         .since = s->since,
                         .breaks = s->breaks,
                         .moves = s->moves,
                         .op = site->op,
                         .buffer = site->in_place     ? "both"
                                   : side == SYM_RECV ? "recv"
                                                      : "send",
                         .found = s->found,
                         .at = p->sites.last[(size_t)i * (size_t)p->nranks].at[side]};
    if (y.found.odd_rank >= 0)
        y.found.odd_rank = j->member[y.found.odd_rank]->crank;
    if (y.found.like_rank >= 0)
        y.found.like_rank = j->member[y.found.like_rank]->crank;
    vec_push(&j->c->symmetry, y);
}

static void phase_over(void *ctx, const struct sym_phases *p)
{
    struct joined *j = ctx;
    static const char *const by[] = {"nothing", "places", "sizes"};
    vec_push(&j->c->phases,
             ((struct phase){.number = p->phases, .first = p->first, .period = p->length, .by = by[p->by]}));
    for (unsigned i = 0; i < p->length; i++)
        for (enum sym_side side = SYM_RECV; side < SYM_SIDES; side++)
            if (p->sites.site[i].calls && (side == SYM_RECV || !p->sites.site[i].in_place))
                add_side(j, p, i, side);
}

/* The next call that all of them tell of. 0: there is none. */
static uint64_t next_call(struct joined *j)
{
    uint64_t call = 0;
    for (int found = 0; found < j->n;) {
        found = 0;
        for (int k = 0; k < j->n; k++) {
            const struct member *b = j->member[k];
            while (j->next[k] < b->placed.n && b->placed.at[j->next[k]].call < call)
                j->next[k]++;
            if (j->next[k] == b->placed.n)
                return 0;
            found += b->placed.at[j->next[k]].call == call;
            call = b->placed.at[j->next[k]].call;
        }
    }
    return call;
}

/* What a place of no number is, of that call: like no other. */
static struct sym_use use_of(const struct joined *j, int k, uint64_t call)
{
    const struct member *b = j->member[k];
    const uint32_t id = b->placed.at[j->next[k]].place;
    struct sym_use use = id < b->places.n ? b->places.at[id].use : (struct sym_use){0};
    for (enum sym_side side = SYM_RECV; side < SYM_SIDES; side++)
        if (use.at[side].many)
            use.at[side].offset = call;
    return use;
}

static void find(struct joined *j)
{
    struct sym_phases p;
    struct sym_use *use = tool_alloc((size_t)j->n, sizeof *use);
    if (!sym_phases_open(&p, j->n, phase_over, j))
        tool_checked(NULL);
    for (uint64_t call = next_call(j); call; call = next_call(j)) {
        for (int k = 0; k < j->n; k++) {
            use[k] = use_of(j, k, call);
            j->next[k]++;
        }
        sym_phases_take(&p, call, use);
    }
    sym_phases_end(&p);
    j->c->compared = p.calls;
    sym_phases_close(&p);
    free(use);
}

void model_find_places(struct model *m)
{
    for (size_t i = 0; i < m->comms.n; i++) {
        struct comm *c = &m->comms.at[i];
        struct joined j = {.c = c};
        j.member = tool_alloc(c->members.n, sizeof *j.member);
        j.next = tool_alloc(c->members.n, sizeof *j.next);
        for (size_t k = 0; k < c->members.n; k++)
            if (m->members.at[c->members.at[k]].placed.n)
                j.member[j.n++] = &m->members.at[c->members.at[k]];
        if (j.n)
            find(&j);
        free(j.member);
        free(j.next);
    }
}
