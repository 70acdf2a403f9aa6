/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers while they are recorded.
 *
 * A change holds for launches behind it; those that run, or wait, keep what they had (CUDA). It
 * costs 0.1 to 0.3 us for a node, and nothing at the launch (docs/measurements.md). Of a copy's two
 * ends the context may not change (CUDA), nor the kind of memory. As seen with driver 580, any memory
 * of cuMemAlloc may become any other, also an import; memory of cuMemCreate may only become other
 * such memory of the same device, to which the same devices have access. So while it is recorded other
 * memory stands in for what is not known yet: the peer's slot, and virtual memory. There is a copy for
 * each kind, of which a replay turns one on; that of a kernel may get any memory.
 *
 * Why no order that the driver gives to nodes can make ranks wait for each other. It sees no order that
 * words make, and may put a graph's nodes into one queue. But the nodes with words stand in one chain of
 * edges, the same on all ranks: meet, turns, done, end; and each writes before it waits, for what the
 * peers' node at that place, or an earlier one, has written. The nodes between them wait for nobody.
 * One node stands beside the chain: where a GEMM runs in parts these wait early for a shard that was
 * read from an expected place to be right (SLR_RECORDED_EARLY). It is satisfied by the peers' meet, but
 * where the place was wrong; a driver that then had the rest of the graph wait behind it would hold up
 * the peers. Where no GEMM is in parts it waits for nothing. */
#include "kernels/ring_record.h"

#include <stdlib.h>
#include "kernels/ring_impl.h"
#include "kernels/scatter.h"
#include "kernels/timing.h"

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
    CUgraphNode node = slr_capture_node(stream);
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
static bool role_of(const struct slr_ring *ring, const CUstreamBatchMemOpParams *op, int peer,
                    enum slr_recorded_role *role)
{
    const CUdeviceptr word = op->waitValue.address; /* at the same place for all operations */
    const bool writes =
        op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const bool all = ring->recorded->reach == 0, ends = ring->recorded->ends;
    if (is_word(ring, word, SLR_FLAG_READY, ring->rank, peer) && writes)
        *role = all ? SLR_RECORDED_CORRECT : SLR_RECORDED_OFFER;
    else if (is_word(ring, word, SLR_FLAG_READY, peer, ring->rank) && !writes)
        *role = !all ? SLR_RECORDED_MEET : ends ? SLR_RECORDED_SETTLED : SLR_RECORDED_EARLY;
    else if (is_word(ring, word, SLR_FLAG_DONE, peer, ring->rank) && writes)
        *role = SLR_RECORDED_DONE;
    else if (is_word(ring, word, SLR_FLAG_DONE, ring->rank, peer) && !writes)
        *role = !all ? SLR_RECORDED_FREED : ends ? SLR_RECORDED_READ : SLR_RECORDED_COPIED;
    else if (is_word(ring, word, SLR_FLAG_BROKEN, peer, ring->rank) && !writes)
        *role = SLR_RECORDED_UNBROKEN;
    else
        return false;
    return true;
}

/* Of a reduce-scatter. */
static struct slr_recorded_op counted(const CUstreamBatchMemOpParams *op, uint32_t before)
{
    struct slr_recorded_op out = {.word = op->waitValue.address};
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        out.role = SLR_RECORDED_SAYS;
        out.at = op->writeValue.value - before;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        out.role = SLR_RECORDED_SAYS_READY;
        out.at = (uint32_t)(op->writeValue.value64 >> 32) - before;
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        out.role = SLR_RECORDED_AWAITS_READY;
        out.at = (uint32_t)(op->waitValue.value64 >> 32) - before;
        break;
    default: /* a wait for 32 bits */
        out.role = op->waitValue.flags == CU_STREAM_WAIT_VALUE_EQ ? SLR_RECORDED_UNBROKEN : SLR_RECORDED_AWAITS;
        out.at = op->waitValue.value - before;
        break;
    }
    return out;
}

static void add_op(struct slr_ring *ring, const CUstreamBatchMemOpParams *op)
{
    struct slr_recorded *r = ring->recorded;
    enum slr_recorded_role role;
    if (r->scatter && grow((void **)&r->op, r->ops, &r->op_room, sizeof *r->op)) {
        r->op[r->ops++] = counted(op, r->before);
        return;
    }
    for (int peer = 0; peer < ring->nranks && !r->scatter; peer++)
        if (peer != ring->rank && role_of(ring, op, peer, &role) &&
            grow((void **)&r->op, r->ops, &r->op_room, sizeof *r->op)) {
            r->op[r->ops++] = (struct slr_recorded_op){
                .role = (uint16_t)role, .peer = (uint16_t)peer, .at = r->reach, .word = op->waitValue.address};
            return;
        }
    r->failed = true;
}

void slr_record_words(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, unsigned count)
{
    const uint32_t first = ring->recorded->ops;
    struct slr_recorded_node *node = add_node(ring->recorded, stream);
    for (unsigned i = 0; i < count; i++)
        add_op(ring, &op[i]);
    if (node) {
        node->first = first;
        node->ops = ring->recorded->ops - first;
    }
}

/* Of `some` bytes for now. */
static enum slr_status add_copy(struct slr_ring *ring, CUstream stream, const struct slr_recorded_node *copy,
                                CUdeviceptr other, size_t some)
{
    const CUdeviceptr own = copy->own + copy->at;
    const bool takes = slr_recorded_takes(copy->way);
    const CUdeviceptr to = takes ? own : other, from = takes ? other : own;
    SLR_TRY(slr_ring_copy(ring, stream, copy->kind == SLR_MEMORY_NEAR, to, from, some));
    struct slr_recorded_node *node = add_node(ring->recorded, stream);
    if (!node)
        return SLR_NOMEM;
    const CUgraphNode handle = node->node;
    *node = *copy;
    node->node = handle;
    return SLR_OK;
}

static enum slr_status add_stand_in(struct slr_ring *ring, CUstream stream, const struct slr_recorded_node *copy)
{
    struct slr_recorded *r = ring->recorded;
    const CUdeviceptr stand_in = r->stand_ins->at[copy->kind][copy->peer];
    if (!stand_in)
        return SLR_OK;
    r->kinds[copy->peer] |= (uint8_t)(1u << copy->kind);
    return add_copy(ring, stream, copy, stand_in,
                    copy->bytes < r->stand_ins->bytes ? copy->bytes : r->stand_ins->bytes);
}

enum slr_status slr_record_copy(struct slr_ring *ring, CUstream stream, int peer, enum slr_recorded_way way,
                                CUdeviceptr own, size_t at, size_t bytes)
{
    struct slr_recorded_node copy = {.peer = peer, .way = way, .own = own, .at = at, .bytes = bytes};
    for (copy.kind = SLR_MEMORY_PLAIN; copy.kind < SLR_MEMORIES; copy.kind++)
        SLR_TRY(add_stand_in(ring, stream, &copy));
    return SLR_OK;
}

enum slr_status slr_record_slot_copy(struct slr_ring *ring, CUstream stream, const struct slr_recorded_node *copy)
{
    return add_copy(ring, stream, copy, slr_recorded_slot(ring, copy, copy->piece + 1), copy->bytes);
}

/* A peer may be wrong about any shard, and this rank about any peer's. */
void slr_record_routes(const struct slr_ring *ring, struct slr_route *route)
{
    for (int peer = 0; peer < ring->nranks; peer++)
        route[peer] = (struct slr_route){.source = SLR_FROM_EXPECTED, .delivery = SLR_CORRECTED};
}
