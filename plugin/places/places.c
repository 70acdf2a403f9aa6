/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/places/places.h"

#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/callers/callers.h"
#include "plugin/comm/comm.h"

#define SLR_PLACES 512u
#define SLR_PLACES_ALL (SLR_PLACES + 33u)
#define SLR_PLACES_FIRST 1024u /* a power of two: calls below are listed */
#define SLR_PLACES_WINDOW 384u
#define SLR_PLACES_WINDOWS 23u
#define SLR_PLACES_LISTED (SLR_PLACES_FIRST - 1 + SLR_PLACES_WINDOWS * SLR_PLACES_WINDOW)
#define SLR_PLACES_BUCKETS 256u
#define SLR_PLACES_LAST 512u /* a power of two, and more than a window */

/* The words of a place. An identity is ordinal << 1 | known; of a buffer elsewhere all are 0. */
enum slr_place_word { SLR_PLACE_SHAPE, SLR_PLACE_RECV, SLR_PLACE_SEND = 4, SLR_PLACE_WORDS = 7 };
enum slr_place_shape {
    SLR_PLACE_IN_PLACE = 1,
    SLR_PLACE_RECV_ELSEWHERE = 2,
    SLR_PLACE_SEND_ELSEWHERE = 4,
    SLR_PLACE_ELSEWHERE = 6,
    SLR_PLACE_KIND = 8, /* times enum slr_collective_id */
    SLR_PLACE_KINDS = 4,
    SLR_PLACE_SHARD = SLR_PLACE_KIND * SLR_PLACE_KINDS
};
_Static_assert((int)SLR_COLLECTIVES <= (int)SLR_PLACE_KINDS, "there is room for each");

struct slr_place_row {
    uint64_t word[SLR_PLACE_WORDS];
    uint64_t call;  /* its first */
    uint16_t after; /* place of the call that followed its latest call */
    uint16_t chain; /* next of its bucket + 1 */
};

struct slr_places {
    _Atomic uint64_t latest; /* number of the latest call */
    _Atomic uint32_t count;  /* places */
    _Atomic uint64_t more;   /* calls elsewhere */
    uint16_t before;         /* the latest call's place */
    uint16_t bucket[SLR_PLACES_BUCKETS];
    struct slr_place_row place[SLR_PLACES_ALL];
    _Atomic uint16_t listed[SLR_PLACES_LISTED];
    _Atomic uint64_t last[SLR_PLACES_LAST]; /* call << 16 | place + 1, by call */
    _Atomic uint64_t *_Atomic callers;      /* [SLR_PLACES_LISTED]: callers/callers.h; NULL: no call has a name */
    /* What has been logged. */
    uint32_t places_told, listed_told;
    bool ended;
    struct slr_place_names *names[SLR_PLACES_ALL];
};

/* Of a call, -1: not listed; and how many of the listed ones are not above it. */
static inline int slr_places_slot(uint64_t call)
{
    if (call < SLR_PLACES_FIRST)
        return (int)call - 1;
    const unsigned power = 63u - (unsigned)__builtin_clzll(call), window = power - 10;
    const uint64_t at = call - (UINT64_C(1) << power);
    return window < SLR_PLACES_WINDOWS && at < SLR_PLACES_WINDOW
               ? (int)(SLR_PLACES_FIRST - 1 + window * SLR_PLACES_WINDOW + at)
               : -1;
}
_Static_assert(SLR_PLACES_FIRST == 1u << 10, "the first window");

/* ---- a call, on the application's thread ---- */

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

static uint32_t add_place(struct slr_places *p, const uint64_t *word, uint64_t call)
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
        return add_place(p, rest, call);
    }
    without(less, word, bits[known(p, word, SLR_PLACE_RECV) ? 0 : known(p, word, SLR_PLACE_SEND) ? 1 : 2]);
    return add_place(p, less, call);
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
        id = count_of(p) < SLR_PLACES ? add_place(p, word, call->number) : elsewhere(p, word, call->number);
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

static void list_call(struct slr_places *p, uint64_t call, uint32_t id, uint64_t caller)
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
    list_call(p, call->number, id, call->caller);
}

const struct slr_watcher slr_places_watcher = {.begins = place_call};

/* ---- the log: on the house-keeping thread, and where the communicator or the process ends ---- */

enum { LINE_CALLS = 64, LINE_TEXT = LINE_CALLS * 4 + 1 };

typedef unsigned long long ull;

struct slr_place_names {
    struct slr_names names;
    unsigned lines;
};

/* Of what has been logged. One is enough for all communicators: no call takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void tell_place(const struct slr_comm *c, const struct slr_places *p, uint32_t id)
{
    const struct slr_place_row *row = &p->place[id];
    const uint64_t shape = row->word[SLR_PLACE_SHAPE], *recv = &row->word[SLR_PLACE_RECV],
                   *send = &row->word[SLR_PLACE_SEND];
    slr_log(SLR_LOG_INFO, "place",
            "op=%s comm=%s crank=%d id=%u call=%llu shard=%llu in_place=%d recv_elsewhere=%d recv_known=%d "
            "recv_ordinal=%llu recv_size=%llu recv_offset=%llu send_elsewhere=%d send_known=%d send_ordinal=%llu "
            "send_size=%llu "
            "send_offset=%llu",
            slr_collectives[shape / SLR_PLACE_KIND % SLR_PLACE_KINDS].op, c->name, c->rank, id, (ull)row->call,
            (ull)(shape / SLR_PLACE_SHARD), (shape & SLR_PLACE_IN_PLACE) != 0, (shape & SLR_PLACE_RECV_ELSEWHERE) != 0,
            (int)(recv[0] & 1), (ull)recv[0] >> 1, (ull)recv[1], (ull)recv[2], (shape & SLR_PLACE_SEND_ELSEWHERE) != 0,
            (int)(send[0] & 1), (ull)send[0] >> 1, (ull)send[1], (ull)send[2]);
}

static void tell_places(const struct slr_comm *c, struct slr_places *p)
{
    const uint32_t count = atomic_load_explicit(&p->count, memory_order_acquire);
    while (p->places_told < count)
        tell_place(c, p, p->places_told++);
}

/* Names that are new for the place: what a name is of is the call, whose number the line has. */
static void tell_caller(const struct slr_comm *c, struct slr_places *p, uint32_t slot, uint64_t call, uint32_t id)
{
    const _Atomic uint64_t *callers = atomic_load_explicit(&p->callers, memory_order_acquire);
    const uint64_t caller = callers ? atomic_load_explicit(&callers[slot], memory_order_relaxed) : 0;
    char text[SLR_CALLER_TEXT];
    if (!caller || !slr_caller_text(caller, text))
        return;
    struct slr_place_names *n = p->names[id];
    if (!n)
        n = p->names[id] = calloc(1, sizeof *n);
    const char *fresh = n && n->lines < SLR_CALLER_LINES ? slr_names_add(&n->names, text) : NULL;
    if (!fresh)
        return;
    n->lines++;
    slr_log(SLR_LOG_INFO, "caller_place", "comm=%s crank=%d id=%u call=%llu caller=%s", c->name, c->rank, id, (ull)call,
            fresh);
}

/* One more of a line's calls; place + 1, 0: not noted. */
static size_t put_id(char *text, size_t len, uint32_t id)
{
    const char *comma = len ? "," : "";
    return len + (size_t)(id ? snprintf(text + len, LINE_TEXT - len, "%s%u", comma, id - 1)
                             : snprintf(text + len, LINE_TEXT - len, "%s-", comma));
}

static void tell_line(const struct slr_comm *c, uint64_t first, const char *ids)
{
    if (ids[strspn(ids, "-,")]) /* not when none was noted */
        slr_log(SLR_LOG_INFO, "places", "comm=%s crank=%d first=%llu ids=%s", c->name, c->rank, (ull)first, ids);
}

/* The listed call at a slot, and the slot behind the last that follows it without a gap. */
static uint64_t call_at(uint32_t slot, uint32_t *end)
{
    if (slot < SLR_PLACES_FIRST - 1) {
        *end = SLR_PLACES_FIRST - 1;
        return slot + 1;
    }
    const uint32_t behind = slot - (SLR_PLACES_FIRST - 1), window = behind / SLR_PLACES_WINDOW;
    *end = SLR_PLACES_FIRST - 1 + (window + 1) * SLR_PLACES_WINDOW;
    return ((uint64_t)SLR_PLACES_FIRST << window) + behind % SLR_PLACES_WINDOW;
}

/* A line of listed calls, if there are enough for one: 64, all that are left of a window, or a sixteenth of all so
 * far. So what a process that is killed leaves untold is little, and lines are few. */
static bool tell_listed(const struct slr_comm *c, struct slr_places *p, uint64_t latest, bool all)
{
    char text[LINE_TEXT] = "";
    size_t len = 0;
    if (p->listed_told == SLR_PLACES_LISTED)
        return false;
    uint32_t end, slot = p->listed_told;
    const uint64_t first = call_at(slot, &end);
    if (latest < first)
        return false;
    uint32_t n = end - slot;
    if (latest - first + 1 < n)
        n = (uint32_t)(latest - first + 1);
    if (n < LINE_CALLS && slot + n < end && n * 16 < slot && !all)
        return false;
    n = n < LINE_CALLS ? n : LINE_CALLS;
    for (uint32_t i = 0; i < n; i++, slot++) {
        const uint32_t id = atomic_load_explicit(&p->listed[slot], memory_order_relaxed);
        len = put_id(text, len, id);
        if (id)
            tell_caller(c, p, slot, first + i, id - 1);
    }
    tell_line(c, first, text);
    p->listed_told = slot;
    return true;
}

static void tell(const struct slr_comm *c, struct slr_places *p, bool all)
{
    /* Before the places: those of all these calls are there then. */
    const uint64_t latest = atomic_load_explicit(&p->latest, memory_order_acquire);
    tell_places(c, p);
    while (tell_listed(c, p, latest, all))
        ;
}

/* The last calls that are not listed. */
static void tell_last(const struct slr_comm *c, struct slr_places *p)
{
    const uint64_t latest = atomic_load(&p->latest);
    uint64_t call = latest < SLR_PLACES_WINDOW ? 1 : latest - SLR_PLACES_WINDOW + 1;
    while (call <= latest) {
        char text[LINE_TEXT] = "";
        size_t len = 0;
        const uint64_t first = call;
        for (int i = 0; i < LINE_CALLS && call <= latest && slr_places_slot(call) < 0; i++, call++) {
            const uint64_t one = atomic_load(&p->last[call % SLR_PLACES_LAST]);
            len = put_id(text, len, one >> 16 == call ? (uint32_t)(one & 0xffff) : 0);
        }
        tell_line(c, first, text);
        call += call == first; /* a listed one */
    }
}

static struct slr_places *of(struct slr_comm *c)
{
    struct slr_places *p = atomic_load_explicit(&c->places, memory_order_acquire);
    return p && !p->ended ? p : NULL;
}

void slr_places_tick(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    struct slr_places *p = of(c);
    if (p)
        tell(c, p, false);
    pthread_mutex_unlock(&lock);
}

/* Once: the process may end before the communicator does, and both tell. */
static void end(struct slr_comm *c)
{
    struct slr_places *p = of(c);
    if (!p)
        return;
    p->ended = true;
    tell(c, p, true);
    tell_last(c, p);
    slr_log(SLR_LOG_INFO, "places_end", "comm=%s crank=%d calls=%llu places=%u more=%llu", c->name, c->rank,
            (ull)atomic_load(&p->latest), atomic_load(&p->count), (ull)atomic_load(&p->more));
}

void slr_places_end(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    end(c);
    pthread_mutex_unlock(&lock);
}

void slr_places_dispose(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    end(c);
    struct slr_places *p = atomic_exchange(&c->places, NULL);
    for (uint32_t i = 0; p && i < SLR_PLACES_ALL; i++)
        if (p->names[i]) {
            slr_names_close(&p->names[i]->names);
            free(p->names[i]);
        }
    free(p ? (void *)p->callers : NULL);
    free(p);
    pthread_mutex_unlock(&lock);
}
