/* SPDX-License-Identifier: Apache-2.0 */
/* Races of copies: a copy that reads what somebody writes meanwhile does no harm by that, so the race
 * counts once its bytes are used. Until then the report is suspended. See race.h. */
#include "race.h"
#include "race_state.h"
#include <string.h>
#include <unistd.h>

#define SUSPENDED 1024
#define USED 3

struct copy {
    uint32_t refs; /* of its accesses in the histories, and of suspended reports */
    uint32_t suspended, used_ranges;
    race_at clock; /* of the copy: `components` numbers */
    uint32_t components;
    struct race_key to;
    uint64_t from_offset, to_offset;
    struct {
        uint64_t lo, hi;
    } used[USED]; /* of `to`: somebody read these bytes of the copy, before they were overwritten */
};
struct suspended {
    race_at next, copy;
    uint64_t lo, hi; /* where the copy wrote the bytes that raced */
    struct race_found found;
};

static struct copy *copy_at(race_at at)
{
    return race_ptr(at);
}

/* ---- a copy ---- */

race_at race_copy_new(const struct sg_clock *k, uint64_t from_offset, struct race_key to, uint64_t to_offset)
{
    race_at at = race_alloc(sizeof(struct copy)), clock = at ? race_alloc(k->n * sizeof(*k->c)) : 0;

    if (!clock) {
        race_free(at, sizeof(struct copy));
        return 0;
    }
    memcpy(race_ptr(clock), k->c, k->n * sizeof(*k->c));
    *copy_at(at) = (struct copy){
        .refs = 1, .clock = clock, .components = k->n, .to = to, .from_offset = from_offset, .to_offset = to_offset};
    return at;
}

void race_copy_hold(race_at at)
{
    if (at)
        copy_at(at)->refs++;
}

void race_copy_drop(race_at at)
{
    if (!at || --copy_at(at)->refs)
        return;
    race_free(copy_at(at)->clock, copy_at(at)->components * sizeof(uint32_t));
    race_free(at, sizeof(struct copy));
}

bool race_copy_follows(race_at at, const struct race_access *a)
{
    const uint32_t *clock = race_ptr(copy_at(at)->clock);
    return a->queue < copy_at(at)->components && clock[a->queue] >= a->epoch;
}

/* Short of room, the last range grows over what lies between: one race too many may be reported,
 * and none too few. */
void race_copy_used(race_at at, uint64_t lo, uint64_t hi)
{
    struct copy *c = copy_at(at);
    uint32_t i = 0;

    while (i < c->used_ranges && (c->used[i].lo > hi || c->used[i].hi < lo))
        i++;
    if (i == USED)
        i--;
    if (i == c->used_ranges) {
        c->used[i].lo = lo;
        c->used[i].hi = hi;
        c->used_ranges++;
    }
    c->used[i].lo = lo < c->used[i].lo ? lo : c->used[i].lo;
    c->used[i].hi = hi > c->used[i].hi ? hi : c->used[i].hi;
}

static enum race_left left_at(race_at at, uint64_t lo, uint64_t hi)
{
    const struct copy *c = copy_at(at);

    for (uint32_t i = 0; i < c->used_ranges; i++)
        if (c->used[i].lo < hi && lo < c->used[i].hi)
            return RACE_READ;
    return race_left(at, c->to, lo, hi);
}

enum race_left race_copy_left(race_at at, uint64_t lo, uint64_t hi)
{
    uint64_t shift = copy_at(at)->to_offset - copy_at(at)->from_offset;
    return left_at(at, lo + shift, hi + shift);
}

/* ---- suspended reports ---- */

static struct suspended *suspended_at(race_at at)
{
    return race_ptr(at);
}

static void unlink_report(race_at *link)
{
    race_at at = *link;
    struct suspended *s = suspended_at(at);

    *link = s->next;
    copy_at(s->copy)->suspended--;
    race_file->nsuspended--;
    race_copy_drop(s->copy);
    race_free(at, sizeof(*s));
}

static bool came_to_nothing(const struct suspended *s)
{
    bool gone = left_at(s->copy, s->lo, s->hi) == RACE_GONE;
    race_file->unused += gone;
    return gone;
}

/* After a failure, a process's copies may keep bytes that their peer was about to overwrite. */
static bool is_excused(const struct suspended *s, bool forced)
{
    bool excused = race_was_killed(&s->found.self) || race_was_killed(&s->found.other) ||
                   (forced && left_at(s->copy, s->lo, s->hi) == RACE_HELD);
    race_file->excused += excused;
    return excused;
}

static bool make_room(void)
{
    race_at *link = &race_file->suspended;

    while (*link && race_file->nsuspended >= SUSPENDED)
        if (came_to_nothing(suspended_at(*link)))
            unlink_report(link);
        else
            link = &suspended_at(*link)->next;
    return race_file->nsuspended < SUSPENDED;
}

/* The same two accesses, at the bytes that follow: one report. */
static bool extends(struct suspended *s, race_at copy, const struct race_found *f)
{
    if (s->copy != copy || s->found.hi != f->lo || s->found.self.number != f->self.number ||
        s->found.other.number != f->other.number || s->found.other.kind != f->other.kind)
        return false;
    s->hi += f->hi - f->lo;
    s->found.hi = f->hi;
    return true;
}

static bool remember(race_at copy, const struct race_found *f)
{
    uint64_t shift = copy_at(copy)->to_offset - copy_at(copy)->from_offset;
    race_at at;

    for (at = race_file->suspended; at; at = suspended_at(at)->next)
        if (extends(suspended_at(at), copy, f))
            return true;
    if (!make_room() || !(at = race_alloc(sizeof(struct suspended))))
        return false;
    *suspended_at(at) = (struct suspended){
        .next = race_file->suspended, .copy = copy, .lo = f->lo + shift, .hi = f->hi + shift, .found = *f};
    race_file->suspended = at;
    race_file->nsuspended++;
    copy_at(copy)->suspended++;
    race_copy_hold(copy);
    return true;
}

bool race_suspend(const struct race_found *f)
{
    const struct race_access *read = f->self.kind & RACE_WRITE ? &f->other : &f->self;

    if (read->kind & RACE_WRITE || !read->copy || (f->self.kind | f->other.kind) & RACE_LIFE)
        return false;
    switch (race_copy_left(read->copy, f->lo, f->hi)) {
    case RACE_GONE:
        race_file->unused++;
        return true;
    case RACE_HELD:
        return !race_has_ended(read->pid) && remember(read->copy, f);
    case RACE_READ:
        break;
    }
    return false;
}

void race_copy_read(struct race_judge *j, race_at copy, uint64_t lo, uint64_t hi)
{
    race_at *link = &race_file->suspended;

    if (!copy || !copy_at(copy)->suspended)
        return;
    while (*link) {
        struct suspended *s = suspended_at(*link);
        if (s->copy != copy || s->lo >= hi || lo >= s->hi) {
            link = &s->next;
            continue;
        }
        s->found.use = j->self;
        if (!is_excused(s, false) && !race_tell(j, &s->found))
            return; /* no room in this operation's reports: it stays until the process ends */
        unlink_report(link);
    }
}

static const struct race_access *reader(const struct suspended *s)
{
    return s->found.self.kind & RACE_WRITE ? &s->found.other : &s->found.self;
}

void race_suspended_end(struct race_judge *j, bool forced)
{
    race_at *link = &race_file->suspended;

    while (*link) {
        struct suspended *s = suspended_at(*link);
        if (reader(s)->pid != (int32_t)getpid()) {
            link = &s->next;
            continue;
        }
        s->found.in_place = true;
        if (!came_to_nothing(s) && !is_excused(s, forced) && !race_tell(j, &s->found))
            return;
        unlink_report(link);
    }
}
