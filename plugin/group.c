#include "plugin/group.h"

#include <stdlib.h>
#include "plugin/comm_hooks.h"
#include "plugin/pending.h"
#include "plugin/process.h"
#include "plugin/verify.h"

struct group {
    int depth;
    struct slr_call *calls;
    size_t count, room;
    struct slr_birth *births;
};

/* One pointer, so that the library needs little static thread-local space; freed when the outermost group ends. */
static _Thread_local struct group *group __attribute__((tls_model("initial-exec")));

bool slr_in_group(void)
{
    return group && group->depth > 0;
}

bool slr_group_record(const struct slr_call *call)
{
    if (group->count == group->room) {
        size_t room = group->room ? 2 * group->room : 16;
        struct slr_call *more = realloc(group->calls, room * sizeof *more);
        if (!more)
            return false;
        group->calls = more;
        group->room = room;
    }
    group->calls[group->count++] = *call;
    return true;
}

void slr_group_record_birth(struct slr_birth *b)
{
    struct slr_birth **at = &group->births;
    while (*at)
        at = &(*at)->next;
    *at = b;
}

ncclResult_t slr_group_start(void)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclGroupStart();
    slr_guard--;
    if (r != ncclSuccess || slr_process_off())
        return r;
    if (!group)
        group = calloc(1, sizeof *group);
    if (group)
        group->depth++;
    return r;
}

/* Several streams of one communicator: each gather starts after all of them, and each stream sees all gathers. */
static bool one_stream(const struct group *g, const struct slr_comm *c, CUstream stream)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->calls[i].comm == c && g->calls[i].stream != stream)
            return false;
    return true;
}

static ncclResult_t enter_all(const struct group *g)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->count && r == ncclSuccess; i++)
        r = slr_gather_entry(&g->calls[i]);
    return r;
}

/* Each own shard is copied on its call's stream, so that stream waits for the others, too. */
static ncclResult_t meet_all(const struct group *g)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->count && r == ncclSuccess; i++)
        if (!one_stream(g, g->calls[i].comm, g->calls[i].stream))
            r = slr_gather_meet(&g->calls[i]);
    return r;
}

static ncclResult_t ring_all(struct group *g)
{
    for (size_t i = 0; i < g->count; i++)
        slr_gather_number(&g->calls[i]);
    ncclResult_t r = meet_all(g);
    if (r == ncclSuccess)
        r = slr_verify_start(g->calls, g->count);
    for (size_t i = 0; i < g->count && r == ncclSuccess; i++)
        r = slr_gather_ring(&g->calls[i], one_stream(g, g->calls[i].comm, g->calls[i].stream), SLR_R_JOIN_GROUP);
    /* The last gather of a communicator ends after its earlier ones: every stream that took part waits for it. */
    for (size_t i = 0; i < g->count && r == ncclSuccess; i++)
        if (!one_stream(g, g->calls[i].comm, g->calls[i].stream))
            r = slr_gather_rejoin(&g->calls[i]);
    return slr_verify_finish(g->calls, g->count, r);
}

/* What the real end answers when its operations are, or will be, enqueued. */
static bool launched(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

static void finish_births(struct slr_birth *list, ncclResult_t r)
{
    for (struct slr_birth *b = list; b && r == ncclInProgress; b = b->next) {
        slr_birth_cancel(b); /* one non-blocking communicator makes the whole group so */
        b->pass = SLR_R_NONBLOCKING;
    }
    if (launched(r))
        slr_births_finish(list);
    for (struct slr_birth *b = list, *next; b; b = next) {
        next = b->next;
        slr_birth_cancel(b);
        free(b);
    }
}

/* The outermost end. `end` is the real call that closes NCCL's group. */
static ncclResult_t close_group(struct group *g, ncclSimInfo_t *info, bool simulate)
{
    /* NCCL enqueues now, on streams that we do not know, and with the guard up. */
    slr_pending_join_all(SLR_R_JOIN_OTHER_OP, "ncclGroupEnd");
    /* A gather that fails on the way in must not keep NCCL's group open. */
    ncclResult_t entered = simulate ? ncclSuccess : enter_all(g);
    ncclResult_t r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
    finish_births(g->births, simulate ? ncclInvalidUsage : r);
    if (launched(r) && entered != ncclSuccess)
        r = entered;
    if (launched(r) && !simulate) {
        ncclResult_t ring = ring_all(g);
        r = ring == ncclSuccess ? r : ring;
    }
    free(g->calls);
    free(g);
    return r;
}

static ncclResult_t end(ncclSimInfo_t *info, bool simulate)
{
    struct group *g = group;
    slr_guard++;
    ncclResult_t r;
    if (g && g->depth == 1) {
        group = NULL; /* what is called from here on is outside the group */
        r = close_group(g, info, simulate);
    } else {
        if (g && g->depth > 0)
            g->depth--;
        r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
    }
    slr_guard--;
    return r;
}

ncclResult_t slr_group_end(void)
{
    return end(NULL, false);
}

ncclResult_t slr_group_simulate_end(ncclSimInfo_t *info)
{
    return end(info, true);
}
