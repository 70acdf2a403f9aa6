/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM hooks' way in: finds the pending gather that this GEMM reads, and fuses the two. */
#include "base/counters.h"
#include "base/hash.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/call.h"
#include "plugin/fuse/fuse.h"
#include "plugin/hosts/hosts.h"
#include "plugin/passed/in_call.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"
#include "plugin/produce/produce.h"
#include "plugin/util/process.h"
#include "plugin/trials/trials.h"

/* ---- beside the gather ---- */

/* What GEMMs a pending gather has had beside it before one consumes it: a gather that an unrelated
 * GEMM has hidden is there, and need not be waited for in parts. Training with sequence parallelism
 * gathers so: the gradient of the input runs beside it, then that of the weight consumes it.
 *
 * Counted are the GEMMs of hooked calls that the asking thread has made since the gather, on
 * whatever stream of its context. Only its own: what one thread does is equal on all ranks of a
 * program, how several threads come to run is not, and ranks should decide alike.
 *
 * Costs nothing while nothing is pending. */

/* A gather is known by its communicator and by how many pieces that has moved. With more gathers
 * pending than there is room for, the oldest is forgotten: it counts as one that had nothing
 * beside it. */
enum { GATHERS = 8 };
struct beside {
    uint64_t comm;
    uint32_t issued;
    double flop;
};
static _Thread_local struct beside besides[GATHERS];
static _Thread_local unsigned latest;

static struct beside *beside_of(const struct slr_lane *lane)
{
    const uint32_t issued = atomic_load(&lane->ring.issued);
    for (unsigned i = 0; i < GATHERS; i++)
        if (besides[i].comm == slr_comm_id(lane->comm) && besides[i].issued == issued)
            return &besides[i];
    return NULL;
}

struct noted {
    CUcontext ctx;
    double flop;
};

/* For every pending gather: it never matches. */
static bool add_beside(struct slr_lane *lane, void *noted)
{
    const struct noted *n = noted;
    if (lane->ring.ctx != n->ctx)
        return false;
    struct beside *b = beside_of(lane);
    if (!b) {
        b = &besides[latest++ % GATHERS];
        *b = (struct beside){.comm = slr_comm_id(lane->comm), .issued = atomic_load(&lane->ring.issued)};
    }
    b->flop += n->flop;
    return false;
}

/* The calling thread has put the GEMM on a stream of the context. */
static void note_beside(struct slr_gemm *gemm, CUcontext ctx)
{
    if (atomic_load(&slr_gate_word) == 0)
        return;
    if (gemm->lt && gemm->m == 0)
        slr_gemm_describe(gemm);
    struct noted n = {.ctx = ctx, .flop = slr_parts_flop(gemm)};
    slr_pending_find(add_beside, &n);
}

/* How much that has been since the communicator's pending gather, in operations of a 16-bit GEMM.
 * Under the lane's lock. */
static double flop_beside(const struct slr_lane *lane)
{
    const struct beside *b = beside_of(lane);
    return b ? b->flop : 0;
}

/* ---- behind it ---- */

/* A GEMM, where it is to run. */
struct consumer {
    const struct slr_gemm *gemm;
    CUstream stream;
    CUcontext ctx;  /* in which the call is: of a default stream the current one, else its home */
    CUcontext home; /* of the current one */
};

/* 1 + the last of the gathers that the holder holds and that one operand is the receive buffer of; 0: there is none. */
static unsigned consumed_by(const struct slr_lane *lane, const struct slr_holder *h, const struct slr_gemm *gemm)
{
    for (unsigned n = lane->pending->members; n > h->from; n--) {
        const CUdeviceptr recv = lane->pending->member[n - 1].gather.recv;
        if ((uintptr_t)gemm->a == recv || (uintptr_t)gemm->b == recv)
            return n;
    }
    return 0;
}

/* Of a gather over hosts whose steps begin at member `first`: where all ranks receive, by what the one step says. */
static CUdeviceptr whole_recv(const struct slr_lane *lane, unsigned first, unsigned step)
{
    const struct slr_gather *g = &lane->pending->member[first + step].gather;
    const size_t host = (size_t)slr_hosts_of_step(lane->comm->hosts, (int)step);
    return g->recv - host * (size_t)lane->ring.nranks * g->plan.shard;
}

/* Whether the steps of one gather are pending from that member on. */
static bool is_whole(const struct slr_lane *lane, unsigned first)
{
    const unsigned hosts = (unsigned)lane->comm->hosts->hosts;
    const struct slr_member *m = &lane->pending->member[first];
    if (lane->pending->members - first < hosts)
        return false;
    for (unsigned step = 1; step < hosts; step++)
        if (m[step].gather.plan.shard != m->gather.plan.shard ||
            whole_recv(lane, first, step) != whole_recv(lane, first, 0))
            return false;
    return true;
}

/* 1 + the first step of the last one that the holder holds and that one operand is the receive buffer of; 0: none. */
static unsigned whole_consumed_by(const struct slr_lane *lane, const struct slr_holder *h, const struct slr_gemm *gemm)
{
    for (unsigned n = lane->pending->members; n > h->from; n--) {
        const CUdeviceptr recv = is_whole(lane, n - 1) ? whole_recv(lane, n - 1, 0) : 0;
        if (recv && ((uintptr_t)gemm->a == recv || (uintptr_t)gemm->b == recv))
            return n;
    }
    return 0;
}

/* Whether the GEMM could consume a pending gather: held by its stream, same context, one operand
 * is the receive buffer. */
static bool could_consume(struct slr_lane *lane, void *consumer)
{
    const struct consumer *x = consumer;
    const struct slr_holder *h = slr_pending_holder(lane, x->stream);
    if (!h || lane->ring.ctx != x->ctx)
        return false;
    return lane->comm->hosts ? whole_consumed_by(lane, h, x->gemm) > 0 : consumed_by(lane, h, x->gemm) > 0;
}

/* Whether a sum over the gathered dimension is to be split, and is worth it. */
static enum slr_reason may_sum(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_gemm *gemm,
                               struct slr_gemm_split *split)
{
    enum slr_reason r = slr_gemm_may_sum(gemm, (enum slr_sums)slr_get(SLR_S_SPLIT_K));
    split->needs_all = r != SLR_R_FUSED;
    if (split->needs_all)
        return r;
    split->head = flop_beside(lane) / slr_parts_flop(gemm) * (double)gemm->k;
    return slr_parts_several(slr_parts_of(&g->plan, split, lane->ring.rank, lane->ring.nranks, split->pace))
               ? SLR_R_FUSED
               : SLR_R_JOIN_SUM_SHORT;
}

/* Whether there is more than one part: where they can begin is restricted. */
static bool has_parts(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_gemm_split *split)
{
    return split->quantum <= 1 ||
           slr_parts_several(slr_parts_of(&g->plan, split, lane->ring.rank, lane->ring.nranks, split->pace));
}

/* How the GEMM splits. *overwrites: it does, but for that it writes where the application has, or had, the shard that
 * this rank sends. */
static enum slr_reason find_split(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_gemm *gemm,
                                  struct slr_gemm_split *split, bool *overwrites)
{
    enum slr_reason r = slr_gemm_split_find(gemm, g, lane->ring.nranks, split);
    if (r != SLR_R_JOIN_OVERLAP)
        return r;
    struct slr_gather moved = *g;
    moved.send = slr_gather_own(&moved, lane->ring.rank);
    moved.vacated = 0;
    r = slr_gemm_split_find(gemm, &moved, lane->ring.nranks, split);
    *overwrites = r == SLR_R_FUSED;
    return r;
}

static enum slr_reason settings_allow(void)
{
    if (!slr_get(SLR_S_FUSE))
        return SLR_R_JOIN_NO_FUSE;
    if (slr_get(SLR_S_STRICT))
        return SLR_R_JOIN_STRICT;
    return slr_region_gemms() ? SLR_R_JOIN_REGION : SLR_R_FUSED;
}

/* Settings first, as they cost nothing; then the shape. SLR_R_FUSED, or why the GEMM runs whole. */
static enum slr_reason may_cut(const struct slr_lane *lane, const struct slr_member *m, struct slr_gemm *gemm,
                               struct slr_gemm_split *split, bool *overwrites)
{
    enum slr_reason r = settings_allow();
    if (r == SLR_R_FUSED)
        r = slr_gemm_describe(gemm);
    if (r == SLR_R_FUSED)
        r = find_split(lane, &m->gather, gemm, split, overwrites);
    if (r == SLR_R_JOIN_ATTRIBUTE || r == SLR_R_JOIN_EPILOGUE)
        gemm->attribute = gemm->attribute ? gemm->attribute : split->attribute;
    if (r != SLR_R_FUSED)
        return r;
    split->parts =
        slr_get(SLR_S_PARTS) ? (uint32_t)slr_get(SLR_S_PARTS) : lane->kind->parts(lane, m, gemm, split->on_a);
    if (split->parts == 1)
        return SLR_R_JOIN_WHOLE;
    /* How fast the GEMM consumes the gathered operand decides how finely it is cut. */
    split->pace = slr_parts_pace(slr_gemm_split_elem(split), split->other, (double)slr_get(SLR_S_FLOP_PER_BYTE));
    if (split->sums)
        return may_sum(lane, &m->gather, gemm, split);
    return has_parts(lane, &m->gather, split) ? SLR_R_FUSED : SLR_R_JOIN_SHAPE;
}

static enum slr_reason may_fuse(struct slr_lane *lane, const struct slr_member *m, struct slr_gemm *gemm,
                                const struct slr_holder *h, struct slr_gemm_split *split)
{
    bool overwrites = false;
    const enum slr_reason r = may_cut(lane, m, gemm, split, &overwrites);
    if (r == SLR_R_FUSED && h->aside && !slr_gemms_apart(&lane->pending->aside, gemm))
        return SLR_R_JOIN_OVERLAP;
    if (r != SLR_R_FUSED || !overwrites)
        return r;
    /* The next one with these buffers sends its shard from elsewhere; this one may do so already. */
    lane->kind->fusing(lane, m, SLR_FUSING_OVERWRITES, h->stream);
    return m->gather.vacated ? SLR_R_FUSED : SLR_R_JOIN_OVERLAP;
}

/* The gathered operand, and its op. */
static const char *form_name(const struct slr_gemm_split *split)
{
    return split->on_a ? split->sums ? "A/N" : "A/T" : split->sums ? "B/T" : "B/N";
}

static const char *api_name(enum slr_gemm_api api)
{
    static const char *const names[] = {
        [SLR_GEMM_EX] = "GemmEx",
        [SLR_GEMM_EX_64] = "GemmEx_64",
        [SLR_GEMM_S] = "Sgemm",
        [SLR_GEMM_S_64] = "Sgemm_64",
        [SLR_GEMM_D] = "Dgemm",
        [SLR_GEMM_D_64] = "Dgemm_64",
        [SLR_GEMM_H] = "Hgemm",
        [SLR_GEMM_H_64] = "Hgemm_64",
        [SLR_GEMM_STRIDED_EX] = "GemmStridedBatchedEx",
        [SLR_GEMM_STRIDED_EX_64] = "GemmStridedBatchedEx_64",
        [SLR_GEMM_LT] = "LtMatmul",
    };
    return names[api];
}

static void log_fused(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_gemm *gemm,
                      const struct slr_gemm_split *s, unsigned parts, const struct slr_holder *h)
{
    const bool moved = g->vacated;
    uint64_t kind = (uint64_t)s->on_a | (uint64_t)h->origin << 1 | 4 | (uint64_t)s->sums << 3 | (uint64_t)moved << 4 |
                    (uint64_t)h->aside << 5 | (uint64_t)gemm->api << 8;
    uint64_t key = slr_mix(slr_mix((uint64_t)gemm->m << 32 ^ (uint64_t)gemm->n, (uint64_t)gemm->k),
                           slr_comm_id(lane->comm) ^ kind);
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(key))
        slr_log(SLR_LOG_INFO, "fused",
                "comm=%s crank=%d form=%s m=%lld n=%lld k=%lld shard=%zu parts=%u api=%s via=%s moved=%d aside=%d",
                lane->comm->name, lane->ring.rank, form_name(s), (long long)gemm->m, (long long)gemm->n,
                (long long)gemm->k, g->plan.shard, parts, api_name(gemm->api), h->origin ? "stream" : "event",
                (int)moved, (int)h->aside);
}

/* The stream that the GEMM is to run on. */
static CUstream stream_of(const struct slr_gemm *gemm)
{
    cudaStream_t stream = NULL;
    if (gemm->lt)
        return gemm->lt->stream;
    if (!gemm->handle || slr_real.cublasGetStream(gemm->handle, &stream) != CUBLAS_STATUS_SUCCESS)
        return NULL; /* cuBLAS will say so; joining too much is harmless */
    return stream;
}

/* Whether parts of the GEMM may read `send` in the stead of the receive buffer. The program may write
 * to it as soon as it sees the gather's end. All that it puts on the gather's own stream comes
 * behind the GEMM, and so does what waits for that. But another stream may have been told before, by
 * an event, or by the order of the communicator's operations, if they are on several streams; or the
 * host has seen the end, by a query, or by waiting for the context while another one was current. And a
 * GEMM that runs aside may write there as soon as the gather is over. Who
 * asks meanwhile sets `shown`, and then looks at `read` (pending_observe.c). */
static bool send_stays(const struct slr_lane *lane, const struct slr_holder *h)
{
    return h->origin && !h->aside && !lane->pending->carried && !lane->order->several &&
           !atomic_load(&lane->pending->shown);
}

/* In how many parts; as slr_gemm_fused. What it comes to is told. */
static unsigned in_parts(struct slr_lane *lane, unsigned i, const struct slr_gemm *gemm, const struct slr_holder *h,
                         const struct slr_gemm_split *split, cublasStatus_t *result)
{
    const struct slr_member *m = &lane->pending->member[i];
    unsigned parts = 0;
    struct slr_gather here = m->gather;
    here.stream = h->stream; /* of the GEMM, to which an event may have carried the gather */
    atomic_store(&lane->pending->read, true);
    here.send_stays = send_stays(lane, h);
    bool nvtx = slr_nvtx_begin("fused GEMM", form_name(split), here.plan.shard * (uint64_t)lane->ring.nranks);
    slr_pending_turn_to(lane, i);
    *result = slr_gemm_fused(&lane->ring, &here, gemm, split, &parts);
    atomic_store(&lane->pending->read, false);
    slr_nvtx_end(nvtx);
    if (parts == 0) /* cuBLAS did not take the first part; it may take the whole */
        lane->kind->fusing(lane, m, SLR_FUSING_REFUSED, h->stream);
    if (parts > SLR_GEMM_REDONE) {
        lane->kind->fusing(lane, m, SLR_FUSING_DONE, h->stream);
        SLR_WATCH(joined, lane, SLR_R_FUSED);
    }
    slr_pending_turn_to(lane, i);
    return parts;
}

/* `h`: the GEMM's stream; `i`: the gather. Returns true when the GEMM has been done and *result is what the application
 * gets. */
static bool fuse(struct slr_lane *lane, unsigned i, const struct slr_gemm *gemm, const struct slr_holder *h,
                 const struct slr_gemm_split *split, cublasStatus_t *result)
{
    const CUstream stream = h->stream;
    const unsigned parts = in_parts(lane, i, gemm, h, split, result);
    if (parts == 0)
        return false;
    if (parts == SLR_GEMM_REDONE) {
        /* A later part failed and all was done again behind a join of the GEMM's stream; other
         * holders are joined here. */
        slr_pending_join(lane, SLR_R_JOIN_PART, "GEMM");
        return true;
    }
    slr_count(SLR_R_FUSED);
    atomic_fetch_add(&slr_counters.gemms_chunks, parts);
    log_fused(lane, &lane->pending->member[i].gather, gemm, split, parts, h);
    if (h->aside && slr_gemm_aside_join(&lane->ring, stream) != SLR_OK)
        *result = CUBLAS_STATUS_EXECUTION_FAILED;
    if (slr_pending_stand(lane, stream) != SLR_OK)
        *result = CUBLAS_STATUS_EXECUTION_FAILED;
    slr_pending_consumed(lane, stream, i);
    return true;
}

/* The GEMM needs all that is gathered at once. Behind it on its stream there may be one that does not, such as the
 * gradient of the input behind that of the weight: it must not wait with this one. Returns true when the GEMM has been
 * enqueued aside, and *result is what the application gets. */
static bool run_aside(struct slr_lane *lane, const struct slr_gemm *gemm, CUstream stream, cublasStatus_t *result)
{
    /* Outside of a green context's multiprocessors nothing of its program's is to run. */
    if (!lane->kind->runs || slr_pending_has_aside(lane) || slr_stream_is_green(stream, lane->ring.ctx) ||
        slr_shared_enter(&lane->comm->shared) != SLR_OK)
        return false;
    const bool done = slr_gemm_aside(&lane->ring, gemm, stream, result);
    slr_shared_leave();
    if (done)
        slr_pending_aside(lane, stream, gemm);
    return done;
}

static bool apart(const struct slr_lane *lane, const struct slr_gather *g, const void *gemm)
{
    return slr_gemm_apart(gemm, g, lane->ring.nranks);
}

/* How many of the gathers, from the first on, the GEMM that consumes member `i` needs, or uses the memory of, besides;
 * 0: none. */
static unsigned needs_besides(const struct slr_lane *lane, const struct slr_holder *h, unsigned i,
                              const struct slr_gemm *gemm)
{
    unsigned n = lane->pending->members;
    while (n > h->from && (n == i + 1 || apart(lane, &lane->pending->member[n - 1].gather, gemm)))
        n--;
    return n > h->from ? n : 0;
}

/* Of several gathers that are pending together: the stream waits for those before the GEMM's that it uses as well, as
 * of scale factors. SLR_R_FUSED, or why it can not consume its own: it uses one behind that. */
static enum slr_reason join_besides(struct slr_lane *lane, struct slr_holder *h, unsigned i, struct slr_gemm *gemm,
                                    const struct slr_operation *op)
{
    if (lane->pending->members - h->from == 1)
        return SLR_R_FUSED;
    const enum slr_reason r = slr_gemm_describe(gemm);
    if (r != SLR_R_FUSED)
        return r;
    const unsigned behind = needs_besides(lane, h, i, gemm);
    if (behind > i)
        return SLR_R_JOIN_OVERLAP;
    if (behind > 0)
        slr_pending_join_some(lane, h, behind, SLR_R_JOIN_OTHER_OP, op);
    return SLR_R_FUSED;
}

/* Under the lane's lock. What was joined meanwhile can have ended it. Returns true when the GEMM
 * has been done, *aside: by the ring; else *why says why not. */
static bool consume(struct slr_lane *lane, struct slr_gemm *gemm, const struct slr_operation *op, enum slr_reason *why,
                    bool *aside, cublasStatus_t *result)
{
    struct slr_gemm_split split = {.quantum = 1};
    struct slr_holder *h = slr_pending_holder(lane, op->stream);
    const unsigned found = h ? consumed_by(lane, h, gemm) : 0;
    if (!found)
        return false;
    const unsigned i = found - 1;
    *why = join_besides(lane, h, i, gemm, op);
    if (*why == SLR_R_FUSED)
        *why = may_fuse(lane, &lane->pending->member[i], gemm, h, &split);
    if (*why != SLR_R_FUSED)
        return *aside = split.needs_all && i + 1 == lane->pending->members && run_aside(lane, gemm, op->stream, result);
    *why = SLR_R_JOIN_PART;
    return fuse(lane, i, gemm, h, &split, result);
}

/* ---- over hosts: what the GEMM reads comes host by host, and so it is computed ---- */

/* As may_cut(), of the gather as a whole. Parts of another host's can not be taken back, so C must not be read. */
static enum slr_reason may_cut_whole(const struct slr_lane *lane, unsigned first, struct slr_gemm *gemm,
                                     struct slr_gemm_split *split)
{
    struct slr_member whole = lane->pending->member[first];
    const int nranks = lane->comm->hosts->hosts * lane->ring.nranks;
    enum slr_reason r = settings_allow();
    if (r == SLR_R_FUSED && slr_get(SLR_S_PARTS) == 1)
        return SLR_R_JOIN_WHOLE;
    whole.gather.recv = whole_recv(lane, first, 0);
    if (r == SLR_R_FUSED)
        r = slr_gemm_describe(gemm);
    if (r == SLR_R_FUSED)
        r = slr_gemm_split_find(gemm, &whole.gather, nranks, split);
    if (r != SLR_R_FUSED)
        return r;
    if (split->sums || slr_gemm_reads_output(gemm))
        return SLR_R_JOIN_HOSTS;
    split->pace = slr_parts_pace(slr_gemm_split_elem(split), split->other, (double)slr_get(SLR_S_FLOP_PER_BYTE));
    split->some = true;
    return SLR_R_FUSED;
}

/* What stands before and behind the gather's steps is joined, or apart. */
static enum slr_reason join_besides_whole(struct slr_lane *lane, struct slr_holder *h, unsigned first,
                                          const struct slr_gemm *gemm, const struct slr_operation *op)
{
    for (unsigned i = first + (unsigned)lane->comm->hosts->hosts; i < lane->pending->members; i++)
        if (!apart(lane, &lane->pending->member[i].gather, gemm))
            return SLR_R_JOIN_OVERLAP;
    if (h->aside && !slr_gemms_apart(&lane->pending->aside, gemm))
        return SLR_R_JOIN_OVERLAP;
    if (first > h->from)
        slr_pending_join_some(lane, h, first, SLR_R_JOIN_OTHER_OP, op);
    return SLR_R_FUSED;
}

/* One host's part of it. */
static unsigned step_in_parts(struct slr_lane *lane, unsigned first, unsigned step, const struct slr_gemm *gemm,
                              const struct slr_holder *h, struct slr_gemm_split *split, cublasStatus_t *result)
{
    const struct slr_hosts *hosts = lane->comm->hosts;
    split->first = (int64_t)slr_hosts_of_step(hosts, (int)step) * lane->ring.nranks * split->shard_cols;
    return in_parts(lane, first + step, gemm, h, split, result);
}

static bool consume_whole(struct slr_lane *lane, struct slr_gemm *gemm, const struct slr_operation *op,
                          enum slr_reason *why, cublasStatus_t *result)
{
    struct slr_gemm_split split = {.quantum = 1};
    struct slr_holder *h = slr_pending_holder(lane, op->stream);
    const unsigned found = h ? whole_consumed_by(lane, h, gemm) : 0;
    unsigned parts = 0, now = SLR_GEMM_REDONE + 1, step = 0;
    if (!found)
        return false;
    *why = may_cut_whole(lane, found - 1, gemm, &split);
    if (*why == SLR_R_FUSED)
        *why = join_besides_whole(lane, h, found - 1, gemm, op);
    if (*why != SLR_R_FUSED)
        return false;
    const unsigned first = found - 1, hosts = (unsigned)lane->comm->hosts->hosts;
    for (; step < hosts && now > SLR_GEMM_REDONE; step++, parts += now)
        now = step_in_parts(lane, first, step, gemm, h, &split, result);
    *why = SLR_R_JOIN_PART; /* the caller joins, and runs the whole: it does not read what parts have written */
    if (now <= SLR_GEMM_REDONE)
        return false;
    slr_count(SLR_R_FUSED);
    atomic_fetch_add(&slr_counters.gemms_chunks, parts);
    log_fused(lane, &lane->pending->member[first].gather, gemm, &split, parts, h);
    if ((h->aside && slr_gemm_aside_join(&lane->ring, op->stream) != SLR_OK) ||
        slr_pending_stand(lane, op->stream) != SLR_OK)
        *result = CUBLAS_STATUS_EXECUTION_FAILED;
    slr_pending_consumed(lane, op->stream, first + hosts - 1);
    return true;
}

static void overtake_apart(struct slr_operation *op, struct slr_gemm *gemm)
{
    if (slr_gemm_describe(gemm) != SLR_R_FUSED)
        return;
    op->overtakes = apart;
    op->what = gemm;
}

/* The GEMM is an operation on its stream like any other, but for the gather that it may consume,
 * and for those whose memory it does not touch. Its memory is described only if there are others.
 */
static void join_others(struct slr_operation *op, struct slr_gemm *gemm)
{
    if (!slr_pending_observed(op))
        return;
    overtake_apart(op, gemm);
    slr_pending_join_observed(op);
}

static bool meddles(struct slr_lane *lane, void *gemm)
{
    for (unsigned i = 0; i < lane->pending->members; i++)
        if (!apart(lane, &lane->pending->member[i].gather, gemm))
            return true;
    return false;
}

/* Its output may be sent in parts: no pending gather writes there. The GEMM's stream need not hold that one; the
 * reduce-scatter's, then, may. */
static bool may_produce(struct slr_gemm *gemm)
{
    if (slr_gemm_describe(gemm) != SLR_R_FUSED)
        return false;
    struct slr_lane *lane = slr_pending_find(meddles, gemm);
    slr_lane_put(lane);
    return !lane;
}

cublasStatus_t slr_gemm_call(struct slr_gemm *gemm)
{
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
    enum slr_reason why = SLR_R_JOIN_NO_OPERAND;
    bool done = false, aside = false, produced = false;
    slr_guard++; /* cuBLAS calls the hooked driver */
    if (!gemm->lt)
        slr_workspace_enter(gemm->handle);
    struct consumer x = {.gemm = gemm, .stream = slr_stream_name(stream_of(gemm), false)};
    slr_real.cuCtxGetCurrent(&x.ctx);
    x.home = slr_context_home_of_current(x.ctx);
    if (!slr_stream_is_default(x.stream))
        x.ctx = x.home;
    slr_front_operation(x.stream);
    slr_solo_note(x.stream);
    const unsigned entry = slr_in_call_enter(x.home, NULL); /* before the lock: whoever has it may hang in cuBLAS */
    const unsigned watch = atomic_load_explicit(&slr_gemm_watch, memory_order_relaxed);
    struct slr_lane *lane = slr_pending_find(could_consume, &x);
    const struct slr_comm *ran_on = NULL; /* whose ring the GEMM runs aside on; compared only */
    struct slr_operation op = {
        .stream = x.stream, .of = lane, .why = lane ? SLR_R_JOIN_OTHER_OP : why, .who = "GEMM", .gemm = gemm};
    join_others(&op, gemm);
    if (lane) {
        slr_lane_lock(lane);
        done = lane->comm->hosts ? consume_whole(lane, gemm, &op, &why, &result)
                                 : consume(lane, gemm, &op, &why, &aside, &result);
        slr_lane_unlock(lane);
        ran_on = aside ? lane->comm : NULL;
        slr_lane_put(lane); /* it may end from here on */
    }
    if (!done) {
        op.of = NULL;
        op.why = why;
        op.attribute = why == SLR_R_JOIN_ATTRIBUTE || why == SLR_R_JOIN_EPILOGUE ? gemm->attribute : NULL;
        if (lane) /* of several gathers it may use the first ones only */
            overtake_apart(&op, gemm);
        slr_pending_join_observed(&op);
        /* One that was to consume a gather stays whole for the reason that was found. */
        produced = !lane && (watch & SLR_GEMM_WATCH_PRODUCTS) && may_produce(gemm) &&
                   slr_produce_gemm(gemm, x.stream, x.ctx, slr_pending_joins(), &result);
        if (!produced)
            result = slr_gemm_whole(gemm);
    }
    if (!produced) /* behind it: what another thread has begun meanwhile may stand before it on the stream */
        slr_product_gemm(gemm, x.stream, x.home);
    note_beside(gemm, x.home);
    if (watch & SLR_GEMM_WATCH_TRIALS)
        slr_trials_gemm(gemm, x.stream, ran_on);
    if (!gemm->lt)
        slr_workspace_leave(gemm->handle);
    slr_guard--;
    return slr_in_call_leave(entry) ? result : CUBLAS_STATUS_EXECUTION_FAILED;
}
