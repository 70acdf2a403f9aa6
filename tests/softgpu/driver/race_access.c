/* SPDX-License-Identifier: Apache-2.0 */
/* The race oracle's histories: for each piece of memory a sorted list of disjoint intervals, each with its latest write
 * and the reads since that no later read covers. An access is judged against those, which is enough: what they are
 * ordered after was judged against them. */
#include "race.h"
#include "race_state.h"
#include <string.h>
#include <unistd.h>

#define READS 14
#define MAX_INTERVALS 262144
#define MAX_ROWS 16384

struct interval {
    uint64_t lo, hi;
    race_at write;
    uint32_t reads;
    race_at read[READS];
};
struct block {
    struct race_key key;
    race_at next, list;
    uint32_t count, cap;
};

static struct block *find(struct race_key key, race_at **link)
{
    race_at *at = &race_file->blocks[race_bucket(key, 0)];

    for (; *at; at = &((struct block *)race_ptr(*at))->next) {
        struct block *b = race_ptr(*at);
        if (b->key.a == key.a && b->key.b == key.b) {
            *link = at;
            return b;
        }
    }
    *link = at;
    return NULL;
}

static struct block *get(struct race_key key)
{
    race_at *link, at;
    struct block *b = find(key, &link);

    if (b || !(at = race_alloc(sizeof(*b))))
        return b;
    *link = at;
    b = race_ptr(at);
    b->key = key;
    return b;
}

static struct interval *list_of(const struct block *b)
{
    return race_ptr(b->list);
}

static struct race_access *access_at(race_at at)
{
    return race_ptr(at);
}

static void hold(race_at at)
{
    if (at)
        access_at(at)->refs++;
}

static void drop(race_at at)
{
    if (at && !--access_at(at)->refs)
        race_free(at, sizeof(struct race_access));
}

static void drop_interval(const struct interval *iv)
{
    drop(iv->write);
    for (uint32_t i = 0; i < iv->reads; i++)
        drop(iv->read[i]);
}

static void hold_interval(const struct interval *iv)
{
    hold(iv->write);
    for (uint32_t i = 0; i < iv->reads; i++)
        hold(iv->read[i]);
}

void race_forget(struct race_key key)
{
    race_at *link, at;
    struct block *b = find(key, &link);

    if (!b)
        return;
    for (uint32_t i = 0; i < b->count; i++)
        drop_interval(&list_of(b)[i]);
    race_free(b->list, b->cap * sizeof(struct interval));
    at = *link;
    *link = b->next;
    race_free(at, sizeof(*b));
}

/* ---- the list ---- */

static uint32_t first_after(const struct block *b, uint64_t at)
{
    uint32_t lo = 0, hi = b->count;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (list_of(b)[mid].hi > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static bool grow(struct block *b)
{
    uint32_t cap = b->cap ? b->cap * 2 : 4;
    race_at list = cap <= MAX_INTERVALS ? race_alloc(cap * sizeof(struct interval)) : 0;

    if (!list)
        return false;
    if (b->count)
        memcpy(race_ptr(list), list_of(b), b->count * sizeof(struct interval));
    race_free(b->list, b->cap * sizeof(struct interval));
    b->list = list;
    b->cap = cap;
    return true;
}

static bool insert(struct block *b, uint32_t i, const struct interval *iv)
{
    struct interval copy = *iv;

    if (b->count == b->cap && !grow(b))
        return false;
    struct interval *list = list_of(b);
    memmove(list + i + 1, list + i, (b->count - i) * sizeof(*list));
    list[i] = copy;
    b->count++;
    return true;
}

/* The interval i becomes two, which meet at `at`. */
static bool split(struct block *b, uint32_t i, uint64_t at)
{
    struct interval left = list_of(b)[i];

    left.hi = at;
    if (!insert(b, i, &left))
        return false;
    list_of(b)[i + 1].lo = at;
    hold_interval(&left);
    return true;
}

static bool alike(const struct interval *a, const struct interval *b)
{
    return a->hi == b->lo && a->write == b->write && a->reads == b->reads &&
           !memcmp(a->read, b->read, a->reads * sizeof(a->read[0]));
}

/* Joins what is alike among the intervals from .. to. */
static void merge(struct block *b, uint32_t from, uint32_t to)
{
    struct interval *list = list_of(b);
    uint32_t kept = from, end = to < b->count ? to : b->count - 1;

    for (uint32_t i = from + 1; i <= end; i++) {
        if (alike(&list[kept], &list[i])) {
            list[kept].hi = list[i].hi;
            drop_interval(&list[i]);
        } else {
            list[++kept] = list[i];
        }
    }
    memmove(list + kept + 1, list + end + 1, (b->count - end - 1) * sizeof(*list));
    b->count -= end - kept;
}

/* ---- judging ---- */

static bool before(const struct race_judge *j, const struct race_access *a)
{
    return a->queue < j->clock->n && j->clock->c[a->queue] >= a->epoch;
}

/* Single words are written and read as a unit, so that a stream memory operation may look at them meanwhile. */
static bool conflict(uint32_t a, uint32_t b)
{
    return (a | b) & RACE_WRITE && !(a & b & RACE_WORD && (a | b) & RACE_SYNC);
}

/* Killed processes have stopped, and others see that; one that ends by itself says so here. */
static bool was_killed(const struct race_access *a)
{
    if (a->pid == (int32_t)getpid() || sg_process_alive(a->pid, 0))
        return false;
    for (uint32_t i = 0; i < RACE_EXITS; i++)
        if (race_file->exited[i] == a->pid)
            return false;
    return true;
}

static void judge(struct race_judge *j, race_at at, uint64_t lo, uint64_t hi)
{
    const struct race_access *a = at ? access_at(at) : NULL;

    if (!a || !conflict(a->kind, j->self.kind) || before(j, a))
        return;
    if (was_killed(a)) {
        race_file->excused++;
        return;
    }
    for (unsigned i = 0; i < j->nfound; i++)
        if (j->found[i].other.number == a->number && j->found[i].other.kind == a->kind)
            return;
    race_file->races++;
    if (j->nfound < sizeof(j->found) / sizeof(j->found[0]))
        j->found[j->nfound++] = (struct race_found){*a, j->self, j->key, lo, hi};
}

/* A later read stands for an earlier one that it follows, unless less is a conflict with it. */
static void add_read(struct race_judge *j, struct interval *iv, race_at self)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < iv->reads; i++) {
        const struct race_access *a = access_at(iv->read[i]);
        if (before(j, a) && (a->kind & j->self.kind) == j->self.kind)
            drop(iv->read[i]);
        else
            iv->read[kept++] = iv->read[i];
    }
    if (kept == READS) {
        drop(iv->read[--kept]);
        race_file->dropped++;
    }
    iv->read[kept++] = self;
    iv->reads = kept;
    hold(self);
}

static void visit(struct race_judge *j, struct interval *iv, race_at self)
{
    judge(j, iv->write, iv->lo, iv->hi);
    if (!(j->self.kind & RACE_WRITE)) {
        add_read(j, iv, self);
        return;
    }
    for (uint32_t i = 0; i < iv->reads; i++)
        judge(j, iv->read[i], iv->lo, iv->hi);
    hold(self);
    drop_interval(iv);
    iv->write = self;
    iv->reads = 0;
}

static bool access_range(struct race_judge *j, struct block *b, race_at self, uint64_t lo, uint64_t hi)
{
    uint32_t i = first_after(b, lo), from;
    uint64_t at = lo;

    if (i < b->count && list_of(b)[i].lo < lo) {
        if (!split(b, i, lo))
            return false;
        i++;
    }
    from = i ? i - 1 : 0;
    for (; at < hi; i++) {
        const struct interval *iv = i < b->count ? &list_of(b)[i] : NULL;
        if (!iv || iv->lo > at) { /* never touched before */
            struct interval gap = {.lo = at, .hi = iv && iv->lo < hi ? iv->lo : hi};
            if (!insert(b, i, &gap))
                return false;
        } else if (iv->hi > hi && !split(b, i, hi)) {
            return false;
        }
        visit(j, &list_of(b)[i], self);
        at = list_of(b)[i].hi;
    }
    merge(b, from, i);
    return true;
}

void race_access(struct race_judge *j, uint64_t offset, size_t row, size_t rows, size_t pitch)
{
    struct block *b;
    race_at self;
    bool ok = true;

    if (pitch == row || rows == 1) {
        row *= rows;
        rows = 1;
    }
    race_file->checked++;
    self = race_alloc(sizeof(struct race_access));
    b = get(j->key);
    if (!self || !b || rows > MAX_ROWS) {
        race_file->dropped++;
        race_free(self, sizeof(struct race_access));
        return;
    }
    j->self.lo = offset;
    j->self.hi = offset + (rows - 1) * pitch + row;
    *access_at(self) = j->self;
    access_at(self)->refs = 1;
    for (size_t y = 0; y < rows && ok; y++)
        ok = access_range(j, b, self, offset + y * pitch, offset + y * pitch + row);
    drop(self);
    if (!ok) { /* no room for it */
        race_forget(j->key);
        race_file->dropped++;
    }
}

static bool concerns(const struct race_judge *j, race_at at, bool through_base)
{
    const struct race_access *a = access_at(at);
    return !through_base || (a->pid == (int32_t)getpid() && a->base == j->self.base);
}

void race_access_all(struct race_judge *j, bool through_base)
{
    race_at *link;
    const struct block *b = find(j->key, &link);

    for (uint32_t i = 0; b && i < b->count; i++) {
        const struct interval *iv = &list_of(b)[i];
        if (iv->write && concerns(j, iv->write, through_base))
            judge(j, iv->write, iv->lo, iv->hi);
        for (uint32_t k = 0; k < iv->reads; k++)
            if (concerns(j, iv->read[k], through_base))
                judge(j, iv->read[k], iv->lo, iv->hi);
    }
}

bool race_was_written(struct race_key key, uint64_t lo, uint64_t hi)
{
    race_at *link;
    const struct block *b = find(key, &link);

    for (uint32_t i = b ? first_after(b, lo) : 0; b && i < b->count && list_of(b)[i].lo < hi; i++)
        if (list_of(b)[i].write && !(access_at(list_of(b)[i].write)->kind & RACE_SYNC))
            return true;
    return false;
}
