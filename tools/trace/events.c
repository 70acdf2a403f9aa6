/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/trace/events.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/json.h"
#include "tools/model/bars.h"

enum { LANE_ROWS = 100 }; /* threads are numbered lane * LANE_ROWS + row + 1 */

struct trace {
    const struct model *m;
    struct json_writer json;
    int64_t zero; /* ns that is shown as 0 */
    uint64_t arrows;
};

/* us with three digits behind the point: exactly the ns. */
static void put_time(struct trace *t, const char *key, int64_t ns)
{
    json_put_number(&t->json, key, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void put_count(struct trace *t, const char *key, uint64_t n)
{
    json_put_number(&t->json, key, "%" PRIu64, n);
}

/* An event stays open for what else it has. */
static void event_begin(struct trace *t, const char *phase, unsigned pid, unsigned tid, const char *name)
{
    json_put_open(&t->json, NULL, "{");
    json_put_text(&t->json, "ph", phase);
    put_count(t, "pid", pid);
    put_count(t, "tid", tid);
    json_put_text(&t->json, "name", name);
}

static void event_end(struct trace *t)
{
    json_put_close(&t->json);
}

static void put_name(struct trace *t, unsigned pid, unsigned tid, const char *what, const char *name)
{
    event_begin(t, "M", pid, tid, what);
    json_put_open(&t->json, "args", "{");
    json_put_text(&t->json, "name", name);
    json_put_close(&t->json);
    event_end(t);
}

static void sort_index(struct trace *t, unsigned pid, unsigned tid, const char *what, unsigned index)
{
    event_begin(t, "M", pid, tid, what);
    json_put_open(&t->json, "args", "{");
    put_count(t, "sort_index", index);
    json_put_close(&t->json);
    event_end(t);
}

static unsigned tid_of(const struct bar *b)
{
    return b->lane * LANE_ROWS + b->row + 1;
}

static void name_lanes(struct trace *t, unsigned pid, const struct bars *b)
{
    char name[80];
    for (unsigned lane = 0; lane < BAR_LANES; lane++)
        for (unsigned row = 0; row < b->rows[lane]; row++) {
            unsigned tid = lane * LANE_ROWS + row + 1;
            if (row)
                snprintf(name, sizeof name, "%s %u", bar_lane_names[lane], row + 1);
            else
                snprintf(name, sizeof name, "%s", bar_lane_names[lane]);
            put_name(t, pid, tid, "thread_name", name);
            sort_index(t, pid, tid, "thread_sort_index", tid);
        }
}

static void name_rank(struct trace *t, unsigned pid, const struct rank *r)
{
    const struct process *p = &t->m->processes.at[r->process];
    bool software = r->device_name && strstr(r->device_name, "softgpu");
    char *device = r->device ? tool_text("device %s", r->device) : tool_text("pid %" PRId64, p->pid);
    char *name = tool_text("%s (%s, %s%s%s%s)", r->label, p->host, device, r->device_name ? ": " : "",
                           r->device_name ? r->device_name : "", software ? ", modelled" : "");
    put_name(t, pid, 0, "process_name", name);
    sort_index(t, pid, 0, "process_sort_index", pid);
    free(device);
    free(name);
}

static void arg_text(struct trace *t, const char *key, const char *value)
{
    if (value)
        json_put_text(&t->json, key, value);
}

static void span_args(struct trace *t, const struct span *s)
{
    put_count(t, "call", s->call);
    arg_text(t, "decision", s->pass ? "pass" : "ring");
    arg_text(t, "kind", span_names[s->kind]);
    if (s->peer >= 0)
        put_count(t, "peer", (uint64_t)s->peer);
    if (s->piece >= 0)
        put_count(t, "piece", (uint64_t)s->piece);
    if (s->bytes)
        put_count(t, "bytes", s->bytes);
}

static void gather_args(struct trace *t, const struct gather *g)
{
    put_count(t, "call", g->call);
    arg_text(t, "decision", g->pass ? "pass" : "ring");
    put_count(t, "shard", g->shard);
    put_count(t, "count", g->count);
    put_count(t, "in_place", g->in_place);
    arg_text(t, "reason", g->reason);
    arg_text(t, "ended", g->ended);
    arg_text(t, "dtype", g->dtype);
    arg_text(t, "stream", g->stream);
    json_put_number(&t->json, "exposed_ns", "%" PRId64, g->exposed);
    if (g->op != SLR_ALL_GATHER) {
        put_count(t, "parts", g->parts);
        return;
    }
    put_count(t, "slot", g->slot);
    put_count(t, "place", g->place);
    put_count(t, "push", g->push);
    put_count(t, "pieces", g->pieces);
}

static void other_args(struct trace *t, const struct collective *o)
{
    put_count(t, "seq", o->seq);
    put_count(t, "count", o->count);
    put_count(t, "bytes", o->bytes);
    arg_text(t, "dtype", o->dtype);
    arg_text(t, "stream", o->stream);
    arg_text(t, "algorithm", o->algo);
    arg_text(t, "protocol", o->proto);
    arg_text(t, "reason", o->reason);
    if (o->call)
        put_count(t, "call", o->call);
    if (!o->profiled)
        return;
    put_count(t, "channels", o->channels);
    json_put_number(&t->json, "kernel_ns", "%" PRId64, o->kernel);
}

static const char *category(const struct bar *b)
{
    return b->gather  ? (b->gather->op == SLR_ALL_GATHER ? "gather" : "scatter")
           : b->other ? "nccl"
                      : span_names[b->span->kind];
}

static void put_bar(struct trace *t, unsigned pid, const struct bar *b)
{
    char name[80];
    event_begin(t, "X", pid, tid_of(b), bar_name(b, name, sizeof name));
    json_put_text(&t->json, "cat", category(b));
    put_time(t, "ts", b->begin - t->zero);
    put_time(t, "dur", b->end - b->begin);
    json_put_open(&t->json, "args", "{");
    arg_text(t, "comm", t->m->comms.at[b->member->comm].name);
    if (b->span)
        span_args(t, b->span);
    else if (b->gather)
        gather_args(t, b->gather);
    else
        other_args(t, b->other);
    json_put_close(&t->json);
    event_end(t);
}

/* Where a bar was put, so that arrows find it. */
struct place {
    const struct span *span;
    const struct member *member;
    unsigned pid, tid;
};
VEC_TYPE(places, struct place);

static int by_call(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    const uint64_t ka[] = {a->member->comm, a->span->call, (uint64_t)a->member->crank, a->span->kind,
                           (uint64_t)a->span->piece};
    const uint64_t kb[] = {b->member->comm, b->span->call, (uint64_t)b->member->crank, b->span->kind,
                           (uint64_t)b->span->piece};
    for (size_t i = 0; i < sizeof ka / sizeof *ka; i++)
        if (ka[i] != kb[i])
            return ka[i] < kb[i] ? -1 : 1;
    return 0;
}

/* The first span of a rank, call and kind, or NULL. Pieces are in order behind it. */
static const struct place *find(const struct places *all, uint32_t comm, uint64_t call, int32_t crank, uint8_t kind)
{
    size_t low = 0, high = all->n;
    struct span wanted = {.call = call, .kind = kind, .piece = 0};
    struct member who = {.comm = comm, .crank = crank};
    struct place key = {&wanted, &who, 0, 0};
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (by_call(&all->at[mid], &key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    const struct place *p = low < all->n ? &all->at[low] : NULL;
    bool is =
        p && p->member->comm == comm && p->span->call == call && p->member->crank == crank && p->span->kind == kind;
    return is ? p : NULL;
}

static void end_of_arrow(struct trace *t, const struct place *p, const char *phase, int64_t at, const char *what)
{
    event_begin(t, phase, p->pid, p->tid, what);
    json_put_text(&t->json, "cat", "flow");
    put_count(t, "id", t->arrows);
    if (*phase == 'f')
        json_put_text(&t->json, "bp", "e");
    put_time(t, "ts", at - t->zero);
    event_end(t);
}

/* A moment shortly before a span's end: readers take an arrow's end for a slice that it lies
 * within, and its end is out. */
static int64_t late_in(const struct span *s)
{
    int64_t time = s->end - s->begin;
    return time > 1 ? s->end - 1 - time / 64 : s->begin;
}

/* An arrow that does not go back in time: out of what sends, into what receives. */
static void arrow(struct trace *t, const struct place *from, const struct place *to, int64_t at, const char *what)
{
    int64_t left = late_in(from->span) < at ? late_in(from->span) : at;
    if (left < from->span->begin || from->span->end == from->span->begin || to->span->end == to->span->begin)
        return;
    t->arrows++;
    end_of_arrow(t, from, "s", left, what);
    end_of_arrow(t, to, "f", at, what);
}

/* How many bytes the spans of its call, kind and peer have before this one: where in the shard it begins. */
static uint64_t bytes_before(const struct places *all, const struct place *of)
{
    const struct place *end = all->at + all->n;
    uint64_t sum = 0;
    for (const struct place *p = find(all, of->member->comm, of->span->call, of->member->crank, of->span->kind);
         p && p < end && p->member == of->member && p->span->call == of->span->call && p->span->kind == of->span->kind;
         p++)
        sum += p->span->peer == of->span->peer && p->span->piece < of->span->piece ? p->span->bytes : 0;
    return sum;
}

/* The sum of rank `crank` that has byte `at` of the shard; NULL: there is none. */
static const struct place *sum_of(const struct places *all, const struct place *of, int32_t crank, uint64_t at)
{
    const struct place *end = all->at + all->n, *sum = find(all, of->member->comm, of->span->call, crank, SPAN_SUM);
    uint64_t added = 0;
    for (const struct place *p = sum;
         p && p < end && p->member == sum->member && p->span->call == sum->span->call && p->span->kind == SPAN_SUM; p++)
        if ((added += p->span->bytes) > at)
            return p;
    return NULL;
}

/* What a rank put into its slot, to those who pull it from there. */
static void arrow_to_pull(struct trace *t, const struct places *all, const struct place *pull)
{
    const struct span *s = pull->span;
    const struct place *end = all->at + all->n, *stage = find(all, pull->member->comm, s->call, s->peer, SPAN_STAGE);
    for (const struct place *at = stage;
         at && at < end && at->member == stage->member && at->span->call == s->call && at->span->kind == SPAN_STAGE;
         at++)
        if (at->span->piece == s->piece || at->span->piece < 0) {
            arrow(t, at, pull, s->begin, "slot");
            return;
        }
}

/* A push, to the wait of the one who receives it: the last of those waits that ends behind it. */
static void arrow_from_push(struct trace *t, const struct places *all, const struct place *push)
{
    const struct span *s = push->span;
    const struct place *end = all->at + all->n, *wait = find(all, push->member->comm, s->call, s->peer, SPAN_WAIT);
    for (const struct place *at = wait;
         at && at < end && at->member == wait->member && at->span->call == s->call && at->span->kind == SPAN_WAIT; at++)
        if (at->span->lane == LANE_PULL && at->span->peer == push->member->crank && at->span->piece == s->piece &&
            at->span->end >= s->end) {
            arrow(t, push, at, late_in(at->span), "push");
            return;
        }
}

static bool is_scatter(const struct place *p)
{
    return !member_gather(p->member, false, p->span->call);
}

/* A contribution, to the sum that takes its first byte. */
static void arrow_to_sum(struct trace *t, const struct places *all, const struct place *push)
{
    const struct place *sum = sum_of(all, push, push->span->peer, bytes_before(all, push));
    if (sum)
        arrow(t, push, sum, sum->span->begin, "push");
}

/* The sum that has the last byte of what is copied, to its copy. */
static void arrow_from_sum(struct trace *t, const struct places *all, const struct place *pull)
{
    const struct place *sum =
        pull->span->bytes ? sum_of(all, pull, pull->span->peer, bytes_before(all, pull) + pull->span->bytes - 1) : NULL;
    if (sum)
        arrow(t, sum, pull, pull->span->begin, "sum");
}

static void put_arrows(struct trace *t, struct places *all)
{
    if (all->n > 1)
        qsort(all->at, all->n, sizeof *all->at, by_call);
    for (size_t i = 0; i < all->n; i++) {
        const struct place *p = &all->at[i];
        if (p->span->peer < 0 || p->span->peer == p->member->crank)
            continue;
        if (p->span->kind == SPAN_PULL)
            (is_scatter(p) ? arrow_from_sum : arrow_to_pull)(t, all, p);
        else if (p->span->kind == SPAN_PUSH)
            (is_scatter(p) ? arrow_to_sum : arrow_from_push)(t, all, p);
    }
}

static void put_rank(struct trace *t, unsigned pid, uint32_t rank, struct places *all)
{
    struct bars b;
    bars_find(&b, t->m, rank, INT64_MIN, INT64_MAX, 0);
    name_rank(t, pid, &t->m->ranks.at[rank]);
    name_lanes(t, pid, &b);
    for (size_t i = 0; i < b.list.n; i++) {
        const struct bar *a = &b.list.at[i];
        put_bar(t, pid, a);
        if (a->span && !a->span->pass && a->span->kind != SPAN_GEMM && a->span->kind != SPAN_OWN)
            vec_push(all, ((struct place){a->span, a->member, pid, tid_of(a)}));
    }
    bars_free(&b);
}

static int64_t first_begin(const struct model *m, uint32_t run)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < m->members.n; i++) {
        const struct member *b = &m->members.at[i];
        if (m->comms.at[b->comm].run != run)
            continue;
        for (size_t k = 0; k < b->gathers.n; k++)
            first = b->gathers.at[k].begin < first ? b->gathers.at[k].begin : first;
        for (size_t k = 0; k < b->scatters.n; k++)
            first = b->scatters.at[k].begin < first ? b->scatters.at[k].begin : first;
        for (size_t k = 0; k < b->spans.n; k++)
            first = b->spans.at[k].begin < first ? b->spans.at[k].begin : first;
        for (size_t k = 0; k < b->collectives.n; k++)
            first = b->collectives.at[k].begin < first ? b->collectives.at[k].begin : first;
    }
    return first;
}

void trace_write(const struct model *m, const struct run *r, FILE *to)
{
    struct trace t = {.m = m, .json = {.to = to, .compact = true}, .zero = first_begin(m, (uint32_t)(r - m->runs.at))};
    struct places all = {0};
    char zero[32];
    snprintf(zero, sizeof zero, "%" PRId64, t.zero == INT64_MAX ? 0 : t.zero);
    json_put_open(&t.json, NULL, "{");
    json_put_text(&t.json, "displayTimeUnit", "ns");
    json_put_open(&t.json, "otherData", "{");
    json_put_text(&t.json, "tool", "slipring trace");
    json_put_text(&t.json, "modelled", run_is_software(m, r) ? "software GPU: times are a model's or a CPU's" : "no");
    json_put_text(&t.json, "zero_ns", zero);
    json_put_close(&t.json);
    json_put_open(&t.json, "traceEvents", "[\n");
    for (size_t i = 0; i < r->ranks.n; i++)
        put_rank(&t, (unsigned)i + 1, r->ranks.at[i], &all);
    put_arrows(&t, &all);
    json_put_close(&t.json);
    json_put_close(&t.json);
    vec_free(&all);
}
