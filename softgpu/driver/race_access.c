/* SPDX-License-Identifier: Apache-2.0 */
/* The race oracle's histories: for each piece of memory a sorted list of disjoint intervals, each
 * with its latest write and the reads since that no later read stands for. An access is judged
 * against those, which is enough: what they are ordered after was judged against them. */
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
    if (!at || --access_at(at)->refs)
        return;
    race_copy_drop(access_at(at)->copy);
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

/* The interval's bytes go. Those of a copy count as used if somebody has read them, or if what
 * overwrites them does not follow the copy. */
static void lose(const struct interval *iv, bool ordered)
{
    race_at copy = iv->write ? access_at(iv->write)->copy : 0;
    if (copy && (iv->reads || !ordered))
        race_copy_used(copy, iv->lo, iv->hi);
}

void race_forget(struct race_key key)
{
    race_at *link, at;
    struct block *b = find(key, &link);

    if (!b)
        return;
    for (uint32_t i = 0; i < b->count; i++) {
        lose(&list_of(b)[i], true);
        drop_interval(&list_of(b)[i]);
    }
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
bool race_was_killed(const struct race_access *a)
{
    return a->pid != (int32_t)getpid() && !sg_process_alive(a->pid, 0) && !race_has_ended(a->pid);
}

static bool told(const struct race_judge *j, const struct race_found *f)
{
    for (unsigned i = 0; i < j->nfound; i++) {
        const struct race_found *g = &j->found[i];
        if (g->other.number == f->other.number && g->other.kind == f->other.kind && g->self.number == f->self.number)
            return true;
    }
    return false;
}

bool race_tell(struct race_judge *j, const struct race_found *f)
{
    if (told(j, f))
        return true;
    if (j->nfound == sizeof(j->found) / sizeof(j->found[0]))
        return false;
    j->found[j->nfound++] = *f;
    race_file->races++;
    return true;
}

static void judge(struct race_judge *j, race_at at, uint64_t lo, uint64_t hi)
{
    const struct race_access *a = at ? access_at(at) : NULL;

    if (!a || !conflict(a->kind, j->self.kind) || before(j, a))
        return;
    struct race_found f = {.other = *a, .self = j->self, .key = j->key, .lo = lo, .hi = hi};
    if (race_was_killed(a))
        race_file->excused++;
    else if (!told(j, &f) && !race_suspend(&f) && !race_tell(j, &f))
        race_file->races++;
}

/* ---- the reads of an interval ---- */

/* A later read stands for an earlier one that it follows, unless less is a conflict with it. That
 * of a copy does only once its bytes have been used: until then a race with it may come to
 * nothing. */
static bool less_conflicts(const struct race_access *later, const struct race_access *a)
{
    return (a->kind & later->kind) != later->kind;
}

static void remove_read(struct interval *iv, uint32_t i)
{
    drop(iv->read[i]);
    iv->reads--;
    memmove(iv->read + i, iv->read + i + 1, (iv->reads - i) * sizeof(iv->read[0]));
}

static bool has_stand_in(const struct interval *iv, const struct race_access *a)
{
    for (uint32_t i = 0; i < iv->reads; i++) {
        const struct race_access *later = access_at(iv->read[i]);
        if (later->copy && a->number < later->number && race_copy_follows(later->copy, a) &&
            !less_conflicts(later, a) && race_copy_left(later->copy, iv->lo, iv->hi) == RACE_READ)
            return true;
    }
    return false;
}

/* Takes out what can not matter any more now that more is known of the copies' bytes. */
static void review_reads(struct interval *iv)
{
    for (uint32_t i = iv->reads; i-- > 0;) {
        const struct race_access *a = access_at(iv->read[i]);
        bool gone = a->copy && race_copy_left(a->copy, iv->lo, iv->hi) == RACE_GONE;
        if (gone || has_stand_in(iv, a))
            remove_read(iv, i);
    }
}

static void stand_for_reads(const struct race_judge *j, struct interval *iv)
{
    for (uint32_t i = iv->reads; i-- > 0;) {
        const struct race_access *a = access_at(iv->read[i]);
        if (before(j, a) && !less_conflicts(&j->self, a))
            remove_read(iv, i);
    }
}

static void add_read(struct race_judge *j, struct interval *iv, race_at self)
{
    if (j->self.copy && iv->reads)
        review_reads(iv);
    if (j->self.copy && iv->reads == READS) {
        /* No room to wait for what comes of its bytes: it counts from now on. */
        race_copy_drop(j->self.copy);
        access_at(self)->copy = j->self.copy = 0;
    }
    if (!j->self.copy)
        stand_for_reads(j, iv);
    if (iv->reads == READS) {
        remove_read(iv, READS - 1);
        race_file->dropped++;
    }
    iv->read[iv->reads++] = self;
    hold(self);
}

static void visit(struct race_judge *j, struct interval *iv, race_at self)
{
    judge(j, iv->write, iv->lo, iv->hi);
    if (!(j->self.kind & RACE_WRITE)) {
        if (iv->write)
            race_copy_read(j, access_at(iv->write)->copy, iv->lo, iv->hi);
        add_read(j, iv, self);
        return;
    }
    for (uint32_t i = 0; i < iv->reads; i++)
        judge(j, iv->read[i], iv->lo, iv->hi);
    hold(self);
    lose(iv, !iv->write || before(j, access_at(iv->write)));
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
    race_copy_hold(j->self.copy);
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

enum race_left race_left(race_at copy, struct race_key key, uint64_t lo, uint64_t hi)
{
    enum race_left left = RACE_GONE;
    race_at *link;
    const struct block *b = find(key, &link);

    for (uint32_t i = b ? first_after(b, lo) : 0; b && i < b->count && list_of(b)[i].lo < hi; i++) {
        const struct interval *iv = &list_of(b)[i];
        if (!iv->write || access_at(iv->write)->copy != copy)
            continue;
        if (iv->reads)
            return RACE_READ;
        left = RACE_HELD;
    }
    return left;
}
