/* SPDX-License-Identifier: Apache-2.0 */
#include "planner.h"

void seen_join(struct seen *a, const struct seen *b)
{
    for (int s = 0; s < STREAMS; s++)
        a->of[s] = a->of[s] > b->of[s] ? a->of[s] : b->of[s];
}

static struct seen *seen_by(struct planner *p, int rank, int actor)
{
    return &p->known[rank].seen[actor];
}

static void record(struct planner *p, int rank, int event, int stream)
{
    put_down(p, OP_RECORD, rank, stream)->event = event;
    p->known[rank].event[event] = *seen_by(p, rank, stream);
}

static void wait_event(struct planner *p, int rank, int stream, int event)
{
    put_down(p, OP_WAIT, rank, stream)->event = event;
    seen_join(seen_by(p, rank, stream), &p->known[rank].event[event]);
}

static void sync_event(struct planner *p, int rank, int event)
{
    put_down(p, OP_SYNC_EVENT, rank, -1)->event = event;
    seen_join(seen_by(p, rank, HOST), &p->known[rank].event[event]);
}

void sync_stream(struct planner *p, int rank, int stream)
{
    put_down(p, OP_SYNC_STREAM, rank, stream);
    seen_join(seen_by(p, rank, HOST), seen_by(p, rank, stream));
}

static void sync_device(struct planner *p, int rank)
{
    put_down(p, OP_SYNC_DEVICE, rank, -1);
    for (int s = 0; s < STREAMS; s++)
        seen_join(seen_by(p, rank, HOST), seen_by(p, rank, s));
}

/* What is on the stream `from` comes before what the actor does next. */
static void edge(struct planner *p, int rank, int from, int actor)
{
    const int e = (int)draw(p, rank, EVENTS), other = (int)draw(p, rank, EVENTS);
    const uint64_t way = draw(p, rank, 12);
    if (actor != HOST && way < 7) {
        record(p, rank, e, from);
        wait_event(p, rank, actor, e);
    } else if (actor != HOST && way == 7) {
        const int between = any_stream(p, rank);
        record(p, rank, e, from);
        wait_event(p, rank, between, e);
        record(p, rank, other, between);
        wait_event(p, rank, actor, other);
    } else if (way < 9) {
        record(p, rank, e, from);
        sync_event(p, rank, e);
    } else if (way == 9) {
        sync_device(p, rank);
    } else {
        sync_stream(p, rank, from);
    }
}

static void need_seen(struct planner *p, int rank, int actor, const struct seen *also, const struct seen *all)
{
    for (int s = 0; s < STREAMS; s++) {
        struct seen before = *seen_by(p, rank, actor);
        seen_join(&before, seen_by(p, rank, HOST));
        if (also)
            seen_join(&before, also);
        if (all->of[s] > before.of[s])
            edge(p, rank, s, actor);
    }
}

void need_all(struct planner *p, int rank, int actor, const struct seen *all)
{
    need_seen(p, rank, actor, NULL, all);
}

void need(struct planner *p, int rank, int actor, const struct seen *also, int buffer, bool write)
{
    const struct use *use = &p->known[rank].use[buffer];
    struct seen all = use->wrote;
    if (write)
        seen_join(&all, &use->read);
    need_seen(p, rank, actor, also, &all);
}

void begin(struct planner *p, int rank, int stream)
{
    seen_join(seen_by(p, rank, stream), seen_by(p, rank, HOST));
}

void uses(struct planner *p, int rank, int stream, int from, int to)
{
    struct known *known = &p->known[rank];
    const int n = known->seen[stream].of[stream] = ++known->issued[stream];
    if (from >= 0)
        known->use[from].read.of[stream] = n;
    if (to < 0)
        return;
    known->use[to].wrote.of[stream] = n;
    known->use[to].k = 0;
}

void also_writes(struct planner *p, int rank, int stream, int buffer)
{
    struct known *known = &p->known[rank];
    known->use[buffer].wrote.of[stream] = known->issued[stream];
    known->use[buffer].k = 0;
}

void issued(struct planner *p, int rank, int stream, int from, int to)
{
    begin(p, rank, stream);
    uses(p, rank, stream, from, to);
}

void hold_stream(struct planner *p, int rank, int stream)
{
    put_down(p, OP_HOLD, rank, stream)->value = 100 + (int)draw(p, rank, 3000);
    issued(p, rank, stream, -1, -1);
}

void order_step(struct planner *p, int rank)
{
    const int s = any_stream(p, rank), e = (int)draw(p, rank, EVENTS);
    switch (draw(p, rank, 12)) {
    case 0:
    case 1:
        record(p, rank, e, s);
        return;
    case 2:
    case 3:
        wait_event(p, rank, s, e);
        return;
    case 4:
        put_down(p, OP_QUERY, rank, s)->event = e;
        return;
    case 5:
        sync_event(p, rank, e);
        return;
    case 6:
        sync_stream(p, rank, s);
        return;
    case 7:
        sync_device(p, rank);
        return;
    default:
        hold_stream(p, rank, s);
    }
}
