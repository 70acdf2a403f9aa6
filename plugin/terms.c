#include "plugin/terms.h"

#include <time.h>
#include "plugin/comm.h"
#include "plugin/offers.h"

static struct slr_term *term_of(const struct slr_comm *c, int owner, int reader, uint64_t number)
{
    struct slr_term *all = (struct slr_term *)((char *)c->shared.control + slr_control_terms_at(c->nranks));
    return &all[((size_t)owner * (size_t)c->nranks + (size_t)reader) * SLR_TERMS + number % SLR_TERMS];
}

/* The peer has not come to the call that used this record last. */
static bool busy(uint64_t head, uint64_t number)
{
    enum slr_term_state state = (enum slr_term_state)(head & 3);
    return head / 4 < number && state != SLR_TERM_NONE && state != SLR_TERM_BOTH;
}

/* Posts `mine` for call `number` and returns true if this side is first; else false, and the other side's spot is in
 * *theirs. */
static bool post(struct slr_comm *c, struct slr_term *t, uint64_t number, bool as_owner, struct slr_spot mine,
                 struct slr_spot *theirs)
{
    enum slr_term_state first = as_owner ? SLR_TERM_OWNER_FIRST : SLR_TERM_READER_FIRST;
    for (;;) {
        uint64_t head = atomic_load(&t->head);
        if (head / 4 == number) {
            *theirs = as_owner ? t->reader : t->owner;
            atomic_store(&t->head, number * 4 + SLR_TERM_BOTH);
            return false;
        }
        if (!busy(head, number)) {
            *(as_owner ? &t->owner : &t->reader) = mine;
            if (atomic_compare_exchange_strong(&t->head, &head, number * 4 + first))
                return true;
        } else if (atomic_load(&c->error) != ncclSuccess) {
            /* Nothing of this call will be used. */
            *theirs = (struct slr_spot){0};
            return false;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
}

void slr_terms_owner(struct slr_comm *c, uint64_t number, CUdeviceptr send, size_t shard, struct slr_route *route)
{
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct slr_spot mine = slr_offer_spot(c, send, shard, peer, number), theirs = {0};
        bool first = post(c, term_of(c, c->rank, peer, number), number, true, mine, &theirs);
        route[peer].delivery = first && mine.generation ? SLR_IN_PLACE : SLR_BY_SLOT;
        if (!first && theirs.generation) {
            route[peer].delivery = SLR_BY_PUSH;
            route[peer].to = slr_offer_mapped(c, peer, theirs);
        }
    }
}

void slr_terms_reader(struct slr_comm *c, uint64_t number, CUdeviceptr recv, size_t shard, bool put,
                      struct slr_route *route)
{
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct slr_spot mine = {0}, theirs = {0};
        if (put)
            mine = slr_offer_spot(c, recv + (size_t)peer * shard, shard, peer, number);
        bool first = post(c, term_of(c, peer, c->rank, number), number, false, mine, &theirs);
        route[peer].source = first && mine.generation ? SLR_ARRIVES : SLR_FROM_SLOT;
        if (!first && theirs.generation) {
            route[peer].source = SLR_FROM_PLACE;
            route[peer].from = slr_offer_mapped(c, peer, theirs);
        }
    }
}
