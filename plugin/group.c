#include "plugin/group.h"

#include <stdlib.h>
#include "base/nvtx.h"
#include "plugin/comm_hooks.h"
#include "plugin/explore.h"
#include "plugin/pending_impl.h"
#include "plugin/process.h"
#include "plugin/tuner.h"
#include "plugin/verify.h"

/* A stream that an operation of the group uses, for one communicator. */
struct use {
    struct slr_comm *comm; /* NULL: one that is not followed */
    CUstream stream;
    bool nccl; /* NCCL has an operation on it */
};

struct group {
    int depth;
    struct slr_call *calls; /* the gathers that go to the ring */
    size_t count, room;
    struct slr_comm **comms; /* of these gathers, each once; while they are enqueued */
    size_t comm_count;
    struct use *uses; /* of all operations, each pair once */
    size_t use_count, use_room;
    struct slr_birth *births;
    struct slr_window *windows;
    size_t window_count, window_room;
};

/* One pointer, so that the library needs little static thread-local space; freed when the outermost group ends. */
static _Thread_local struct group *group __attribute__((tls_model("initial-exec")));

bool slr_in_group(void)
{
    return group && group->depth > 0;
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

static bool add_use(struct slr_comm *c, CUstream stream, bool nccl)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].comm == c && group->uses[i].stream == stream) {
            group->uses[i].nccl |= nccl;
            return true;
        }
    if (!grow((void **)&group->uses, group->use_count, &group->use_room, sizeof *group->uses))
        return false;
    if (c)
        slr_comm_hold(c);
    group->uses[group->use_count++] = (struct use){c, stream, nccl};
    return true;
}

bool slr_group_record(const struct slr_call *call)
{
    if (!add_use(call->comm, call->stream, false) ||
        !grow((void **)&group->calls, group->count, &group->room, sizeof *group->calls))
        return false;
    group->calls[group->count++] = *call;
    return true;
}

uint64_t slr_group_recorded(const struct slr_comm *c)
{
    uint64_t calls = 0;
    for (size_t i = 0; slr_in_group() && i < group->count; i++)
        calls += group->calls[i].comm == c;
    return calls;
}

static CUstream named(cudaStream_t stream)
{
    return slr_stream_name((CUstream)stream, false);
}

void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream)
{
    struct slr_comm *c = slr_comm_find(comm);
    if (slr_in_group()) {
        add_use(c, named(stream), true);
    } else {
        slr_order_before_nccl(c, named(stream));
        slr_explore_begin(c, (CUstream)stream);
    }
    slr_comm_put(c);
}

ncclResult_t slr_nccl_end(ncclComm_t comm, cudaStream_t stream, ncclResult_t r)
{
    if (r == ncclSuccess && !slr_in_group()) {
        struct slr_comm *c = slr_comm_find(comm);
        slr_order_after_nccl(c, named(stream));
        slr_comm_put(c);
    }
    return slr_explore_end(r);
}

void slr_group_record_birth(struct slr_birth *b)
{
    struct slr_birth **at = &group->births;
    while (*at)
        at = &(*at)->next;
    *at = b;
}

void slr_group_record_window(const struct slr_window *w)
{
    if (grow((void **)&group->windows, group->window_count, &group->window_room, sizeof *group->windows))
        group->windows[group->window_count++] = *w;
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

/* Each communicator of the recorded gathers, once. */
static bool list_comms(struct group *g)
{
    g->comms = calloc(g->count ? g->count : 1, sizeof *g->comms);
    for (size_t i = 0; i < g->count && g->comms; i++) {
        size_t at = 0;
        while (at < g->comm_count && g->comms[at] != g->calls[i].comm)
            at++;
        g->comms[at] = g->calls[i].comm;
        g->comm_count += at == g->comm_count;
    }
    return g->comms != NULL;
}

/* What can not go to the ring is NCCL's, whose group is still open. The rest stays recorded. */
static ncclResult_t pass_refused(struct group *g)
{
    ncclResult_t r = ncclSuccess;
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++) {
        struct slr_call *call = &g->calls[i];
        if (call->comm->pass != SLR_R_RING)
            call->why = call->comm->pass;
        slr_gather_note(call, call->why);
        if (call->why == SLR_R_RING) {
            g->calls[kept++] = *call;
            continue;
        }
        call->passed = ++call->comm->passed;
        ncclResult_t one = slr_gather_nccl(call);
        r = r == ncclSuccess ? one : r;
    }
    g->count = kept;
    return r;
}

/* The communicators of all gathers connect together: each goes forward by itself, so their order does not matter. One
 * that fails meanwhile answers when its gathers are enqueued. */
static ncclResult_t connect_all(struct group *g)
{
    if (!g->count)
        return ncclSuccess;
    enum slr_reason *why = calloc(g->count, sizeof *why);
    if (!why || !list_comms(g)) {
        free(why);
        return ncclSystemError;
    }
    slr_connect(g->comms, why, g->comm_count);
    free(why);
    return pass_refused(g);
}

static bool has_gather(const struct group *g, const struct slr_comm *c)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->calls[i].comm == c)
            return true;
    return false;
}

/* NCCL's operations of one group on several streams of a communicator start after all these streams, and all of them
 * see the results. So do the ring's gathers. */
static bool several_streams(const struct group *g, const struct slr_comm *c)
{
    size_t n = 0;
    for (size_t i = 0; i < g->use_count; i++)
        n += g->uses[i].comm == c;
    return n > 1;
}

/* Does something for every stream that a gathering communicator uses in the group; `several`: only where there are
 * several. */
static ncclResult_t each_use(const struct group *g, bool several, ncclResult_t (*what)(const struct slr_call *call))
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->use_count && r == ncclSuccess; i++) {
        struct slr_call at = {.comm = g->uses[i].comm, .stream = g->uses[i].stream};
        if (has_gather(g, at.comm) && (!several || several_streams(g, at.comm)))
            r = what(&at);
    }
    return r;
}

/* Before the real end: marks where the ring may start. The own shard is copied and NCCL works on the calls' streams, so
 * these wait for each other. */
static ncclResult_t enter_all(const struct group *g)
{
    ncclResult_t r = each_use(g, false, slr_gather_entry);
    return r == ncclSuccess ? each_use(g, true, slr_gather_meet) : r;
}

/* After all: what NCCL and the ring brought on one stream of a communicator, own shards included, is seen on its
 * others. The ring itself does not wait for NCCL's operations: it must not, because other ranks may group differently.
 */
static ncclResult_t cross_all(const struct group *g)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->use_count && r == ncclSuccess; i++)
        for (size_t j = 0; j < g->use_count && r == ncclSuccess; j++)
            if (i != j && g->uses[i].comm == g->uses[j].comm && has_gather(g, g->uses[i].comm))
                r = slr_gather_cross(g->uses[i].comm, g->uses[i].stream, g->uses[j].stream);
    return r;
}

/* NCCL's operations of a communicator that gathers nothing in this group come behind its gathers before (order.h).
 * Those of the others are on streams that have been marked. */
static void order_before(const struct group *g)
{
    for (size_t i = 0; i < g->use_count; i++)
        if (g->uses[i].nccl && g->uses[i].comm && !has_gather(g, g->uses[i].comm))
            slr_order_before_nccl(g->uses[i].comm, g->uses[i].stream);
}

static void order_after(const struct group *g)
{
    for (size_t i = 0; i < g->use_count; i++)
        if (g->uses[i].nccl)
            slr_order_after_nccl(g->uses[i].comm, g->uses[i].stream);
}

static ncclResult_t ring_all(struct group *g)
{
    for (size_t i = 0; i < g->count; i++)
        slr_gather_number(&g->calls[i]);
    ncclResult_t r = slr_verify_start(g->calls, g->count);
    for (size_t i = 0; i < g->count && r == ncclSuccess; i++) {
        bool marked = slr_nvtx_on() && slr_gather_nvtx(&g->calls[i]);
        r = slr_gather_ring(&g->calls[i], !several_streams(g, g->calls[i].comm), SLR_R_JOIN_GROUP);
        slr_nvtx_end(marked);
    }
    if (r == ncclSuccess)
        r = cross_all(g);
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
    /* NCCL enqueues now, with the guard up: on the streams of the calls, and perhaps on some of this context that no
     * hooked function has named. */
    for (size_t i = 0; i < g->use_count; i++)
        if (g->uses[i].nccl)
            slr_pending_join_stream(g->uses[i].stream, false, SLR_R_JOIN_OTHER_OP, "ncclGroupEnd");
    slr_pending_join_all(SLR_R_JOIN_OTHER_OP, "ncclGroupEnd");
    /* A gather that fails on the way in must not keep NCCL's group open. */
    ncclResult_t entered = simulate ? ncclSuccess : connect_all(g);
    if (!simulate && entered == ncclSuccess)
        entered = enter_all(g);
    if (!simulate)
        order_before(g);
    slr_tuner_simulating = simulate;
    ncclResult_t r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
    slr_tuner_simulating = false;
    finish_births(g->births, simulate ? ncclInvalidUsage : r);
    if (r == ncclSuccess && !simulate)
        slr_registered_windows(g->windows, g->window_count);
    if (launched(r) && entered != ncclSuccess)
        r = entered;
    if (launched(r) && !simulate) {
        ncclResult_t ring = ring_all(g);
        r = ring == ncclSuccess ? r : ring;
        order_after(g);
    }
    slr_connect_end(g->comms, g->comm_count);
    for (size_t i = 0; i < g->use_count; i++)
        slr_comm_put(g->uses[i].comm);
    free(g->comms);
    free(g->calls);
    free(g->uses);
    free(g->windows);
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
