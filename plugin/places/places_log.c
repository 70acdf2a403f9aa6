/* SPDX-License-Identifier: Apache-2.0 */
/* Writing what was recorded to the log: on the house-keeping thread, and where the communicator or the process
 * ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/callers/callers.h"
#include "plugin/callers/names.h"
#include "plugin/comm/comm.h"
#include "plugin/places/places.h"
#include "plugin/places/places_impl.h"

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

/* One more of a line's calls; place + 1, 0: not recorded. */
static size_t put_id(char *text, size_t len, uint32_t id)
{
    const char *comma = len ? "," : "";
    return len + (size_t)(id ? snprintf(text + len, LINE_TEXT - len, "%s%u", comma, id - 1)
                             : snprintf(text + len, LINE_TEXT - len, "%s-", comma));
}

static void tell_line(const struct slr_comm *c, uint64_t first, const char *ids)
{
    if (ids[strspn(ids, "-,")]) /* not when none was recorded */
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
