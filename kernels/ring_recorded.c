/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded gathers: kept with their graphs, and given what a replay needs. */
#include "kernels/ring_record.h"

#include <stdlib.h>
#include <string.h>
#include "kernels/ring_impl.h"
#include "kernels/scatter.h"

/* ---- what is recorded ---- */

static void *copy_list(const void *list, uint32_t n, size_t size)
{
    void *copy = malloc(n ? n * size : 1);
    if (copy && n)
        memcpy(copy, list, n * size);
    return copy;
}

bool slr_recorded_copy(struct slr_recorded *to, const struct slr_recorded *from, CUgraph graph)
{
    *to = (struct slr_recorded){.ops = from->ops,
                                .nodes = from->nodes,
                                .op_room = from->ops,
                                .node_room = from->nodes,
                                .failed = from->failed,
                                .scatter = from->scatter,
                                .before = from->before,
                                .parts = from->parts,
                                .op = copy_list(from->op, from->ops, sizeof *from->op),
                                .node = copy_list(from->node, from->nodes, sizeof *from->node)};
    memcpy(to->kinds, from->kinds, sizeof to->kinds);
    bool whole = to->op && to->node;
    for (uint32_t i = 0; whole && i < to->nodes; i++) {
        to->node[i].other = 0;
        to->node[i].state = SLR_NODE_UNKNOWN;
        if (graph)
            whole = slr_real.cuGraphNodeFindInClone(&to->node[i].node, from->node[i].node, graph) == CUDA_SUCCESS;
    }
    if (!whole)
        slr_recorded_free(to);
    return whole;
}

void slr_recorded_free(struct slr_recorded *recorded)
{
    free(recorded->op);
    free(recorded->node);
    *recorded = (struct slr_recorded){0};
}

/* ---- before a launch ---- */

static bool has_kind(const struct slr_recorded *recorded, int peer, CUdeviceptr place, enum slr_memory kind)
{
    return !place || recorded->kinds[peer] >> kind & 1;
}

bool slr_recorded_fits(const struct slr_recorded *recorded, const struct slr_route *route, int rank, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        if (r == rank)
            continue;
        if (!has_kind(recorded, r, route[r].from, route[r].from_kind) ||
            !has_kind(recorded, r, route[r].to, route[r].to_kind))
            return false;
    }
    return true;
}

static bool stages(const struct slr_route *route, int rank, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (r != rank && route[r].delivery == SLR_BY_SLOT)
            return true;
    return false;
}

/* As give_copy() turns the copies on. Nobody is corrected by a wait alone. */
bool slr_recorded_runs(const struct slr_timed_span *span, const struct slr_route *route, int rank, int nranks)
{
    if (span->kind == SLR_SPAN_STAGE)
        return stages(route, rank, nranks);
    if (span->track == SLR_TRACK_PUBLISH)
        return route[span->peer].delivery == SLR_CORRECTED;
    return span->kind != SLR_SPAN_PULL ||
           (span->staged ? route[span->peer].source == SLR_FROM_SLOT : route[span->peer].from != 0);
}

/* Of a gather whose last piece is `last`; `before`: the last one of the gather before it, which all
 * words have reached. */
static void set_op(const struct slr_recorded_op *op, bool parts, const struct slr_route *route, uint32_t last,
                   uint32_t before, CUstreamBatchMemOpParams *to)
{
    const struct slr_route *way = route ? &route[op->peer] : NULL;
    const uint32_t upto = before + op->at;
    struct slr_memops m;
    m.count = 0;
    switch ((enum slr_recorded_role)op->role) {
    case SLR_RECORDED_OFFER:
        slr_memops_write64(
            &m, op->word,
            slr_ready_value(way->delivery == SLR_BY_SLOT ? upto : last, way->delivery == SLR_AS_EXPECTED));
        break;
    case SLR_RECORDED_CORRECT: /* where there was nothing to correct it says nothing else */
        slr_memops_write64(&m, op->word, slr_ready_value(last, way->delivery != SLR_ZERO_COPY));
        break;
    case SLR_RECORDED_MEET:
        slr_memops_wait64(&m, op->word, slr_ready_value(way->source == SLR_FROM_SLOT ? upto : last, 0));
        break;
    case SLR_RECORDED_SETTLED:
        slr_memops_wait64(&m, op->word, slr_ready_value(last, way->source == SLR_FROM_EXPECTED));
        break;
    case SLR_RECORDED_EARLY:
        slr_memops_wait64(&m, op->word,
                          parts ? slr_ready_value(last, way->source == SLR_FROM_EXPECTED) : slr_ready_value(before, 0));
        break;
    case SLR_RECORDED_DONE: /* nobody else looks at less than all */
        slr_memops_write(&m, op->word, op->at ? upto : last);
        break;
    case SLR_RECORDED_FREED:
        slr_memops_wait(&m, op->word, way->delivery == SLR_BY_SLOT ? upto : before);
        break;
    case SLR_RECORDED_COPIED:
        slr_memops_wait(&m, op->word, way->delivery == SLR_CORRECTED ? last : before);
        break;
    case SLR_RECORDED_READ:
        slr_memops_wait(&m, op->word, last);
        break;
    case SLR_RECORDED_UNBROKEN:
        slr_memops_wait_zero(&m, op->word);
        break;
    case SLR_RECORDED_SAYS:
        slr_memops_write(&m, op->word, upto);
        break;
    case SLR_RECORDED_AWAITS:
        slr_memops_wait(&m, op->word, upto);
        break;
    case SLR_RECORDED_SAYS_READY:
        slr_memops_write64(&m, op->word, slr_ready_value(upto, 0));
        break;
    case SLR_RECORDED_AWAITS_READY:
        slr_memops_wait64(&m, op->word, slr_ready_value(upto, 0));
        break;
    }
    *to = m.op[0];
}

static enum slr_status give_words(CUgraphExec exec, const struct slr_recorded *r, const struct slr_recorded_node *node,
                                  const struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    CUstreamBatchMemOpParams op[4 * SLR_MAX_RANKS];
    for (uint32_t i = 0; i < node->ops; i++)
        set_op(&r->op[node->first + i], r->parts, g->route, last, last - g->plan.pieces, &op[i]);
    const CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = ring->ctx, .count = node->ops, .paramArray = op};
    return SLR_CU(cuGraphExecBatchMemOpNodeSetParams, exec, node->node, &params);
}

/* As the driver itself describes a captured copy: another type of memory it refuses. */
static enum slr_status give_ends(CUgraphExec exec, const struct slr_recorded_node *node, const struct slr_ring *ring,
                                 CUdeviceptr other)
{
    const CUdeviceptr own = node->own + node->at;
    const bool takes = slr_recorded_takes(node->way);
    if (node->kind == SLR_MEMORY_NEAR)
        return slr_copy_set(ring->code, exec, node->node, takes ? own : other, takes ? other : own, node->bytes);
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = takes ? other : own,
                                .dstDevice = takes ? own : other,
                                .WidthInBytes = node->bytes,
                                .Height = 1,
                                .Depth = 1};
    return SLR_CU(cuGraphExecMemcpyNodeSetParams, exec, node->node, &copy, ring->ctx);
}

/* The other end of the copy; 0: it is off. `last`: the number of the call's last piece. */
static CUdeviceptr other_end(const struct slr_recorded_node *node, const struct slr_ring *ring,
                             const struct slr_gather *g, uint32_t last)
{
    const uint32_t seq = last - g->plan.pieces + 1 + node->piece;
    const struct slr_route *way = &g->route[node->peer];
    switch (node->way) {
    case SLR_NODE_PULLS:
        return way->from && way->from_kind == node->kind ? way->from + node->at : 0;
    case SLR_NODE_CORRECTS:
        return way->delivery == SLR_CORRECTED && way->to_kind == node->kind ? way->to + node->at : 0;
    case SLR_NODE_UNSTAGES:
        return way->source == SLR_FROM_SLOT ? slr_recorded_slot(ring, node, seq) : 0;
    case SLR_NODE_STAGES:
    case SLR_NODE_TWINS:
        return stages(g->route, ring->rank, ring->nranks) ? slr_recorded_slot(ring, node, seq) : 0;
    }
    return 0;
}

static enum slr_status give_copy(CUgraphExec exec, struct slr_recorded_node *node, const struct slr_ring *ring,
                                 const struct slr_gather *g, uint32_t last)
{
    const CUdeviceptr other = other_end(node, ring, g, last);
    const bool off = other == 0;
    if (!off && node->other != other) {
        SLR_TRY(give_ends(exec, node, ring, other));
        node->other = other;
    }
    if (node->state == (off ? SLR_NODE_OFF : SLR_NODE_ON))
        return SLR_OK;
    SLR_TRY(SLR_CU(cuGraphNodeSetEnabled, exec, node->node, !off));
    node->state = off ? SLR_NODE_OFF : SLR_NODE_ON;
    return SLR_OK;
}

enum slr_status slr_recorded_give(CUgraphExec exec, struct slr_recorded *recorded, struct slr_ring *ring,
                                  const struct slr_gather *g, uint32_t last)
{
    for (uint32_t i = 0; i < recorded->nodes; i++) {
        struct slr_recorded_node *node = &recorded->node[i];
        SLR_TRY(node->ops ? give_words(exec, recorded, node, ring, g, last) : give_copy(exec, node, ring, g, last));
    }
    return SLR_OK;
}
