/* SPDX-License-Identifier: Apache-2.0 */
/* Words that streams write and wait for, and the meetings of collectives: the race oracle's order between queues that
 * is not made by events. A word remembers its latest values, each with the clock of who wrote it. */
#include "race.h"
#include "race_state.h"
#include <string.h>

#define VALUES 32

struct entry {
    uint64_t value;
    race_at clock;
    uint32_t n;
    bool foreign; /* nobody was seen to write it; not of the first entry */
};
struct word {
    struct race_key key;
    uint64_t offset, count; /* entries ever; the latest VALUES are kept */
    struct entry ring[VALUES];
    race_at next;
};
enum { COMMUNICATOR = 255 };

static race_at *chain(struct race_key key, uint64_t offset)
{
    return &race_file->words[race_bucket(key, offset)];
}

static struct word *find(struct race_key key, uint64_t offset)
{
    for (race_at at = *chain(key, offset); at; at = ((struct word *)race_ptr(at))->next) {
        struct word *w = race_ptr(at);
        if (w->key.a == key.a && w->key.b == key.b && w->offset == offset)
            return w;
    }
    return NULL;
}

static struct word *make(struct race_key key, uint64_t offset)
{
    race_at at = race_alloc(sizeof(struct word)), *head = chain(key, offset);
    struct word *w = race_ptr(at);

    if (!at)
        return NULL;
    w->key = key;
    w->offset = offset;
    w->next = *head;
    *head = at;
    return w;
}

static void set_clock(struct entry *e, const struct sg_clock *k)
{
    race_free(e->clock, e->n * sizeof(uint32_t));
    e->clock = k->n ? race_alloc(k->n * sizeof(uint32_t)) : 0;
    e->n = e->clock ? k->n : 0;
    if (e->n)
        memcpy(race_ptr(e->clock), k->c, e->n * sizeof(uint32_t));
}

static void take_clock(const struct entry *e, struct sg_clock *k)
{
    if (e->n)
        race_join(k, race_ptr(e->clock), e->n);
}

static void append(struct word *w, uint64_t value, const struct sg_clock *k, bool foreign)
{
    struct entry *e = &w->ring[w->count++ % VALUES];

    e->value = value;
    e->foreign = foreign;
    set_clock(e, k);
}

static void append_unknown(struct word *w, uint64_t value, bool any_operation)
{
    struct sg_clock k = {NULL, 0};

    race_joins_host(&k);
    if (any_operation)
        race_all(&k);
    append(w, value, &k, w->count > 0);
    sg_clock_free(&k);
}

static uint64_t load(const struct race_place *p)
{
    return p->wide ? __atomic_load_n((uint64_t *)p->addr, __ATOMIC_ACQUIRE)
                   : __atomic_load_n((uint32_t *)p->addr, __ATOMIC_ACQUIRE);
}

/* The word, with what it holds as the first entry: the host put that there, unless an operation wrote to it as data. */
static struct word *get(const struct race_place *p, uint64_t value)
{
    struct word *w = find(p->key, p->offset);

    if (!w && (w = make(p->key, p->offset)))
        append_unknown(w, value, race_was_written(p->key, p->offset, p->offset + (p->wide ? 8 : 4)));
    return w;
}

void race_word_watch(const struct race_place *p)
{
    get(p, load(p));
}

void race_word_release(const struct race_place *p, struct sg_op *op, void (*store)(struct sg_op *op))
{
    bool barrier = op->kind != SG_OP_WRITE || !(op->u.memop.flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
    struct sg_clock none = {NULL, 0};
    uint64_t old = load(p);
    struct word *w = get(p, old);

    if (w && w->ring[(w->count - 1) % VALUES].value != old)
        append_unknown(w, old, true);
    store(op);
    if (w)
        append(w, load(p), barrier ? &op->clock : &none, false);
}

bool race_word_acquire(const struct race_place *p, const struct sg_memop *wait, struct sg_clock *k)
{
    struct word *w = find(p->key, p->offset);
    const struct entry *first = NULL;
    bool known = false, broken = false;

    if (!w) { /* forgotten; so is all that was before it */
        race_joins_host(k);
        return false;
    }
    if (w->ring[(w->count - 1) % VALUES].value != load(p)) /* the host's, or of an operation that writes more */
        append_unknown(w, load(p), true);
    for (uint64_t i = w->count; i > 0 && i + VALUES > w->count; i--) {
        const struct entry *e = &w->ring[(i - 1) % VALUES];
        known |= e->value == wait->seen;
        if (!broken && sg_memop_satisfied(wait, e->value))
            first = e;
        else
            broken |= first != NULL;
    }
    if (known && first)
        take_clock(first, k);
    else
        race_all(k);
    /* What was seen is no longer among the last values: it is ordered after everything, and judged on. */
    if (!known && w->count > VALUES)
        return false;
    return !known || !first || first->foreign;
}

/* ---- collectives ---- */

static struct word *meeting(uint64_t id)
{
    struct race_key key = {id, COMMUNICATOR};
    struct word *w = find(key, 0);
    return w ? w : make(key, 0);
}

void race_meet_begin(uint64_t id, const struct sg_clock *k)
{
    struct word *w = meeting(id);
    struct sg_clock all = {NULL, 0};

    race_join(&all, k->c, k->n);
    if (w) {
        take_clock(&w->ring[0], &all);
        set_clock(&w->ring[0], &all);
    }
    sg_clock_free(&all);
}

void race_meet_end(uint64_t id, struct sg_clock *k)
{
    struct word *w = find((struct race_key){id, COMMUNICATOR}, 0);

    if (w)
        take_clock(&w->ring[0], k);
    else
        race_joins_host(k);
}
