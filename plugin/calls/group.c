/* ncclGroupStart/End: what slipring does with the calls between them.
 *
 * NCCL enqueues nothing before the outermost end; so does slipring. In a group
 *   - an all-gather that the ring takes is recorded, and enqueued after the real ncclGroupEnd has enqueued NCCL's own
 * operations;
 *   - every other call goes to NCCL at once, inside its own group;
 *   - a communicator that is being made is recorded, and agrees after the real end.
 *
 * What else the group holds never decides whether a gather is substituted: ranks may group differently (one thread for
 * several devices here, one process each there; p2p calls on some ranks only), so that would break R1. It is safe
 * because operations of one group have no order among themselves: the ring starts from the point of the stream before
 * the real end (`entry`), and NCCL's kernels do not wait for the ring, so neither can wait for the other in a circle.
 * Gathers of one communicator on several streams synchronise those streams mutually, as NCCL's do.
 *
 * Thread-local, like NCCL's own group state.
 */
#include <stdlib.h>
#include "base/nvtx.h"
#include "plugin/lifecycle/agreement.h"
#include "plugin/calls/calls.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/comm/group_record.h"
#include "plugin/gather/nccl_call.h"
#include "plugin/gather/order.h"
#include "plugin/gather/pending_impl.h"
#include "plugin/util/process.h"
#include "plugin/memory/registration.h"
#include "plugin/tuner/tuner.h"
#include "plugin/gather/verify.h"

ncclResult_t slr_group_start(void)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclGroupStart();
    slr_guard--;
    if (r != ncclSuccess || slr_process_off())
        return r;
    slr_group_open();
    return r;
}

/* Each communicator of the recorded gathers, once. */
static bool list_comms(struct slr_group *g)
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
static ncclResult_t pass_refused(struct slr_group *g)
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
static ncclResult_t connect_all(struct slr_group *g)
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

static bool has_gather(const struct slr_group *g, const struct slr_comm *c)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->calls[i].comm == c)
            return true;
    return false;
}

/* NCCL's operations of one group on several streams of a communicator start after all these streams, and all of them
 * see the results. So do the ring's gathers. */
static bool several_streams(const struct slr_group *g, const struct slr_comm *c)
{
    size_t n = 0;
    for (size_t i = 0; i < g->use_count; i++)
        n += g->uses[i].comm == c;
    return n > 1;
}

/* Before the real end: marks where the ring may start. The own shard is copied and NCCL works on the calls' streams, so
 * these wait for each other. */
static ncclResult_t enter_all(const struct slr_group *g)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->use_count && r == ncclSuccess; i++)
        if (has_gather(g, g->uses[i].comm))
            r = slr_gather_entry(g->uses[i].comm, g->uses[i].stream);
    for (size_t i = 0; i < g->use_count && r == ncclSuccess; i++)
        if (has_gather(g, g->uses[i].comm) && several_streams(g, g->uses[i].comm))
            r = slr_gather_wait_entries(g->uses[i].comm, g->uses[i].stream);
    return r;
}

/* After all: what NCCL and the ring brought on one stream of a communicator, own shards included, is seen on its
 * others. The ring itself does not wait for NCCL's operations: it must not, because other ranks may group differently.
 */
static ncclResult_t cross_all(const struct slr_group *g)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < g->use_count && r == ncclSuccess; i++)
        for (size_t j = 0; j < g->use_count && r == ncclSuccess; j++)
            if (i != j && g->uses[i].comm == g->uses[j].comm && has_gather(g, g->uses[i].comm))
                r = slr_gather_wait_stream(g->uses[i].comm, g->uses[i].stream, g->uses[j].stream);
    return r;
}

/* NCCL's operations of a communicator that gathers nothing in this group come behind its gathers before (order.h).
 * Those of the others are on streams that have been marked. */
static void order_before(const struct slr_group *g)
{
    for (size_t i = 0; i < g->use_count; i++)
        if (g->uses[i].nccl && g->uses[i].comm && !has_gather(g, g->uses[i].comm))
            slr_order_before_nccl(g->uses[i].comm, g->uses[i].stream);
}

static void order_after(const struct slr_group *g)
{
    for (size_t i = 0; i < g->use_count; i++)
        if (g->uses[i].nccl)
            slr_order_after_nccl(g->uses[i].comm, g->uses[i].stream);
}

static ncclResult_t ring_all(struct slr_group *g)
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

static void finish_inits(struct slr_init *list, ncclResult_t r)
{
    for (struct slr_init *b = list; b && r == ncclInProgress; b = b->next) {
        slr_init_cancel(b); /* one non-blocking communicator makes the whole group so */
        b->pass = SLR_R_NONBLOCKING;
    }
    if (launched(r))
        slr_inits_finish(list);
    for (struct slr_init *b = list, *next; b; b = next) {
        next = b->next;
        slr_init_cancel(b);
        free(b);
    }
}

/* The outermost end. `end` is the real call that closes NCCL's group. */
static ncclResult_t close_group(struct slr_group *g, ncclSimInfo_t *info, bool simulate)
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
    finish_inits(g->inits, simulate ? ncclInvalidUsage : r);
    if (r == ncclSuccess && !simulate)
        slr_registered_windows(g->windows);
    slr_windows_free(g->windows);
    if (launched(r) && entered != ncclSuccess)
        r = entered;
    if (launched(r) && !simulate) {
        ncclResult_t ring = ring_all(g);
        r = ring == ncclSuccess ? r : ring;
        order_after(g);
    }
    slr_connect_end(g->comms, g->comm_count);
    slr_group_free(g);
    return r;
}

static ncclResult_t end(ncclSimInfo_t *info, bool simulate)
{
    slr_guard++;
    struct slr_group *g = slr_group_close();
    ncclResult_t r;
    if (g)
        r = close_group(g, info, simulate);
    else
        r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
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
