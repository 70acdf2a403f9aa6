/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ring_record.h"

#include <stdlib.h>
#include <string.h>
#include "kernels/ring_impl.h"

/* ---- while it is recorded ---- */

/* The node that the stream's latest operation has become. */
static CUgraphNode latest(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *node = NULL;
    size_t n = 0;
    if (slr_real.cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &node, NULL, &n) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
        return NULL;
    return node[0];
}

/* Room for one more; false: none. */
static bool grow(void **list, uint32_t used, uint32_t *room, size_t size)
{
    if (used < *room)
        return true;
    const uint32_t want = *room ? 2 * *room : 16;
    void *larger = realloc(*list, want * size);
    if (!larger)
        return false;
    *list = larger;
    *room = want;
    return true;
}

static struct slr_recorded_node *add_node(struct slr_recorded *r, CUstream stream)
{
    CUgraphNode node = latest(stream);
    if (!node || !grow((void **)&r->node, r->nodes, &r->node_room, sizeof *r->node)) {
        r->failed = true;
        return NULL;
    }
    r->node[r->nodes] = (struct slr_recorded_node){.node = node};
    return &r->node[r->nodes++];
}

static bool is_word(const struct slr_ring *ring, CUdeviceptr word, enum slr_flag_kind kind, int owner, int reader)
{
    return word == slr_dflag(ring, kind, owner, reader);
}

/* False: the ring has no such operation in a graph. */
static bool role_of(const struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, int peer,
                    enum slr_recorded_role *role)
{
    const CUdeviceptr word = op->waitValue.address; /* at the same place for all operations */
    const bool writes =
        op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const bool publishes = stream == ring->publish;
    if (is_word(ring, word, SLR_FLAG_READY, ring->rank, peer) && writes)
        *role = publishes ? SLR_RECORDED_CORRECT : SLR_RECORDED_OFFER;
    else if (is_word(ring, word, SLR_FLAG_READY, peer, ring->rank) && !writes)
        *role = stream == ring->pull ? SLR_RECORDED_MEET : SLR_RECORDED_SETTLED;
    else if (is_word(ring, word, SLR_FLAG_DONE, peer, ring->rank) && writes)
        *role = SLR_RECORDED_DONE;
    else if (is_word(ring, word, SLR_FLAG_DONE, ring->rank, peer) && !writes)
        *role = publishes ? SLR_RECORDED_COPIED : SLR_RECORDED_READ;
    else if (is_word(ring, word, SLR_FLAG_BROKEN, peer, ring->rank) && !writes)
        *role = SLR_RECORDED_UNBROKEN;
    else
        return false;
    return true;
}

static void add_op(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op)
{
    struct slr_recorded *r = ring->recorded;
    enum slr_recorded_role role;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank && role_of(ring, stream, op, peer, &role) &&
            grow((void **)&r->op, r->ops, &r->op_room, sizeof *r->op)) {
            r->op[r->ops++] =
                (struct slr_recorded_op){.role = (uint16_t)role, .peer = (uint16_t)peer, .word = op->waitValue.address};
            return;
        }
    r->failed = true;
}

void slr_record_words(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, unsigned count)
{
    const uint32_t first = ring->recorded->ops;
    struct slr_recorded_node *node = add_node(ring->recorded, stream);
    for (unsigned i = 0; i < count; i++)
        add_op(ring, stream, &op[i]);
    if (node) {
        node->first = first;
        node->ops = ring->recorded->ops - first;
    }
}

enum slr_status slr_record_copy(struct slr_ring *ring, CUstream stream, int peer, bool corrects, CUdeviceptr own,
                                size_t at, size_t bytes, CUdeviceptr stand_in)
{
    const size_t some = bytes < ring->recorded->stand_in ? bytes : ring->recorded->stand_in;
    SLR_TRY(SLR_CU(cuMemcpyAsync, corrects ? stand_in : own + at, corrects ? own + at : stand_in, some, stream));
    struct slr_recorded_node *node = add_node(ring->recorded, stream);
    if (!node)
        return SLR_NOMEM;
    node->peer = peer;
    node->corrects = corrects;
    node->own = own;
    node->at = at;
    node->bytes = bytes;
    return SLR_OK;
}

/* A peer may be wrong about any shard, and this rank about any peer's. */
void slr_record_routes(const struct slr_ring *ring, const CUdeviceptr *stand_in, struct slr_route *route)
{
    for (int peer = 0; peer < ring->nranks; peer++)
        route[peer] = (struct slr_route){
            .source = SLR_FROM_EXPECTED, .delivery = SLR_CORRECTED, .from = stand_in[peer], .to = stand_in[peer]};
}

/* ---- what is recorded ---- */

static void *copy_of(const void *list, uint32_t n, size_t size)
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
                                .op = copy_of(from->op, from->ops, sizeof *from->op),
                                .node = copy_of(from->node, from->nodes, sizeof *from->node)};
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

bool slr_recorded_fits(const struct slr_route *route, int rank, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        if (r == rank)
            continue;
        if (route[r].source != SLR_FROM_PLACE && route[r].source != SLR_FROM_EXPECTED)
            return false;
        if (route[r].delivery != SLR_ZERO_COPY && route[r].delivery != SLR_AS_EXPECTED &&
            route[r].delivery != SLR_CORRECTED)
            return false;
    }
    return true;
}

/* Of a gather whose last piece is `last`; `before`: the last one of the gather before it, which all
 * words have reached. */
static void set_op(const struct slr_recorded_op *op, const struct slr_route *route, uint32_t last, uint32_t before,
                   CUstreamBatchMemOpParams *to)
{
    const struct slr_route *way = &route[op->peer];
    struct slr_memops m;
    m.count = 0;
    switch ((enum slr_recorded_role)op->role) {
    case SLR_RECORDED_OFFER:
        slr_memops_write64(&m, op->word, slr_ready_value(last, way->delivery == SLR_AS_EXPECTED));
        break;
    case SLR_RECORDED_CORRECT: /* where there was nothing to correct it says nothing else */
        slr_memops_write64(&m, op->word, slr_ready_value(last, way->delivery != SLR_ZERO_COPY));
        break;
    case SLR_RECORDED_MEET:
        slr_memops_wait64(&m, op->word, slr_ready_value(last, 0));
        break;
    case SLR_RECORDED_SETTLED:
        slr_memops_wait64(&m, op->word, slr_ready_value(last, way->source == SLR_FROM_EXPECTED));
        break;
    case SLR_RECORDED_DONE:
        slr_memops_write(&m, op->word, last);
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
    }
    *to = m.op[0];
}

static enum slr_status give_words(CUgraphExec exec, const struct slr_recorded *r, const struct slr_recorded_node *node,
                                  const struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    CUstreamBatchMemOpParams op[4 * SLR_MAX_RANKS];
    for (uint32_t i = 0; i < node->ops; i++)
        set_op(&r->op[node->first + i], g->route, last, last - g->plan.pieces, &op[i]);
    const CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = ring->ctx, .count = node->ops, .paramArray = op};
    return SLR_CU(cuGraphExecBatchMemOpNodeSetParams, exec, node->node, &params);
}

/* As the driver itself describes a captured copy: another type of memory it refuses. */
static enum slr_status give_ends(CUgraphExec exec, const struct slr_recorded_node *node, const struct slr_ring *ring,
                                 CUdeviceptr other)
{
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (node->corrects ? node->own : other) + node->at,
                                .dstDevice = (node->corrects ? other : node->own) + node->at,
                                .WidthInBytes = node->bytes,
                                .Height = 1,
                                .Depth = 1};
    return SLR_CU(cuGraphExecMemcpyNodeSetParams, exec, node->node, &copy, ring->ctx);
}

static enum slr_status give_copy(CUgraphExec exec, struct slr_recorded_node *node, const struct slr_ring *ring,
                                 const struct slr_gather *g)
{
    const struct slr_route *way = &g->route[node->peer];
    const CUdeviceptr other = !node->corrects ? way->from : way->delivery == SLR_CORRECTED ? way->to : 0;
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
        SLR_TRY(node->ops ? give_words(exec, recorded, node, ring, g, last) : give_copy(exec, node, ring, g));
    }
    return SLR_OK;
}
