/* SPDX-License-Identifier: Apache-2.0 */
/* Where buffers lay: whether the ranks' are the same allocation at the same offset, in every iteration. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

static const struct comm *comm_at(const struct report *r, size_t i)
{
    return &r->m->comms.at[r->run->comms.at[i]];
}

static const struct member *member_of(const struct report *r, const struct comm *c, int32_t crank)
{
    for (size_t k = 0; k < c->members.n; k++)
        if (r->m->members.at[c->members.at[k]].crank == crank)
            return &r->m->members.at[c->members.at[k]];
    return NULL;
}

static bool tells(const struct member *b)
{
    return b && b->placed.n > 0;
}

/* Ranks that tell nothing. Members are sorted by rank; a damaged log may say that there are billions. */
static uint32_t silent(const struct report *r, const struct comm *c)
{
    int64_t last = -1;
    uint32_t n = c->nranks;
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        if (b->crank > last && b->crank < (int64_t)c->nranks && tells(b))
            n--, last = b->crank;
    }
    return n;
}

static bool any(const struct report *r, const struct comm *c)
{
    return silent(r, c) < c->nranks;
}

static bool listed(const struct member *b, uint64_t call)
{
    size_t low = 0, high = b->placed.n;
    while (low < high) {
        const size_t at = (low + high) / 2;
        if (b->placed.at[at].call < call)
            low = at + 1;
        else
            high = at;
    }
    return low < b->placed.n && b->placed.at[low].call == call;
}

/* Places that were first used by a call that no line lists; *first: the earliest of these calls. */
static uint64_t unlisted_places(const struct member *b, uint64_t *first)
{
    uint64_t n = 0;
    *first = 0;
    for (size_t i = 0; i < b->places.n; i++) {
        const uint64_t call = b->places.at[i].call;
        if (call == 0 || listed(b, call))
            continue;
        n++;
        *first = *first == 0 || call < *first ? call : *first;
    }
    return n;
}

/* The present phase's call sites, and those whose receive buffer is symmetric, as a put or multicast without agreement
 * would need it. */
static uint64_t count_sites(const struct comm *c, uint64_t *symmetric, uint64_t *breaks)
{
    const uint64_t last = c->phases.n ? c->phases.at[c->phases.n - 1].number : 0;
    uint64_t n = 0;
    *symmetric = *breaks = 0;
    for (size_t i = 0; i < c->symmetry.n; i++) {
        const struct symmetry *y = &c->symmetry.at[i];
        *breaks += y->breaks;
        if (y->phase != last || strcmp(y->buffer, "send") == 0)
            continue;
        n++;
        *symmetric += y->found.state == SYM_SITE_SYMMETRIC;
    }
    return n;
}

static void say_silent(struct report *r, const struct comm *c)
{
    char ranks[100] = "";
    size_t len = 0;
    for (uint32_t k = 0; k < c->nranks && len + 30 < sizeof ranks; k++)
        if (!tells(member_of(r, c, (int32_t)k)))
            len += (size_t)snprintf(ranks + len, sizeof ranks - len, "%s%" PRIu32, len ? ", " : "", k);
    if (len)
        out_item(r->o,
                 "communicator %.16s: nothing is known of %" PRIu32 " of %" PRIu32
                 " ranks (%s): their logs are missing, "
                 "or not at SLIPRING_LOG=info. The others are compared.",
                 c->name, silent(r, c), c->nranks, ranks);
}

static void say_unlisted(struct report *r, const struct comm *c)
{
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        uint64_t first, n = unlisted_places(b, &first);
        if (n)
            out_item(r->o,
                     "communicator %.16s, rank %" PRId32 ": %" PRIu64
                     " place%s used first in calls that are not listed, "
                     "the first of these is call %" PRIu64 ".",
                     c->name, b->crank, n, n > 1 ? "s were" : " was", first);
        if (b->placed_more)
            out_item(r->o,
                     "communicator %.16s, rank %" PRId32 ": %" PRIu64
                     " calls were at further places: the log tells of the "
                     "first %d only.",
                     c->name, b->crank, b->placed_more, 512);
    }
}

static void say_comm(struct report *r, const struct comm *c)
{
    uint64_t symmetric, breaks, sites = count_sites(c, &symmetric, &breaks);
    for (size_t i = 0; i < c->phases.n && i < 16; i++) {
        const struct phase *p = &c->phases.at[i];
        out_item(r->o,
                 "communicator %.16s, phase %" PRIu64 ": from call %" PRIu64 " on an iteration is %" PRIu64 " call%s "
                 "(by %s).",
                 c->name, p->number, p->first, p->period, p->period > 1 ? "s" : "", p->by);
    }
    if (c->phases.n > 16)
        out_item(r->o, "communicator %.16s: %zu more phases.", c->name, c->phases.n - 16);
    if (sites)
        out_item(r->o,
                 "communicator %.16s: of %" PRIu64 " call%s of an iteration %" PRIu64
                 " receive%s into the same allocation at the same "
                 "offset on all ranks that are known, in every iteration.",
                 c->name, sites, sites > 1 ? "s" : "", symmetric, symmetric == 1 ? "s" : "");
    else
        out_item(r->o, "communicator %.16s: its %" PRIu64 " calls do not repeat.", c->name, c->compared);
    say_silent(r, c);
    say_unlisted(r, c);
}

static void put_buffer(struct report *r, struct table *t, const struct comm *c, const struct symmetry *y)
{
    char bytes[FORM_ROOM], text[300];
    report_symmetry(text, sizeof text, y);
    table_cell(t, "%.16s%sphase %" PRIu64 ", call %" PRIu64, r->run->comms.n > 1 ? c->name : "",
               r->run->comms.n > 1 ? ", " : "", y->phase, y->site + 1);
    table_cell(t, "%s", slr_collectives[y->op].words);
    table_cell(t, "%s", form_bytes(bytes, (double)y->shard));
    table_cell(t, "%" PRIu64, y->calls);
    table_cell(t, "%s", text);
}

/* Those that are not symmetric first. Returns how many were left out. */
static size_t put_buffers(struct report *r, struct table *t, bool symmetric, size_t *room)
{
    size_t left = 0;
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = comm_at(r, i);
        for (size_t k = 0; k < c->symmetry.n; k++) {
            const struct symmetry *y = &c->symmetry.at[k];
            if ((y->found.state == SYM_SITE_SYMMETRIC) != symmetric)
                continue;
            if (*room == 0) {
                left++;
                continue;
            }
            --*room;
            put_buffer(r, t, c, y);
        }
    }
    return left;
}

void report_places(struct report *r)
{
    static const struct column columns[] = {{"call of an iteration", false, true},
                                            {"collective", false, false},
                                            {"shard of a rank", true, false},
                                            {"calls", true, false},
                                            {"buffer", false, true}};
    struct table t = {.columns = columns, .n = 5};
    size_t comms = 0, room = SITES_SHOWN, left;
    for (size_t i = 0; i < r->run->comms.n; i++)
        comms += any(r, comm_at(r, i));
    if (comms == 0)
        return;
    out_section(r->o, "places", "Where buffers lie");
    out_say(r->o,
            "Whether a call of the iteration has its buffers in the same allocation (ordinal, size) at the same offset "
            "on all ranks, and every time. `docs/memory.md`, Symmetry, explains the words.");
    for (size_t i = 0; i < r->run->comms.n; i++)
        if (any(r, comm_at(r, i)))
            say_comm(r, comm_at(r, i));
    left = put_buffers(r, &t, false, &room);
    left += put_buffers(r, &t, true, &room);
    out_table(r->o, &t);
    if (left)
        out_say(r->o, "%zu more buffers are not listed.", left);
}

/* ---- as numbers ---- */

static void put_count(struct json_writer *w, const char *key, uint64_t n)
{
    json_put_number(w, key, "%" PRIu64, n);
}

static void put_ranks(struct report *r, struct json_writer *w, const struct comm *c)
{
    json_put_open(w, "ranks", "[");
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        uint64_t first, unlisted = unlisted_places(b, &first);
        json_put_open(w, NULL, "{");
        json_put_number(w, "rank", "%" PRId32, b->crank);
        put_count(w, "listed", b->placed.n);
        put_count(w, "calls", b->placed_calls);
        put_count(w, "more", b->placed_more);
        put_count(w, "places", b->places.n);
        put_count(w, "unlisted_places", unlisted);
        put_count(w, "first_unlisted", first);
        json_put_close(w);
    }
    json_put_close(w);
}

static void put_phases(struct json_writer *w, const struct comm *c)
{
    json_put_open(w, "phases", "[");
    for (size_t i = 0; i < c->phases.n; i++) {
        json_put_open(w, NULL, "{");
        put_count(w, "phase", c->phases.at[i].number);
        put_count(w, "first", c->phases.at[i].first);
        put_count(w, "period", c->phases.at[i].period);
        json_put_text(w, "by", c->phases.at[i].by);
        json_put_close(w);
    }
    json_put_close(w);
}

static void put_site(struct json_writer *w, const struct symmetry *y)
{
    const struct sym_finding *f = &y->found;
    json_put_open(w, NULL, "{");
    json_put_text(w, "op", slr_collectives[y->op].op);
    put_count(w, "phase", y->phase);
    put_count(w, "site", y->site);
    put_count(w, "shard", y->shard);
    json_put_text(w, "buffer", y->buffer);
    json_put_text(w, "state", sym_site_state_name(f->state));
    put_count(w, "calls", y->calls);
    put_count(w, "since", y->since);
    put_count(w, "breaks", y->breaks);
    put_count(w, "moves", y->moves);
    json_put_number(w, "odd_rank", "%d", f->odd_rank);
    json_put_number(w, "odd_ranks", "%d", f->odd_ranks);
    json_put_text(w, "what", sym_difference_name(f->what));
    put_count(w, "value", f->value);
    put_count(w, "expected", f->expected);
    json_put_number(w, "like_rank", "%d", f->like_rank);
    put_count(w, "ordinal", y->at.ordinal);
    put_count(w, "size", y->at.size);
    put_count(w, "offset", y->at.offset);
    json_put_close(w);
}

void report_place_figures(struct report *r, struct json_writer *w)
{
    json_put_open(w, "places", "[\n");
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = comm_at(r, i);
        uint64_t symmetric, breaks, sites = count_sites(c, &symmetric, &breaks);
        if (!any(r, c))
            continue;
        json_put_open(w, NULL, "{");
        json_put_text(w, "communicator", c->name);
        put_count(w, "nranks", c->nranks);
        put_count(w, "silent", silent(r, c));
        put_count(w, "calls", c->compared);
        put_count(w, "sites", sites);
        put_count(w, "symmetric", symmetric);
        put_count(w, "breaks", breaks);
        put_ranks(r, w, c);
        put_phases(w, c);
        json_put_open(w, "buffers", "[\n");
        for (size_t k = 0; k < c->symmetry.n; k++)
            put_site(w, &c->symmetry.at[k]);
        json_put_close(w);
        json_put_close(w);
    }
    json_put_close(w);
}
