/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a call, on the application's thread. */
#include "plugin/places/places.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/places/places_impl.h"

/* What every call comes to stays in registers; what only some do is out of the way of the others. */
#define ALWAYS static inline __attribute__((always_inline))
#define SELDOM __attribute__((noinline, cold))

SELDOM static struct slr_places *make_places(struct slr_comm *c)
{
    struct slr_places *p = calloc(1, sizeof *p);
    atomic_store_explicit(&c->places, p, memory_order_release);
    return p;
}

ALWAYS void put_place(uint64_t *word, const struct slr_place *at, const void *p)
{
    word[0] = (uint64_t)at->ordinal << 1 | (at->generation != 0);
    word[1] = at->size;
    word[2] = at->offset;
    if (!at->generation) { /* its address, by which the period of the calls is found */
        word[0] = word[1] = 0;
        word[2] = (uintptr_t)p;
    }
}

/* All shards together are less than 2^63 bytes: of more than 2^59 the report would be wrong. */
static uint64_t shape_of(const struct slr_call *call)
{
    return call->shard * SLR_PLACE_SHARD | (uint64_t)call->flow->kind->id * SLR_PLACE_KIND |
           (slr_call_in_place(call) ? SLR_PLACE_IN_PLACE : 0);
}

ALWAYS bool same(const uint64_t *a, const uint64_t *b)
{
    /* Without a branch, and without a loop, which gcc leaves one at -O2. */
    _Static_assert(SLR_PLACE_WORDS == 7, "all words");
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) | (a[5] ^ b[5]) |
            (a[6] ^ b[6])) == 0;
}

static uint32_t count_of(const struct slr_places *p)
{
    return atomic_load_explicit(&p->count, memory_order_relaxed);
}

static uint16_t *bucket_of(struct slr_places *p, const uint64_t *word)
{
    uint64_t hash = 0;
    for (int i = 0; i < SLR_PLACE_WORDS; i++)
        hash = slr_mix(hash, word[i]);
    return &p->bucket[hash % SLR_PLACES_BUCKETS];
}

/* Its number; false: there is no such place. */
static bool look_up(struct slr_places *p, const uint64_t *word, uint32_t *id)
{
    for (uint32_t i = *bucket_of(p, word); i; i = p->place[i - 1].chain)
        if (same(p->place[i - 1].word, word)) {
            *id = i - 1;
            return true;
        }
    return false;
}

static uint32_t add(struct slr_places *p, const uint64_t *word, uint64_t call)
{
    const uint32_t id = count_of(p);
    uint16_t *bucket = bucket_of(p, word);
    struct slr_place_row *row = &p->place[id];
    memcpy(row->word, word, sizeof row->word);
    row->call = call;
    row->chain = *bucket;
    *bucket = (uint16_t)(id + 1);
    atomic_store_explicit(&p->count, id + 1, memory_order_release);
    return id;
}

/* Whether some place has this buffer. */
static bool known(const struct slr_places *p, const uint64_t *word, enum slr_place_word at)
{
    for (uint32_t i = 0; i < count_of(p); i++)
        if (memcmp(&p->place[i].word[at], &word[at], 3 * sizeof *word) == 0)
            return true;
    return false;
}

/* The same without the buffers that `bits` name. */
static void without(uint64_t *to, const uint64_t *word, uint64_t bits)
{
    memset(to, 0, SLR_PLACE_WORDS * sizeof *to);
    to[SLR_PLACE_SHAPE] = word[SLR_PLACE_SHAPE] | bits;
    if (!(bits & SLR_PLACE_RECV_ELSEWHERE))
        memcpy(&to[SLR_PLACE_RECV], &word[SLR_PLACE_RECV], 3 * sizeof *to);
    if (!(bits & SLR_PLACE_SEND_ELSEWHERE))
        memcpy(&to[SLR_PLACE_SEND], &word[SLR_PLACE_SEND], 3 * sizeof *to);
}

/* All numbers are taken: the place without the buffer that no place has. */
static uint32_t elsewhere(struct slr_places *p, const uint64_t *word, uint64_t call)
{
    static const uint64_t bits[] = {SLR_PLACE_SEND_ELSEWHERE, SLR_PLACE_RECV_ELSEWHERE, SLR_PLACE_ELSEWHERE};
    uint64_t less[SLR_PLACE_WORDS];
    uint32_t id;
    atomic_fetch_add_explicit(&p->more, 1, memory_order_relaxed);
    for (int i = 0; i < 3; i++) {
        without(less, word, bits[i]);
        if (look_up(p, less, &id))
            return id;
    }
    if (count_of(p) == SLR_PLACES_ALL)
        return SLR_PLACES_ALL - 1;
    if (count_of(p) == SLR_PLACES_ALL - 1) {
        const uint64_t rest[SLR_PLACE_WORDS] = {SLR_PLACE_ELSEWHERE};
        return add(p, rest, call);
    }
    without(less, word, bits[known(p, word, SLR_PLACE_RECV) ? 0 : known(p, word, SLR_PLACE_SEND) ? 1 : 2]);
    return add(p, less, call);
}

ALWAYS void words_of(uint64_t *word, const struct slr_call *call, const struct slr_place *send,
                     const struct slr_place *recv)
{
    word[SLR_PLACE_SHAPE] = shape_of(call);
    put_place(&word[SLR_PLACE_RECV], recv, call->recv);
    put_place(&word[SLR_PLACE_SEND], send, call->send);
}

/* It is not the place that followed last time. */
SELDOM static uint32_t find(struct slr_places *p, const struct slr_call *call, const struct slr_place *send,
                            const struct slr_place *recv)
{
    uint64_t word[SLR_PLACE_WORDS];
    uint32_t id;
    words_of(word, call, send, recv);
    if (!look_up(p, word, &id))
        id = count_of(p) < SLR_PLACES ? add(p, word, call->number) : elsewhere(p, word, call->number);
    p->place[p->before].after = (uint16_t)id;
    return id;
}

/* Without memory there are no names. */
SELDOM static void keep_caller(struct slr_places *p, int slot, uint64_t caller)
{
    _Atomic uint64_t *kept = atomic_load_explicit(&p->callers, memory_order_relaxed);
    if (!kept) {
        kept = calloc(SLR_PLACES_LISTED, sizeof *kept);
        atomic_store_explicit(&p->callers, kept, memory_order_release);
    }
    if (kept)
        atomic_store_explicit(&kept[slot], caller, memory_order_relaxed);
}

static void list(struct slr_places *p, uint64_t call, uint32_t id, uint64_t caller)
{
    const int slot = slr_places_slot(call);
    if (slot >= 0)
        atomic_store_explicit(&p->listed[slot], (uint16_t)(id + 1), memory_order_relaxed);
    if (slot >= 0 && caller)
        keep_caller(p, slot, caller);
    atomic_store_explicit(&p->last[call % SLR_PLACES_LAST], call << 16 | (id + 1), memory_order_relaxed);
    /* Last: whoever reads it finds what came before. */
    atomic_store_explicit(&p->latest, call, memory_order_release);
}

static void place_call(const struct slr_call *call, const struct slr_watched *w);

SELDOM static void look_for(const struct slr_call *call)
{
    const struct slr_place send = slr_block_find((CUdeviceptr)(uintptr_t)call->send),
                           recv = slr_block_find((CUdeviceptr)(uintptr_t)call->recv);
    place_call(call, &(struct slr_watched){.send = &send, .recv = &recv});
}

static void place_call(const struct slr_call *call, const struct slr_watched *w)
{
    struct slr_places *p = atomic_load_explicit(&call->comm->places, memory_order_relaxed);
    if (!w->send) {
        look_for(call);
        return;
    }
    if (!p && !(p = make_places(call->comm)))
        return;
    uint64_t word[SLR_PLACE_WORDS];
    words_of(word, call, w->send, w->recv);
    uint32_t id = p->place[p->before].after;
    if (!same(p->place[id].word, word))
        id = find(p, call, w->send, w->recv);
    p->before = (uint16_t)id;
    list(p, call->number, id, call->caller);
}

const struct slr_watcher slr_places_watcher = {.begins = place_call};
