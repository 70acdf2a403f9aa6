/* SPDX-License-Identifier: Apache-2.0 */
/* The ring: operations on words, and who is at which step. */
#include "kernels/ring_impl.h"

static CUstreamBatchMemOpParams *next_op(struct slr_memops *m)
{
    CUstreamBatchMemOpParams *op = &m->op[m->count++];
    *op = (CUstreamBatchMemOpParams){0};
    return op;
}

void slr_memops_write(struct slr_memops *m, CUdeviceptr word, uint32_t value)
{
    CUstreamBatchMemOpParams *op = next_op(m);
    op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op->writeValue.address = word;
    op->writeValue.value = value;
    /* The default orders the stream's earlier copies before the word, for the whole system. */
    op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void add_wait(struct slr_memops *m, CUdeviceptr word, uint32_t value, unsigned flags)
{
    CUstreamBatchMemOpParams *op = next_op(m);
    op->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op->waitValue.address = word;
    op->waitValue.value = value;
    op->waitValue.flags = flags;
}

void slr_memops_wait(struct slr_memops *m, CUdeviceptr word, uint32_t value)
{
    add_wait(m, word, value, CU_STREAM_WAIT_VALUE_GEQ);
}

void slr_memops_wait_zero(struct slr_memops *m, CUdeviceptr word)
{
    add_wait(m, word, 0, CU_STREAM_WAIT_VALUE_EQ);
}

void slr_memops_write64(struct slr_memops *m, CUdeviceptr word, uint64_t value)
{
    CUstreamBatchMemOpParams *op = next_op(m);
    op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op->writeValue.address = word;
    op->writeValue.value64 = value;
    op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

void slr_memops_wait64(struct slr_memops *m, CUdeviceptr word, uint64_t value)
{
    CUstreamBatchMemOpParams *op = next_op(m);
    op->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    op->waitValue.address = word;
    op->waitValue.value64 = value;
    op->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

void slr_memops_say_ready(struct slr_memops *m, const struct slr_ring *ring, int peer, uint64_t value)
{
    slr_memops_write64(m, slr_dflag(ring, SLR_FLAG_READY, ring->rank, peer), value);
}

void slr_memops_await_ready(struct slr_memops *m, const struct slr_ring *ring, int peer, uint64_t value)
{
    slr_memops_wait64(m, slr_dflag(ring, SLR_FLAG_READY, peer, ring->rank), value);
}

enum slr_status slr_memops_put(struct slr_ring *ring, struct slr_memops *m, CUstream stream)
{
    unsigned count = m->count;
    m->count = 0;
    if (!count)
        return SLR_OK;
    SLR_TRY(SLR_CU(cuStreamBatchMemOp, stream, count, m->op, 0));
    if (ring->recorded)
        slr_record_words(ring, stream, m->op, count);
    return SLR_OK;
}

unsigned slr_ring_deliveries(const struct slr_ring *ring, const struct slr_gather *g)
{
    unsigned ways = 0;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            ways |= 1u << slr_delivery_to(g, peer);
    return ways;
}
