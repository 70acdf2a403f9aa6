#include "plugin/terms.h"

#include <string.h>
#include "plugin/comm.h"
#include "plugin/left.h"
#include "plugin/offers.h"

static struct slr_term *term_of(const struct slr_comm *c, int owner, int reader, uint64_t number)
{
    struct slr_term *all = (struct slr_term *)((char *)c->shared.control + slr_control_terms_at(c->nranks));
    return &all[((size_t)owner * (size_t)c->nranks + (size_t)reader) * SLR_TERMS + number % SLR_TERMS];
}

/* What this side is to call `number`, and what the record says then. */
static enum role { FIRST, SECOND, PASSED, PASSES } role_of(uint64_t head, uint64_t number, uint64_t *next)
{
    uint64_t used = slr_term_call(head), passed = slr_term_passed(head);
    enum slr_term_state state = slr_term_state(head);
    if (used == number) {
        *next = slr_term_head(used, passed, SLR_TERM_BOTH);
        return SECOND;
    }
    if (used > number || used + passed * SLR_TERMS >= number)
        return PASSED;
    if (state == SLR_TERM_NONE || state == SLR_TERM_BOTH)
        return FIRST;
    *next = slr_term_head(used, passed + 1, state);
    return PASSES;
}

/* Posts `mine` for the call and returns true if this side is first; else false, and the other side's spot is in
 * *theirs: none when one side has passed the call. */
static bool post(const struct slr_call *call, int peer, bool as_owner, struct slr_spot mine, struct slr_spot *theirs)
{
    const struct slr_comm *c = call->comm;
    uint64_t number = call->number;
    struct slr_term *t = as_owner ? term_of(c, c->rank, peer, number) : term_of(c, peer, c->rank, number);
    uint64_t head = atomic_load(&t->head), next = 0;
    for (;;) {
        enum role role = role_of(head, number, &next);
        *theirs = (struct slr_spot){0};
        if (role == PASSED)
            return false;
        if (role == FIRST) { /* the other side has read what was there */
            *(as_owner ? &t->owner : &t->reader) = mine;
            *(as_owner ? &t->owner_left : &t->reader_left) = call->left;
            next = slr_term_head(number, 0, as_owner ? SLR_TERM_OWNER_FIRST : SLR_TERM_READER_FIRST);
        }
        if (role == SECOND) {
            *theirs = as_owner ? t->reader : t->owner;
            slr_left_compare(call, peer, as_owner ? t->reader_left : t->owner_left);
        }
        if (atomic_compare_exchange_weak(&t->head, &head, next))
            return role == FIRST;
    }
}

bool slr_terms_put(const struct slr_comm *c)
{
    const struct slr_post *rank = c->shared.control->post;
    enum { AUTO, PULL, PUT } protocol = slr_get(SLR_S_PROTOCOL); /* the setting's choices */
    if (protocol != AUTO)
        return protocol == PUT;
    for (int r = 1; r < c->nranks; r++)
        for (int q = 0; q < r; q++)
            if (memcmp(&rank[q].device_uuid, &rank[r].device_uuid, sizeof(CUuuid)) == 0)
                return true;
    return false;
}

void slr_terms_owner(const struct slr_call *call, const struct slr_place *send, struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct slr_spot mine = slr_offer_spot(c, send, 0, call->shard, peer, call->number), theirs = {0};
        bool first = post(call, peer, true, mine, &theirs);
        route[peer].delivery = first && mine.generation ? SLR_ZERO_COPY : SLR_BY_SLOT;
        if (!first && theirs.generation) {
            route[peer].delivery = SLR_BY_PUSH;
            route[peer].to = slr_offer_mapped(c, peer, theirs);
            if (!route[peer].to) /* this rank has failed, and so will the peer */
                route[peer].delivery = SLR_BY_SLOT;
        }
    }
}

void slr_terms_reader(const struct slr_call *call, const struct slr_place *recv, struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    size_t shard = call->shard;
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct slr_spot mine = {0}, theirs = {0};
        if (recv)
            mine = slr_offer_spot(c, recv, (size_t)peer * shard, shard, peer, call->number);
        bool first = post(call, peer, false, mine, &theirs);
        route[peer].source = first && mine.generation ? SLR_ARRIVES : SLR_FROM_SLOT;
        if (route[peer].source == SLR_ARRIVES)
            atomic_store(&c->written, true);
        if (!first && theirs.generation) {
            route[peer].source = SLR_FROM_PLACE;
            route[peer].from = slr_offer_mapped(c, peer, theirs);
            if (!route[peer].from)
                route[peer].source = SLR_FROM_SLOT;
        }
    }
}
