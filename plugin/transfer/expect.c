/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/transfer/transfer.h"

#include <stdlib.h>
#include "base/hash.h"
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/comm/control.h"

#define PLACES 256     /* a peer; about as many as a large model has gathers in a step */
#define WAYS 4u        /* a key may be in any of so many */
#define BLOCKS 64      /* a peer; of this rank's that it sends from */
#define TRUSTED 1      /* times that a place was named again, or a distance seen again */
#define SHARDS 32      /* gathers in a row after which nobody is expected to want less than a shard */
#define OVERWRITTEN 32 /* gathers behind one whose `send` was written to that may move out of theirs for nothing */

/* What the entries of both tables begin with. */
struct entry {
    uint64_t key, used; /* the number of the latest call */
};

struct expected {
    struct entry is;
    struct slr_remote_place place;
    uint32_t again;
};

/* Where a call's `send` is in its block; generation 0: in none. */
struct own_place {
    uint64_t generation, offset;
    uint64_t step; /* from a rank's shard to the next one's: the shard's size in place, else 0 */
};

/* What `send` in a block of this rank's tells of the peer's. */
struct distance {
    uint64_t own; /* the block */
    bool in_place;
    uint64_t generation; /* the peer's block; 0: nothing is known */
    uint64_t offset;     /* added to the own one's; cyclic */
    uint64_t seen_at;    /* the own offset where it was seen last */
    uint32_t again;
};

/* The latest gather with these buffers, behind the same calls, and whether a GEMM took it over. */
struct slr_expect_site {
    struct entry is;
    bool consumed;
    uint32_t shards;      /* how many in a row were taken over by whole shards */
    uint32_t overwritten; /* of so many it is expected that the GEMM writes to `send` */
    bool refused;         /* that GEMM in parts */
};

struct slr_expect {
    struct slr_expect_site site[PLACES];
    uint64_t key[SLR_TRANSFERS]; /* of the latest calls, by number */
    struct own_place own[SLR_TRANSFERS];
    uint64_t unlearned[SLR_MAX_RANKS];
    struct peer {
        struct expected at[PLACES];
        struct distance from[BLOCKS];
    } of[];
};

/* The entry with the key, or the one of its ways that has not been used for longest, to be replaced. Keys that fall
 * together leave each other alone until there are more than WAYS of them. */
static inline __attribute__((always_inline)) void *find(void *table, size_t size, uint64_t key)
{
    struct entry *oldest = NULL;
    for (unsigned i = 0; i < WAYS; i++) {
        struct entry *e = (struct entry *)(void *)((char *)table + ((key % PLACES) ^ i) * size);
        if (__builtin_expect(e->key == key, 1))
            return e;
        if (!oldest || e->used < oldest->used)
            oldest = e;
    }
    return oldest;
}

static uint64_t key_of(const struct slr_call *call)
{
    return slr_mix(slr_mix((uintptr_t)call->send, (uintptr_t)call->recv), call->shard);
}

static struct slr_expect *new_expect(const struct slr_call *call)
{
    struct slr_expect *e = calloc(1, sizeof *e + (size_t)call->comm->nranks * sizeof e->of[0]);
    for (int r = 0; e && r < call->comm->nranks; r++)
        e->unlearned[r] = call->number;
    return e;
}

/* The communicator's, made when it is needed; NULL: there is no memory for it. */
static struct slr_expect *made_for(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (!c->expect)
        c->expect = new_expect(call);
    return c->expect;
}

static struct own_place own_place_of(const struct slr_call *call, const struct slr_place *send)
{
    const bool in_place = call->send == (const char *)call->recv + (size_t)call->comm->rank * call->shard;
    return (struct own_place){
        .generation = send->generation, .offset = send->offset, .step = in_place ? call->shard : 0};
}

bool slr_expect_begin(const struct slr_call *call, const struct slr_place *send)
{
    struct slr_expect *e = made_for(call);
    if (!e)
        return false;
    e->key[call->number % SLR_TRANSFERS] = key_of(call);
    e->own[call->number % SLR_TRANSFERS] = own_place_of(call, send);
    return true;
}

static enum slr_wanted wanted_at(const struct slr_expect_site *s, bool moves)
{
    if (!s->consumed && !moves)
        return SLR_WANTS_NOTHING;
    return s->shards >= SHARDS ? SLR_WANTS_SHARDS : SLR_WANTS_CHUNKS;
}

struct slr_expectation slr_expect_of(const struct slr_call *call, uint64_t context, bool whole, bool movable)
{
    struct slr_expect *e = made_for(call);
    struct slr_expectation x = {.wanted = whole ? SLR_WANTS_NOTHING : SLR_WANTS_CHUNKS};
    if (!e || whole) /* a whole turn says nothing of the next call */
        return x;
    const uint64_t key = slr_mix(key_of(call), context);
    struct slr_expect_site *s = x.site = find(e->site, sizeof *e->site, key);
    if (s->is.key == key) {
        x.overwritten = movable && s->overwritten > 0;
        x.wanted = wanted_at(s, x.overwritten);
    } else {
        *s = (struct slr_expect_site){.is.key = key};
    }
    s->is.used = call->number;
    s->shards = s->consumed ? s->shards : 0;
    s->overwritten -= x.overwritten;
    s->consumed = false;
    return x;
}

void slr_expect_consumed(struct slr_expect_site *s, bool early)
{
    if (!s)
        return;
    s->consumed = true;
    s->shards = early ? 0 : s->shards + 1;
}

void slr_expect_overwritten(struct slr_expect_site *s)
{
    if (s && !s->refused)
        s->overwritten = OVERWRITTEN;
}

void slr_expect_refused(struct slr_expect_site *s)
{
    if (!s)
        return;
    s->overwritten = 0;
    s->refused = true;
}

static struct distance *distance_of(struct slr_expect *e, int peer, const struct own_place *own)
{
    return &e->of[peer].from[slr_mix(own->generation, own->step != 0) % BLOCKS];
}

static bool is_of(const struct distance *d, const struct own_place *own)
{
    return d->own == own->generation && d->in_place == (own->step != 0);
}

/* How far the shards of two ranks are apart in buffers that lie alike. */
static uint64_t between(const struct slr_comm *c, int peer, const struct own_place *own)
{
    return ((uint64_t)peer - (uint64_t)c->rank) * own->step;
}

/* By the distance of the blocks; it may be outside of the peer's. */
static struct slr_remote_place place_by_distance(const struct slr_call *call, int peer)
{
    struct slr_expect *e = call->comm->expect;
    const struct own_place *own = &e->own[call->number % SLR_TRANSFERS];
    const struct distance *d = distance_of(e, peer, own);
    if (!own->generation || !is_of(d, own) || d->again < TRUSTED)
        return (struct slr_remote_place){0};
    return (struct slr_remote_place){.generation = d->generation,
                                     .offset = own->offset + d->offset + between(call->comm, peer, own)};
}

static bool same_place(struct slr_remote_place a, struct slr_remote_place b)
{
    return a.generation == b.generation && a.offset == b.offset;
}

struct slr_remote_place slr_expected_place(const struct slr_call *call, int peer, bool once)
{
    struct slr_expect *e = call->comm->expect;
    const uint64_t key = e->key[call->number % SLR_TRANSFERS];
    const struct expected *x = find(e->of[peer].at, sizeof *x, key);
    const bool named = x->is.key == key && x->place.generation;
    if (named && (once || x->again >= TRUSTED))
        return x->place;
    struct slr_remote_place place = place_by_distance(call, peer);
    return named && !same_place(place, x->place) ? (struct slr_remote_place){0} : place;
}

uint64_t *slr_expect_unlearned(struct slr_comm *c, int peer)
{
    return &c->expect->unlearned[peer];
}

static void learn_distance(struct slr_comm *c, int peer, const struct own_place *own, struct slr_remote_place place)
{
    struct distance *d = distance_of(c->expect, peer, own);
    const uint64_t offset = place.offset - own->offset - between(c, peer, own);
    if (!is_of(d, own) || d->generation != place.generation || d->offset != offset)
        *d = (struct distance){.own = own->generation,
                               .in_place = own->step != 0,
                               .generation = place.generation,
                               .offset = offset,
                               .seen_at = own->offset};
    else if (d->seen_at != own->offset) {
        d->seen_at = own->offset;
        d->again++;
    }
}

void slr_expect_learn(struct slr_comm *c, int peer, uint64_t number, struct slr_remote_place place)
{
    uint64_t key = c->expect->key[number % SLR_TRANSFERS];
    struct expected *x = find(c->expect->of[peer].at, sizeof *x, key);
    const bool again = x->is.key == key && same_place(x->place, place);
    if (!again)
        *x = (struct expected){.is.key = key, .place = place};
    x->is.used = number;
    if (again && ++x->again > TRUSTED) /* nothing new, in each call of a steady program */
        return;
    const struct own_place *own = &c->expect->own[number % SLR_TRANSFERS];
    if (own->generation)
        learn_distance(c, peer, own, place);
}

static void inherit_place(struct slr_remote_place *place, uint64_t generation, uint64_t heir, uint64_t shift)
{
    if (place->generation != generation)
        return;
    place->generation = heir;
    place->offset += shift;
}

void slr_expect_inherit(struct slr_comm *c, int peer, uint64_t generation, uint64_t heir, uint64_t shift)
{
    struct peer *p = &c->expect->of[peer];
    for (int i = 0; i < PLACES; i++)
        inherit_place(&p->at[i].place, generation, heir, shift);
    for (int i = 0; i < BLOCKS; i++)
        if (p->from[i].generation == generation)
            p->from[i].generation = 0; /* this rank's blocks have changed as well, perhaps */
}

void slr_expect_free(struct slr_comm *c)
{
    free(c->expect);
    c->expect = NULL;
}
