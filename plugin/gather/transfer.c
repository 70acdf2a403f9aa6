/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/transfer.h"

#include <string.h>
#include "plugin/comm/comm.h"
#include "plugin/gather/passed_alone.h"
#include "plugin/memory/exports.h"

static struct slr_transfer *descriptor(const struct slr_comm *c, int owner, int reader, uint64_t number)
{
    struct slr_transfer *all = (struct slr_transfer *)((char *)c->shared.control + slr_control_transfers_at(c->nranks));
    return &all[((size_t)owner * (size_t)c->nranks + (size_t)reader) * SLR_TRANSFERS + number % SLR_TRANSFERS];
}

/* What this side is to call `number`; *next is what the descriptor says afterwards. */
static enum role { FIRST, SECOND, SKIPPED, SKIPS } role_of(uint64_t head, uint64_t number, uint64_t *next)
{
    uint64_t used = slr_transfer_call(head), skipped = slr_transfer_skipped(head);
    enum slr_transfer_state state = slr_transfer_state(head);
    if (used == number) {
        *next = slr_transfer_head(used, skipped, SLR_TRANSFER_BOTH);
        return SECOND;
    }
    /* The peer has skipped this call, and perhaps published a later one since. */
    if (used > number || used + skipped * SLR_TRANSFERS >= number)
        return SKIPPED;
    if (state == SLR_TRANSFER_NONE || state == SLR_TRANSFER_BOTH)
        return FIRST;
    /* The peer has yet to read what this side published for an earlier call: it must stay. */
    *next = slr_transfer_head(used, skipped + 1, state);
    return SKIPS;
}

/* Publishes `mine` for the call and returns true if this side is first. Else false, and the other
 * side's place is in *theirs: none when either side has skipped the call. */
static bool publish(const struct slr_call *call, int peer, bool as_owner, struct slr_remote_place mine,
                    struct slr_remote_place *theirs)
{
    const struct slr_comm *c = call->comm;
    uint64_t number = call->number;
    struct slr_transfer *transfer =
        as_owner ? descriptor(c, c->rank, peer, number) : descriptor(c, peer, c->rank, number);
    uint64_t head = atomic_load(&transfer->head), next = 0;
    for (;;) {
        enum role role = role_of(head, number, &next);
        *theirs = (struct slr_remote_place){0};
        if (role == SKIPPED)
            return false;
        /* Plain stores are enough: both sides are done with the descriptor's last call, and the
         * peer reads these fields only after it has seen the new head. */
        if (role == FIRST) {
            *(as_owner ? &transfer->owner : &transfer->reader) = mine;
            *(as_owner ? &transfer->owner_alone : &transfer->reader_alone) = call->passed_alone;
            next = slr_transfer_head(number, 0, as_owner ? SLR_TRANSFER_OWNER_FIRST : SLR_TRANSFER_READER_FIRST);
        }
        if (role == SECOND) {
            *theirs = as_owner ? transfer->reader : transfer->owner;
            slr_alone_compare(call, peer, as_owner ? transfer->reader_alone : transfer->owner_alone);
        }
        /* Fails when the peer came in between: its call decides what this side is now. */
        if (atomic_compare_exchange_weak(&transfer->head, &head, next))
            return role == FIRST;
    }
}

bool slr_transfer_put(const struct slr_comm *c)
{
    const struct slr_post *rank = c->shared.control->post;
    enum { AUTO, PULL, PUT } protocol = slr_get(SLR_S_PROTOCOL); /* the setting's choices */
    if (protocol != AUTO)
        return protocol == PUT;
    /* From what all ranks have published, so all come to the same answer. */
    for (int r = 1; r < c->nranks; r++)
        for (int q = 0; q < r; q++)
            if (memcmp(&rank[q].device_uuid, &rank[r].device_uuid, sizeof(CUuuid)) == 0)
                return true;
    return false;
}

void slr_transfer_owner(const struct slr_call *call, const struct slr_place *send, struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        /* Generation 0 when the peer has not mapped the block that `send` is in. */
        struct slr_remote_place mine = slr_exported_place(c, send, 0, call->shard, peer, call->number), theirs = {0};
        bool first = publish(call, peer, true, mine, &theirs);
        route[peer].delivery = first && mine.generation ? SLR_ZERO_COPY : SLR_BY_SLOT;
        if (!first && theirs.generation) {
            route[peer].delivery = SLR_BY_PUSH;
            route[peer].to = slr_exported_mapped(c, peer, theirs);
            if (!route[peer].to) /* this rank has failed, and so will the peer */
                route[peer].delivery = SLR_BY_SLOT;
        }
    }
}

void slr_transfer_reader(const struct slr_call *call, const struct slr_place *recv, struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    size_t shard = call->shard;
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct slr_remote_place mine = {0}, theirs = {0};
        /* Shard `peer` of the receive buffer: that owner alone writes there. */
        if (recv)
            mine = slr_exported_place(c, recv, (size_t)peer * shard, shard, peer, call->number);
        bool first = publish(call, peer, false, mine, &theirs);
        route[peer].source = first && mine.generation ? SLR_ARRIVES : SLR_FROM_SLOT;
        /* The peer may write here from now on, so an abort has to wait for it. */
        if (route[peer].source == SLR_ARRIVES)
            atomic_store(&c->written, true);
        if (!first && theirs.generation) {
            route[peer].source = SLR_FROM_PLACE;
            route[peer].from = slr_exported_mapped(c, peer, theirs);
            if (!route[peer].from) /* this rank has failed, and so will the peer */
                route[peer].source = SLR_FROM_SLOT;
        }
    }
}
