/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/expect.h"

#include <stdlib.h>
#include "base/mix.h"

#define PLACES 256 /* a peer; about as many as a large model has gathers in a step */
#define TRUSTED 1  /* times that a place was named again */
#define SHARDS 32  /* gathers in a row after which nobody is expected to want less than a shard */

struct expected {
    uint64_t key;
    struct slr_remote_place place;
    uint32_t again;
};

/* The latest gather with these buffers, and whether a GEMM took it over. */
struct site {
    uint64_t key;
    bool consumed;
    uint32_t shards; /* how many in a row were taken over by whole shards */
};

struct slr_expect {
    struct site site[PLACES];
    uint64_t key[SLR_TRANSFERS]; /* of the latest calls, by number */
    uint64_t unlearned[SLR_MAX_RANKS];
    struct expected of[][PLACES]; /* peers */
};

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

bool slr_expect_begin(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (!c->expect)
        c->expect = new_expect(call);
    if (c->expect)
        c->expect->key[call->number % SLR_TRANSFERS] = key_of(call);
    return c->expect != NULL;
}

enum slr_wanted slr_expect_wanted(const struct slr_call *call)
{
    uint64_t key = call->comm->expect->key[call->number % SLR_TRANSFERS];
    struct site *s = &call->comm->expect->site[key % PLACES];
    enum slr_wanted wanted = s->key != key         ? SLR_WANTS_CHUNKS
                             : !s->consumed        ? SLR_WANTS_NOTHING
                             : s->shards >= SHARDS ? SLR_WANTS_SHARDS
                                                   : SLR_WANTS_CHUNKS;
    *s = (struct site){.key = key, .shards = s->key == key && s->consumed ? s->shards : 0};
    return wanted;
}

void slr_expect_consumed(struct slr_comm *c, bool early)
{
    if (!c->expect)
        return;
    uint64_t key = c->expect->key[c->substituted % SLR_TRANSFERS];
    struct site *s = &c->expect->site[key % PLACES];
    if (s->key != key)
        return;
    s->consumed = true;
    s->shards = early ? 0 : s->shards + 1;
}

struct slr_remote_place slr_expected_place(const struct slr_call *call, int peer, bool once)
{
    const struct slr_expect *e = call->comm->expect;
    uint64_t key = e->key[call->number % SLR_TRANSFERS];
    const struct expected *x = &e->of[peer][key % PLACES];
    return x->key == key && (once || x->again >= TRUSTED) ? x->place : (struct slr_remote_place){0};
}

uint64_t *slr_expect_unlearned(struct slr_comm *c, int peer)
{
    return &c->expect->unlearned[peer];
}

void slr_expect_learn(struct slr_comm *c, int peer, uint64_t number, struct slr_remote_place place)
{
    uint64_t key = c->expect->key[number % SLR_TRANSFERS];
    struct expected *x = &c->expect->of[peer][key % PLACES];
    if (x->key == key && x->place.generation == place.generation && x->place.offset == place.offset)
        x->again++;
    else
        *x = (struct expected){.key = key, .place = place};
}

void slr_expect_free(struct slr_comm *c)
{
    free(c->expect);
    c->expect = NULL;
}
