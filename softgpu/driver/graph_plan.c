/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of an executable graph: its nodes, those of child graphs among them, as steps on lanes. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* ---- steps ---- */

static unsigned add_step(struct sg_exec *e, struct sg_node *node, struct sg_ctx *ctx)
{
    if (!(e->count & (e->count - 1))) /* at powers of two */
        e->steps = must(realloc(e->steps, (e->count ? e->count * 2 : 1) * sizeof(*e->steps)));
    e->steps[e->count] = (struct sg_step){.node = node, .ctx = ctx, .last = true};
    return e->count++;
}

static void add_dep(struct sg_exec *e, unsigned step, unsigned on)
{
    struct sg_step *s = &e->steps[step];

    s->deps = must(realloc(s->deps, (s->ndeps + 1) * sizeof(*s->deps)));
    s->deps[s->ndeps++] = on;
    e->steps[on].last = false;
}

/* What nothing orders runs one after the other, the other way round than it was made. */
static bool latest_locked(struct sg_graph *g, struct sg_node **next)
{
    for (size_t i = g->count; i-- > 0;) {
        struct sg_node *at = g->nodes[i];
        bool ready = !at->mark;
        for (unsigned d = 0; d < at->ndeps && ready; d++)
            ready = at->deps[d]->mark;
        if (ready) {
            at->mark = true;
            *next = at;
            return true;
        }
    }
    return false;
}

/* The nodes so that each comes after what it depends on, else in the order in which they were made. False: a cycle. */
static bool sorted_locked(struct sg_graph *g, struct sg_node **order, struct sg_node **bad)
{
    size_t n = 0, before;

    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->mark = false;
    while (sg_cfg.one_lane == 1 && latest_locked(g, &order[n]))
        n++;
    do {
        before = n;
        for (size_t i = 0; i < g->count; i++) {
            struct sg_node *at = g->nodes[i];
            bool ready = !at->mark;
            for (unsigned d = 0; d < at->ndeps && ready; d++)
                ready = at->deps[d]->mark;
            if (ready) {
                at->mark = true;
                order[n++] = at;
            }
        }
    } while (n > before);
    for (size_t i = 0; i < g->count && n < g->count; i++)
        if (!g->nodes[i]->mark)
            *bad = g->nodes[i];
    return n == g->count;
}

/* Steps of all nodes; those without dependencies follow `first`, if that is a step. `ends` gets, by a node's index, the
 * step that dependents of it follow. */
static bool flatten_locked(struct sg_exec *e, struct sg_graph *g, unsigned first, struct sg_node **bad);

static bool node_locked(struct sg_exec *e, struct sg_node *n, const unsigned *ends, unsigned first,
                        struct sg_node **bad, unsigned *end)
{
    unsigned step = add_step(e, n->child ? NULL : n, n->ctx);

    for (unsigned d = 0; d < n->ndeps; d++)
        add_dep(e, step, ends[n->deps[d]->index]);
    if (!n->ndeps && first != UINT32_MAX)
        add_dep(e, step, first);
    *end = step;
    if (!n->child)
        return true;
    if (!flatten_locked(e, n->child, step, bad))
        return false;
    unsigned inner = e->count;
    *end = add_step(e, NULL, n->ctx);
    for (unsigned i = step; i < inner; i++)
        if (e->steps[i].last)
            add_dep(e, *end, i);
    return true;
}

static bool flatten_locked(struct sg_exec *e, struct sg_graph *g, unsigned first, struct sg_node **bad)
{
    struct sg_node **order = must(calloc(g->count + 1, sizeof(*order)));
    unsigned *ends = must(calloc(g->count + 1, sizeof(*ends)));
    bool ok = sorted_locked(g, order, bad);

    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->index = i;
    for (size_t i = 0; ok && i < g->count; i++)
        ok = node_locked(e, order[i], ends, first, bad, &ends[order[i]->index]);
    free(order);
    free(ends);
    return ok;
}

/* ---- lanes ---- */

static unsigned new_lane(struct sg_exec *e, struct sg_ctx *ctx)
{
    e->lanes = must(realloc(e->lanes, (e->nlanes + 1) * sizeof(*e->lanes)));
    e->lanes[e->nlanes] = (struct sg_lane){.ctx = ctx};
    return e->nlanes++;
}

static unsigned lane_of(struct sg_exec *e, const struct sg_step *s)
{
    for (unsigned i = 0; i < e->nlanes && sg_cfg.one_lane; i++)
        if (e->lanes[i].ctx == s->ctx)
            return i;
    for (unsigned d = 0; d < s->ndeps; d++) {
        unsigned lane = e->steps[s->deps[d]].lane;
        if (e->lanes[lane].tail == s->deps[d] && e->lanes[lane].ctx == s->ctx)
            return lane;
    }
    return new_lane(e, s->ctx);
}

bool sg_plan_locked(struct sg_exec *e, struct sg_node **bad)
{
    if (!flatten_locked(e, e->graph, UINT32_MAX, bad))
        return false;
    for (unsigned i = 0; i < e->count; i++) {
        unsigned lane = lane_of(e, &e->steps[i]);
        e->steps[i].lane = lane;
        e->lanes[lane].tail = i;
    }
    return true;
}

void sg_plan_drop(struct sg_exec *e)
{
    for (unsigned i = 0; i < e->count; i++)
        free(e->steps[i].deps);
    free(e->steps);
    e->steps = NULL;
    e->count = 0;
}
