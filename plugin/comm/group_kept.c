/* SPDX-License-Identifier: Apache-2.0 */
/* The group that a thread has open, and what it keeps. */
#include "plugin/comm/group_kept.h"

#include <stdatomic.h>
#include <stdlib.h>

/* One pointer, so that the library needs little static thread-local space; freed when the outermost
 * group ends. */
static _Thread_local struct slr_group *group __attribute__((tls_model("initial-exec")));

/* Asked at every all-gather: one thread-local read. */
struct slr_group *slr_group_now(void)
{
    return group;
}

void slr_group_open(void)
{
    static _Atomic uint64_t opened;
    if (!group && (group = calloc(1, sizeof *group)))
        group->number = atomic_fetch_add(&opened, 1) + 1;
    if (group)
        group->depth++;
}

struct slr_group *slr_group_close(void)
{
    struct slr_group *g = group;
    if (!g || --g->depth > 0)
        return NULL;
    group = NULL; /* before the real end: what the caller enqueues now is outside of the group */
    return g;
}

void slr_group_free(struct slr_group *g)
{
    for (size_t i = 0; i < g->use_count; i++)
        slr_comm_put(g->uses[i].comm);
    free(g->calls);
    free(g->captured);
    free(g->uses);
    free(g);
}

/* Room for one more element in *list. */
static bool grow(void **list, size_t count, size_t *room, size_t element)
{
    if (count < *room)
        return true;
    void *more = realloc(*list, (*room ? 2 * *room : 16) * element);
    if (!more)
        return false;
    *list = more;
    *room = *room ? 2 * *room : 16;
    return true;
}

bool slr_group_add_use(struct slr_comm *c, CUstream stream, bool nccl)
{
    /* A group uses few streams, however many operations it has: a list is short enough to
     * search. */
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].comm == c && group->uses[i].stream == stream) {
            group->uses[i].nccl |= nccl;
            return true;
        }
    if (!grow((void **)&group->uses, group->use_count, &group->use_room, sizeof *group->uses))
        return false;
    if (c)
        slr_comm_hold(c); /* the group may outlive the call, and an abort on another thread */
    group->uses[group->use_count++] = (struct slr_group_use){.comm = c, .stream = stream, .nccl = nccl};
    return true;
}

void slr_group_add_turn(const struct slr_comm *c, CUstream stream, bool turn)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].comm == c && group->uses[i].stream == stream) {
            group->uses[i].left = true;
            group->uses[i].turn |= turn;
        }
}

static bool append(struct slr_call **calls, size_t *count, size_t *room, const struct slr_call *call)
{
    if (!slr_group_add_use(call->comm, call->stream, false) || !grow((void **)calls, *count, room, sizeof **calls))
        return false;
    (*calls)[(*count)++] = *call;
    return true;
}

static size_t calls_of(const struct slr_comm *c, const struct slr_call *calls, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += calls[i].comm == c;
    return n;
}

bool slr_group_keep(const struct slr_call *call)
{
    return append(&group->calls, &group->count, &group->room, call);
}

bool slr_group_keep_captured(const struct slr_call *call)
{
    return append(&group->captured, &group->captured_count, &group->captured_room, call);
}

unsigned slr_group_kept_captured(const struct slr_comm *c)
{
    return group ? (unsigned)calls_of(c, group->captured, group->captured_count) : 0;
}

uint64_t slr_group_kept(const struct slr_comm *c)
{
    return group ? calls_of(c, group->calls, group->count) : 0;
}
