/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model/bars.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const bar_lane_names[BAR_LANES] = {"call", "application", "publish",          "pull",
                                               "copy", "NCCL",        "NCCL, handed over"};

static bool inside(int64_t begin, int64_t end, int64_t from, int64_t to)
{
    return end >= from && begin <= to;
}

static void add_calls(struct bars *b, const struct member *q, const struct gather *at, size_t n, int64_t from,
                      int64_t to)
{
    for (size_t i = 0; i < n; i++)
        if (inside(at[i].begin, at[i].end, from, to))
            vec_push(&b->list, ((struct bar){at[i].begin, at[i].end, q, &at[i], NULL, NULL, 0, BAR_GATHER}));
}

static void add_member(struct bars *b, const struct member *q, int64_t from, int64_t to, int64_t slack)
{
    static const enum bar_lane lanes[LANES] = {BAR_APP, BAR_PUBLISH, BAR_PULL, BAR_COPY};
    add_calls(b, q, q->gathers.at, q->gathers.n, from, to);
    add_calls(b, q, q->scatters.at, q->scatters.n, from, to);
    for (size_t i = 0; i < q->spans.n; i++) {
        const struct span *s = &q->spans.at[i];
        uint8_t lane = s->kind == SPAN_NCCL ? BAR_NCCL : (uint8_t)lanes[s->lane];
        bool nothing = s->kind == SPAN_WAIT && s->end - s->begin < slack / 4;
        if (inside(s->begin, s->end, from, to) && !nothing)
            vec_push(&b->list, ((struct bar){s->begin, s->end, q, NULL, s, NULL, 0, lane}));
    }
    for (size_t i = 0; i < q->collectives.n; i++) {
        const struct collective *o = &q->collectives.at[i];
        uint8_t lane = o->profiled ? BAR_PROFILER : BAR_NCCL;
        if (inside(o->begin, o->end, from, to))
            vec_push(&b->list, ((struct bar){o->begin, o->end, q, NULL, NULL, o, 0, lane}));
    }
}

static int in_order(const void *x, const void *y)
{
    const struct bar *a = x, *b = y;
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end; /* a wait for nothing, then what it waits with */
}

/* Each bar into the first row that is free by then. Rows beyond the last take what is left, over
 * each other. */
static void place(struct bars *b, int64_t slack)
{
    enum { ROWS = 64 };
    int64_t until[ROWS];
    for (size_t i = 0; i < b->list.n; i++) {
        struct bar *a = &b->list.at[i];
        uint32_t row = 0, *rows = &b->rows[a->lane];
        while (row < *rows && until[row] - slack > a->begin && row + 1 < ROWS)
            row++;
        *rows = row + 1 > *rows ? row + 1 : *rows;
        until[row] = a->end;
        a->row = row;
    }
}

void bars_find(struct bars *b, const struct model *m, uint32_t rank, int64_t from, int64_t to, int64_t slack)
{
    *b = (struct bars){0};
    for (size_t i = 0; i < m->members.n; i++)
        if (m->members.at[i].rank == rank)
            add_member(b, &m->members.at[i], from, to, slack);
    if (b->list.n > 1)
        qsort(b->list.at, b->list.n, sizeof *b->list.at, in_order);
    place(b, slack);
}

void bars_free(struct bars *b)
{
    vec_free(&b->list);
}

static const char *span_text(const struct span *s, char *buf, size_t size)
{
    switch ((enum span_kind)s->kind) {
    case SPAN_OWN:
        snprintf(buf, size, "own shard");
        break;
    case SPAN_STAGE:
        snprintf(buf, size, "stage");
        break;
    case SPAN_PUSH:
        snprintf(buf, size, "push to %d", s->peer);
        break;
    case SPAN_PULL:
        snprintf(buf, size, "pull from %d", s->peer);
        break;
    case SPAN_WAIT:
        if (s->peer >= 0)
            snprintf(buf, size, "wait for %d", s->peer);
        else
            snprintf(buf, size, "wait");
        break;
    case SPAN_SUM:
        snprintf(buf, size, "sum of part %d", s->piece);
        break;
    case SPAN_GEMM:
        snprintf(buf, size, "GEMM part %d", s->piece);
        break;
    default:
        snprintf(buf, size, "NCCL AllGather");
    }
    return buf;
}

const char *bar_name(const struct bar *b, char *buf, size_t size)
{
    if (b->span)
        return span_text(b->span, buf, size);
    if (b->gather)
        snprintf(buf, size, "%s%s %" PRIu64, b->gather->pass ? "passed " : "",
                 slr_collectives[b->gather->op].function + strlen("nccl"), b->gather->call);
    else
        snprintf(buf, size, "%.60s", b->other->func);
    return buf;
}
