/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/scatter/scatter.h"

#include "base/counters.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/hosts/hosts.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/produce.h"
#include "plugin/produce/product.h"
#include "plugin/produce/product_parts.h"

#define GRAIN ((size_t)16) /* bytes: a multiple of every element */

/* Some bytes of every shard. */
struct piece {
    size_t at, bytes;
};

static size_t most_of(const struct slr_call *call)
{
    const size_t most = call->comm->hosts->piece;
    return call->shard < most ? call->shard : most;
}

bool slr_scatter_hosts_fit(const struct slr_call *call)
{
    return most_of(call) <= slr_scatter_room(call->comm, call->shard);
}

/* Of the whole's shards the first one of a host. */
static char *of_host(const struct slr_call *call, int host)
{
    return (char *)call->send + (size_t)host * (size_t)call->comm->nranks * call->shard;
}

/* Half precision has no room for sums of many that are not divided yet. */
static bool averages_inside(const struct slr_call *call)
{
    return call->type == ncclFloat16;
}

static float divisor_of_hosts(const struct slr_call *call)
{
    const struct slr_comm *c = call->comm;
    return call->op != ncclAvg ? 1.0f : (float)(averages_inside(call) ? c->spans : slr_comm_shards(c));
}

static ncclRedOp_t op_inside(const struct slr_call *call)
{
    return averages_inside(call) ? call->op : ncclSum;
}

/* ---- inside: under the lane's lock, its context current ---- */

static size_t length_of(const struct slr_call *call, int shard, struct piece piece)
{
    const size_t begin = (size_t)shard * call->shard + piece.at, end = begin + piece.bytes;
    return begin >= call->bytes ? 0 : (end < call->bytes ? end : call->bytes) - begin;
}

/* What calls have in common: of the shards that begin at `send`; but its parts. */
static struct slr_scatter describe(const struct slr_call *call, struct piece piece, const void *send)
{
    const struct slr_comm *c = call->comm;
    struct slr_scatter s = {.send = (CUdeviceptr)(uintptr_t)send + piece.at,
                            .stride = call->shard,
                            .plan = slr_scatter_plan(piece.bytes),
                            .elem = slr_type_bytes(call->type),
                            .divisor = slr_scatter_divisor(call),
                            .reduce = slr_sums_of(c)};
    s.plan.slots = slr_scatter_slots(c, call->shard);
    slr_scatter_type(call->type, &s.type);
    for (int r = 0; r < c->nranks; r++)
        s.length[r] = length_of(call, r, piece);
    slr_scatter_arrives(c, &s);
    return s;
}

/* What the product has of one host's shards; each part, as the piece is a whole shard. */
static unsigned parts_of(const struct slr_call *call, const struct slr_product *p, int host,
                         struct slr_scatter_part out[SLR_PRODUCT_PARTS])
{
    const int per = call->comm->nranks;
    unsigned n = 0;
    for (unsigned i = 0; i < p->parts; i++)
        if (p->part[i].shard / per == host) {
            out[n] = p->part[i];
            out[n++].shard %= per;
        }
    return n;
}

/* By step: what is summed for slr_hosts_to_step(); 0: for this host. */
static enum slr_status put_step(const struct slr_call *call, const struct slr_product *p, CUevent before, int step,
                                struct piece piece)
{
    struct slr_comm *c = call->comm;
    struct slr_hosts *h = c->hosts;
    const int host = slr_hosts_to_step(h, step);
    const CUdeviceptr own = (CUdeviceptr)(uintptr_t)call->recv + piece.at;
    struct slr_scatter_part
        part[SLR_PRODUCT_PARTS > SLR_PLAIN_PARTS * SLR_MAX_RANKS ? SLR_PRODUCT_PARTS : SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    struct slr_call x = *call;
    x.op = op_inside(call);
    struct slr_scatter s = describe(&x, piece, of_host(call, host));
    s.recv = step == 0 ? own : slr_hosts_sum_at(h, step);
    s.apart = step != 0;
    s.part = part;
    s.parts = p ? parts_of(call, p, host, part) : slr_scatter_plain(c, &s.plan, s.length, part);
    x.send = (const void *)(uintptr_t)s.send;
    x.recv = (void *)(uintptr_t)s.recv;
    x.count = piece.bytes / s.elem;
    x.shard = piece.bytes;
    x.bytes = piece.bytes * (size_t)c->nranks;
    if (step != 1 || piece.at > 0)
        slr_gather_number(&x);
    SLR_TRY(slr_scatter_run(&x, &s, p, before));
    return SLR_CU(cuEventRecord, h->summed[step], c->lane->ring.tail);
}

static enum slr_status put(const struct slr_call *call, const struct slr_product *p, CUevent before, struct piece piece)
{
    struct slr_hosts *h = call->comm->hosts;
    slr_pending_join(call->comm->lane, SLR_R_JOIN_NEXT_GATHER, call->flow->kind->function);
    SLR_TRY(slr_hosts_sums_begin(h, call->comm->lane->ring.pull));
    for (int i = 1; i <= h->hosts; i++)
        SLR_TRY(put_step(call, p, i == 1 ? before : NULL, i % h->hosts, piece));
    return SLR_OK;
}

/* ---- between hosts ---- */

/* With the context current. */
static ncclResult_t add_hosts(const struct slr_call *call, struct piece piece)
{
    struct slr_hosts *h = call->comm->hosts;
    struct slr_hosts_sum s = {.call = call,
                              .reduce = slr_sums_of(call->comm),
                              .elem = slr_type_bytes(call->type),
                              .bytes = piece.bytes,
                              .divisor = divisor_of_hosts(call),
                              .own = (CUdeviceptr)(uintptr_t)call->recv + piece.at};
    slr_scatter_type(call->type, &s.type);
    ncclResult_t r = slr_hosts_sum(h, &s);
    if (r == ncclSuccess)
        r = slr_hosts_behind(call, h->unused[h->half]);
    return r == ncclSuccess ? r : slr_hosts_failed(call->comm, r);
}

/* Behind the entry; with a product under the lane's lock, which this gives up. */
static ncclResult_t run_piece(const struct slr_call *call, const struct slr_product *p, CUevent before,
                              struct piece piece)
{
    struct slr_comm *c = call->comm;
    enum slr_status s = slr_shared_enter(&c->shared);
    if (!p)
        slr_lane_lock(c->lane);
    const bool entered = s == SLR_OK;
    if (entered)
        s = put(call, p, before, piece);
    slr_lane_unlock(c->lane);
    ncclResult_t r = slr_scatter_outcome(call, s);
    if (r == ncclSuccess)
        r = add_hosts(call, piece);
    if (entered)
        slr_shared_leave();
    return r;
}

static ncclResult_t run_pieces(const struct slr_call *call, ncclResult_t (*run)(const struct slr_call *, struct piece))
{
    const size_t most = most_of(call);
    ncclResult_t r = slr_comm_answer(call->comm);
    for (size_t at = 0; at < call->shard && r == ncclSuccess; at += most)
        r = run(call, (struct piece){.at = at, .bytes = call->shard - at < most ? call->shard - at : most});
    return r;
}

static ncclResult_t run_plain(const struct slr_call *call, struct piece piece)
{
    return run_piece(call, NULL, NULL, piece);
}

static ncclResult_t by_ring(const struct slr_call *call, bool entered)
{
    CUevent before = NULL;
    slr_solo_note(slr_stream_name(call->stream, false));
    if (entered)
        return run_pieces(call, run_plain);
    if (slr_comm_answer(call->comm) != ncclSuccess)
        return slr_comm_answer(call->comm);
    const struct slr_product *p = slr_scatter_take(call, most_of(call) == call->shard, &before);
    if (p) {
        atomic_fetch_add(&slr_counters.scatters_fused, 1);
        return run_piece(call, p, before, (struct piece){.bytes = call->shard});
    }
    const ncclResult_t r = slr_gather_entry(call->comm, call->stream, call->from);
    return r == ncclSuccess ? run_pieces(call, run_plain) : r;
}

/* ---- inside by NCCL ---- */

/* A group of NCCL's. */
static ncclResult_t ended(ncclResult_t r)
{
    const ncclResult_t of_group = slr_real.ncclGroupEnd();
    return r == ncclSuccess ? of_group : r;
}

/* Each rank of the host gets its part of the sums for another host, or this one, on the rail's stream. */
static ncclResult_t reduce_step(const struct slr_call *call, int step, struct piece piece)
{
    const struct slr_hosts *h = call->comm->hosts;
    const char *send = of_host(call, slr_hosts_to_step(h, step)) + piece.at;
    void *recv = step == 0 ? (char *)call->recv + piece.at : (void *)(uintptr_t)slr_hosts_sum_at(h, step);
    ncclResult_t r = slr_real.ncclGroupStart();
    for (int root = 0; root < h->per && r == ncclSuccess; root++)
        r = slr_real.ncclReduce(send + (size_t)root * call->shard, recv, piece.bytes / slr_type_bytes(call->type),
                                call->type, op_inside(call), root, h->inside, (cudaStream_t)h->stream);
    r = ended(r);
    if (r != ncclSuccess)
        return r;
    return SLR_CU(cuEventRecord, h->summed[step], h->stream) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t reduce_piece(const struct slr_call *call, struct piece piece)
{
    struct slr_hosts *h = call->comm->hosts;
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return slr_hosts_failed(call->comm, ncclUnhandledCudaError);
    ncclResult_t r = slr_hosts_sums_begin(h, h->stream) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
    for (int i = 1; i <= h->hosts && r == ncclSuccess; i++)
        r = reduce_step(call, i % h->hosts, piece);
    r = r == ncclSuccess ? add_hosts(call, piece) : slr_hosts_failed(call->comm, r);
    slr_shared_leave();
    return r;
}

static ncclResult_t by_nccl(const struct slr_call *call, bool entered)
{
    (void)entered;
    return run_pieces(call, reduce_piece);
}

/* ---- all-reduces ---- */

static void *of_shard(const void *buffer, const struct slr_call *call, int shard, struct piece piece)
{
    return (char *)buffer + (size_t)shard * call->shard + piece.at;
}

/* Under the lane's lock: NCCL has connected the rail when it was made, and waits for nothing of this lane's. */
static enum slr_status complete(void *of, CUstream pull, CUdeviceptr at, size_t bytes)
{
    const struct slr_call *call = of;
    const size_t count = bytes / slr_type_bytes(call->type);
    return slr_hosts_sum_all(call->comm->hosts, pull, at, count, call->type, call->op) == ncclSuccess ? SLR_OK
                                                                                                      : SLR_PEER;
}

static enum slr_status reduce_put(struct slr_call *call, struct piece piece)
{
    struct slr_comm *c = call->comm;
    struct slr_scatter_part part[SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    struct slr_scatter s = describe(call, piece, call->send);
    s.all = (CUdeviceptr)(uintptr_t)call->recv + piece.at;
    s.recv = s.all + (size_t)c->rank * call->shard;
    s.complete = complete;
    s.of = call;
    slr_pending_join(c->lane, SLR_R_JOIN_NEXT_GATHER, call->flow->kind->function);
    s.part = part;
    s.parts = slr_scatter_plain(c, &s.plan, s.length, part);
    if (piece.at > 0)
        slr_gather_number(call);
    return slr_scatter_run(call, &s, NULL, NULL);
}

static ncclResult_t reduce_ring(const struct slr_call *call, struct piece piece)
{
    struct slr_comm *c = call->comm;
    struct slr_call x = *call;
    enum slr_status s = slr_shared_enter(&c->shared);
    if (s != SLR_OK)
        return slr_scatter_outcome(call, s);
    slr_lane_lock(c->lane);
    s = reduce_put(&x, piece);
    slr_lane_unlock(c->lane);
    slr_shared_leave();
    return slr_scatter_outcome(call, s);
}

static ncclResult_t all_by_ring(const struct slr_call *call, bool entered)
{
    (void)entered;
    slr_solo_note(slr_stream_name(call->stream, false));
    return run_pieces(call, reduce_ring);
}

/* Inside by NCCL: the own shard's sum, completed in the parts in which a host with a ring does it, and given to all. */
static ncclResult_t reduce_by_nccl(const struct slr_call *call, struct piece piece)
{
    struct slr_comm *c = call->comm;
    struct slr_hosts *h = c->hosts;
    const size_t elem = slr_type_bytes(call->type);
    const cudaStream_t stream = (cudaStream_t)h->stream;
    const CUdeviceptr own = slr_hosts_sum_at(h, 1);
    const struct slr_plan plan = slr_scatter_plan(piece.bytes);
    struct slr_scatter_part part[SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    size_t length[SLR_MAX_RANKS];
    for (int i = 0; i < c->nranks; i++)
        length[i] = length_of(call, i, piece);
    const unsigned parts = slr_scatter_plain(c, &plan, length, part);
    ncclResult_t r = slr_real.ncclGroupStart();
    for (int root = 0; root < c->nranks && r == ncclSuccess; root++)
        if (length[root])
            r = slr_real.ncclReduce(of_shard(call->send, call, root, piece), (void *)(uintptr_t)own,
                                    length[root] / elem, call->type, call->op, root, h->inside, stream);
    r = ended(r);
    for (unsigned i = 0; i < parts && r == ncclSuccess; i++)
        if (part[i].shard == c->rank)
            r = slr_rail_add(h, own + part[i].at, part[i].bytes / elem, call->type, call->op);
    if (r != ncclSuccess)
        return r;
    r = slr_real.ncclGroupStart();
    for (int root = 0; root < c->nranks && r == ncclSuccess; root++)
        if (length[root])
            r = slr_real.ncclBroadcast((const void *)(uintptr_t)own, of_shard(call->recv, call, root, piece),
                                       length[root] / elem, call->type, root, h->inside, stream);
    return ended(r);
}

static ncclResult_t reduce_without_ring(const struct slr_call *call, struct piece piece)
{
    struct slr_hosts *h = call->comm->hosts;
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return slr_hosts_failed(call->comm, ncclUnhandledCudaError);
    ncclResult_t r = slr_hosts_sums_begin(h, h->stream) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
    if (r == ncclSuccess)
        r = reduce_by_nccl(call, piece);
    if (r == ncclSuccess)
        r = slr_hosts_behind(call, h->unused[h->half]);
    slr_shared_leave();
    return r == ncclSuccess ? r : slr_hosts_failed(call->comm, r);
}

static ncclResult_t all_by_nccl(const struct slr_call *call, bool entered)
{
    (void)entered;
    return run_pieces(call, reduce_without_ring);
}

/* ---- the calls ---- */

static const struct slr_flow flow_ring = {.kind = &slr_collectives[SLR_REDUCE_SCATTER], .ring = by_ring};
static const struct slr_flow flow_nccl = {
    .kind = &slr_collectives[SLR_REDUCE_SCATTER], .enter = slr_hosts_enter_call, .ring = by_nccl};

static const struct slr_flow reduce_flow = {
    .kind = &slr_collectives[SLR_ALL_REDUCE], .enter = slr_hosts_enter_call, .ring = all_by_ring};
static const struct slr_flow reduce_flow_nccl = {
    .kind = &slr_collectives[SLR_ALL_REDUCE], .enter = slr_hosts_enter_call, .ring = all_by_nccl};

static struct slr_call of_inside(const struct slr_call *call, struct slr_comm *inside)
{
    struct slr_call x = *call;
    x.comm = inside;
    x.nccl = inside->hosts->inside;
    x.why = SLR_R_RING;
    x.turn.site = -1;
    return x;
}

struct slr_call slr_scatter_of_hosts(const struct slr_call *call, struct slr_comm *inside, bool ring)
{
    struct slr_call x = of_inside(call, inside);
    const bool all = call->flow->kind->gets_all;
    atomic_store(&inside->adds, true);
    if (all) /* shards of its ranks */
        x.shard = (call->bytes + (size_t)inside->nranks * GRAIN - 1) / ((size_t)inside->nranks * GRAIN) * GRAIN;
    x.flow = all ? (ring ? &reduce_flow : &reduce_flow_nccl) : ring ? &flow_ring : &flow_nccl;
    return x;
}

/* A reduce-scatter's GEMM is computed in parts as long as the latest such call has gone over hosts. */
enum slr_reason slr_scatter_hosts_choose(struct slr_call *call)
{
    struct slr_comm *inside = call->flow->kind->gets_all ? NULL : slr_comm_inside(call->comm);
    if (!inside)
        return slr_hosts_way(call);
    struct slr_call x = of_inside(call, inside);
    slr_produce_learn(&x);
    call->made = x.made;
    const enum slr_reason why = slr_hosts_way(call);
    atomic_store(&inside->summing, why == SLR_R_HOSTS);
    slr_comm_put(inside);
    return why;
}
