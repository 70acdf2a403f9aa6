/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/transfer/transfer.h"

#include <string.h>
#include "base/settings.h"
#include "kernels/ring.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/passed/passed_alone.h"
#include "plugin/memory/exports.h"

/* The descriptor's one word: the latest call that was published, how many later calls of this
 * descriptor its first side has skipped since, and the state. */
static uint64_t head_of(uint64_t call, uint64_t skipped, enum slr_transfer_state state)
{
    return call << 24 | skipped << 2 | (uint64_t)state;
}

static uint64_t call_of(uint64_t head)
{
    return head >> 24;
}

static uint64_t skipped_of(uint64_t head)
{
    return head >> 2 & 0x3fffff;
}

static enum slr_transfer_state state_of(uint64_t head)
{
    return (enum slr_transfer_state)(head & 3);
}

static struct slr_transfer *descriptor(const struct slr_comm *c, int owner, int reader, uint64_t number)
{
    struct slr_transfer *all = (struct slr_transfer *)((char *)c->shared.control + slr_control_transfers_at(c->nranks));
    return &all[((size_t)owner * (size_t)c->nranks + (size_t)reader) * SLR_TRANSFERS + number % SLR_TRANSFERS];
}

/* What this side is to call `number`; *next is what the descriptor says afterwards. */
static enum role { FIRST, SECOND, SKIPPED, SKIPS } role_of(uint64_t head, uint64_t number, uint64_t *next)
{
    uint64_t used = call_of(head), skipped = skipped_of(head);
    enum slr_transfer_state state = state_of(head);
    if (used == number) {
        *next = head_of(used, skipped, SLR_TRANSFER_BOTH);
        return SECOND;
    }
    /* The peer has skipped this call, and perhaps published a later one since. */
    if (used > number || used + skipped * SLR_TRANSFERS >= number)
        return SKIPPED;
    if (state == SLR_TRANSFER_NONE || state == SLR_TRANSFER_BOTH)
        return FIRST;
    /* The peer has yet to read what this side published for an earlier call: it must stay. Calls in between may have
     * been reduce-scatters, which have no descriptors: so not one more, but all up to this one. */
    *next = head_of(used, (number - used) / SLR_TRANSFERS, state);
    return SKIPS;
}

/* What one side says of a call. */
struct saying {
    struct slr_remote_place place;    /* of its buffer; none when the peer can not use it */
    struct slr_remote_place expected; /* a reader's: where it copies from when it is first */
};

/* A reader may look at what its owner says while the owner is writing it for a later call
 * (learn). */
static void store(struct slr_remote_place *to, struct slr_remote_place place)
{
    __atomic_store_n(&to->generation, place.generation, __ATOMIC_RELAXED);
    __atomic_store_n(&to->offset, place.offset, __ATOMIC_RELAXED);
}

static struct slr_remote_place load(const struct slr_remote_place *from)
{
    return (struct slr_remote_place){__atomic_load_n(&from->generation, __ATOMIC_RELAXED),
                                     __atomic_load_n(&from->offset, __ATOMIC_RELAXED)};
}

static void say(struct slr_transfer *transfer, bool as_owner, struct saying mine, uint32_t alone)
{
    store(as_owner ? &transfer->owner : &transfer->reader, mine.place);
    *(as_owner ? &transfer->owner_alone : &transfer->reader_alone) = alone;
    if (!as_owner)
        store(&transfer->expected, mine.expected);
}

static struct saying said(const struct slr_transfer *transfer, bool by_owner)
{
    if (by_owner)
        return (struct saying){.place = load(&transfer->owner)};
    return (struct saying){.place = load(&transfer->reader), .expected = load(&transfer->expected)};
}

/* Publishes `mine` for the call and returns true if this side is first. Else false, and what the
 * other side said is in *theirs: nothing when either side has skipped the call. */
static bool publish(const struct slr_call *call, int peer, bool as_owner, struct saying mine, struct saying *theirs)
{
    struct slr_comm *c = call->comm;
    uint64_t number = call->number;
    struct slr_transfer *transfer =
        as_owner ? descriptor(c, c->rank, peer, number) : descriptor(c, peer, c->rank, number);
    uint64_t head = atomic_load(&transfer->head), next = 0;
    for (;;) {
        enum role role = role_of(head, number, &next);
        *theirs = (struct saying){0};
        if (role == SKIPPED)
            return false;
        /* Plain stores are enough: both sides are done with the descriptor's last call, and the
         * peer reads these fields only after it has seen the new head. */
        if (role == FIRST) {
            say(transfer, as_owner, mine, call->passed_alone);
            next = head_of(number, 0, as_owner ? SLR_TRANSFER_OWNER_FIRST : SLR_TRANSFER_READER_FIRST);
        }
        if (role == SECOND) {
            *theirs = said(transfer, !as_owner);
            slr_alone_compare(call, peer, as_owner ? transfer->reader_alone : transfer->owner_alone);
            if (as_owner) /* for the reader to learn */
                store(&transfer->owner, mine.place);
        }
        /* Fails when the peer came in between: its call decides what this side is now. */
        if (atomic_compare_exchange_weak(&transfer->head, &head, next))
            return role == FIRST;
    }
}

/* Looks what `peer` has named for calls that this rank has made, as far as it has come to them. */
static void learn(const struct slr_call *call, int peer)
{
    struct slr_comm *c = call->comm;
    uint64_t *next = slr_expect_unlearned(c, peer);
    /* Of older calls the descriptors serve again. */
    if (*next + SLR_TRANSFERS <= call->number)
        *next = call->number - SLR_TRANSFERS + 1;
    for (; *next < call->number; ++*next) {
        const struct slr_transfer *transfer = descriptor(c, peer, c->rank, *next);
        uint64_t head = atomic_load(&transfer->head);
        if (call_of(head) != *next) /* one side has skipped it, or it is over already */
            continue;
        if (state_of(head) != SLR_TRANSFER_BOTH)
            return;
        slr_expect_learn(c, peer, *next, load(&transfer->owner));
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

static bool same(struct slr_remote_place a, struct slr_remote_place b)
{
    return a.generation == b.generation && a.offset == b.offset;
}

/* The owner's half when the reader was first. */
static void owner_second(struct slr_comm *c, int peer, struct slr_remote_place mine, const struct saying *theirs,
                         struct slr_route *route)
{
    route->delivery = SLR_BY_SLOT;
    if (!theirs->place.generation)
        return;
    if (theirs->expected.generation && same(theirs->expected, mine)) {
        route->delivery = SLR_AS_EXPECTED;
        return;
    }
    route->to = slr_exported_mapped(c, peer, theirs->place, &route->to_kind);
    if (route->to) /* else this rank has failed, and so will the peer */
        route->delivery = SLR_CORRECTED;
}

static struct slr_remote_place owner_place(const struct slr_call *call, const struct slr_place *send, int peer,
                                           bool by_engines)
{
    const struct slr_remote_place p = slr_exported_place(call->comm, send, 0, call->shard, peer, call->number);
    return by_engines && p.generation && slr_exported_near(call->comm, peer, p) ? (struct slr_remote_place){0} : p;
}

void slr_transfer_owner(const struct slr_call *call, const struct slr_place *send, bool by_engines,
                        struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    /* Until slr_exports_end: who revokes an export meanwhile reckons with this call's naming it. */
    slr_exports_begin(c, call->number);
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        /* Generation 0 when the peer has not mapped the block that `send` is in. */
        struct saying mine = {.place = owner_place(call, send, peer, by_engines)}, theirs;
        if (publish(call, peer, true, mine, &theirs))
            route[peer].delivery = mine.place.generation ? SLR_ZERO_COPY : SLR_BY_SLOT;
        else
            owner_second(c, peer, mine.place, &theirs, &route[peer]);
    }
    slr_exports_release(c);
}

/* Where this rank reads what it expects at `place`; 0: it can not. When the peer's block has ended, it is expected in
 * the one that came in its stead: what is wrong is corrected. */
static CUdeviceptr readable(const struct slr_call *call, int peer, struct slr_remote_place *place,
                            enum slr_memory *kind)
{
    struct slr_comm *c = call->comm;
    uint64_t shift;
    const CUdeviceptr from = slr_exported_readable(c, peer, *place, call->shard, kind);
    const uint64_t heir = from ? 0 : slr_exported_heir(c, peer, place->generation, &shift);
    if (!heir)
        return from;
    slr_expect_inherit(c, peer, place->generation, heir, shift);
    *place = (struct slr_remote_place){heir, place->offset + shift};
    return slr_exported_readable(c, peer, *place, call->shard, kind);
}

/* What a reader says. That shard of the receive buffer is for this owner alone to write. */
static struct saying reader_saying(const struct slr_call *call, int peer, const struct slr_place *recv, bool by_engines,
                                   CUdeviceptr *from, enum slr_memory *kind)
{
    struct slr_comm *c = call->comm;
    struct saying mine = {.place =
                              slr_exported_place(c, recv, (size_t)peer * call->shard, call->shard, peer, call->number)};
    *from = 0;
    /* An expected place is of use only where it can be corrected. */
    if (c->put || !mine.place.generation)
        return mine;
    /* A graph names the same buffers each time. */
    mine.expected = slr_expected_place(call, peer, call->why == SLR_R_GRAPH);
    if (mine.expected.generation)
        *from = readable(call, peer, &mine.expected, kind);
    if (by_engines && *kind == SLR_MEMORY_NEAR)
        *from = 0;
    return *from ? mine : (struct saying){0};
}

static void reader_first(struct slr_comm *c, const struct saying *mine, CUdeviceptr from, struct slr_route *route)
{
    route->source = mine->place.generation ? SLR_FROM_EXPECTED : SLR_FROM_SLOT;
    route->from = from;
    /* The peer may write here from now on, so an abort has to wait for it. */
    if (mine->place.generation)
        atomic_store(&c->written, true);
}

static void reader_second(struct slr_comm *c, int peer, const struct saying *theirs, struct slr_route *route)
{
    route->source = SLR_FROM_SLOT;
    if (theirs->place.generation)
        route->from = slr_exported_mapped(c, peer, theirs->place, &route->from_kind);
    if (theirs->place.generation && route->from) /* else this rank has failed, and so will the peer */
        route->source = SLR_FROM_PLACE;
}

void slr_transfer_reader(const struct slr_call *call, const struct slr_place *recv, bool by_engines,
                         struct slr_route *route)
{
    struct slr_comm *c = call->comm;
    slr_exports_hold(c);
    for (int step = 1; step < c->nranks; step++) {
        int peer = (c->rank + step) % c->nranks;
        struct saying mine = {0}, theirs;
        CUdeviceptr from = 0;
        if (c->expect) {
            learn(call, peer);
            mine = reader_saying(call, peer, recv, by_engines, &from, &route[peer].from_kind);
        }
        if (publish(call, peer, false, mine, &theirs))
            reader_first(c, &mine, from, &route[peer]);
        else
            reader_second(c, peer, &theirs, &route[peer]);
    }
    slr_exports_release(c);
}
