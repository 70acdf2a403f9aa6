/* SPDX-License-Identifier: Apache-2.0 */
/* The ring: how its streams and the application's wait for each other, and the operations on words that they do. */
#include "kernels/ring_impl.h"

/* ---- before a gather ---- */

enum slr_status slr_ring_entry(struct slr_ring *ring, CUstream stream, bool behind)
{
    ring->behind |= behind;
    ring->entries++;
    /* An event that is recorded again means only its latest record, and waits that are enqueued
     * already keep the earlier one: so one event serves all streams of a group. */
    SLR_TRY(SLR_CU(cuEventRecord, ring->entry, stream));
    return SLR_CU(cuStreamWaitEvent, ring->pull, ring->entry, 0);
}

enum slr_status slr_ring_enter_behind(struct slr_ring *ring, CUevent begun, bool behind)
{
    ring->behind |= behind;
    ring->entries += 2; /* `entry` does not stand for it */
    return SLR_CU(cuStreamWaitEvent, ring->pull, begun, 0);
}

enum slr_status slr_ring_wait_entries(struct slr_ring *ring, CUstream stream)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->pull)); /* recorded anew by each gather */
    return SLR_CU(cuStreamWaitEvent, stream, ring->published, 0);
}

enum slr_status slr_ring_wait_stream(struct slr_ring *ring, CUstream from, CUstream to)
{
    ring->entries++;
    SLR_TRY(SLR_CU(cuEventRecord, ring->entry, from));
    return SLR_CU(cuStreamWaitEvent, to, ring->entry, 0);
}

enum slr_status slr_ring_in_turn(struct slr_ring *ring, CUstream before, CUstream behind)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, before));
    return SLR_CU(cuStreamWaitEvent, behind, ring->published, 0);
}

enum slr_status slr_ring_stand_behind(struct slr_ring *ring)
{
    const bool stands = ring->behind;
    ring->behind = true;
    return stands ? SLR_OK : SLR_CU(cuStreamWaitEvent, ring->pull, ring->now.finished, 0);
}

enum slr_status slr_ring_begin_streams(struct slr_ring *ring, bool publish, bool own)
{
    /* One entry behind that gather says it all: the usual case. */
    bool one = ring->behind && ring->entries == 1;
    CUevent begin = one ? ring->entry : ring->published;
    SLR_TRY(slr_ring_stand_behind(ring));
    ring->behind = false;
    ring->entries = 0;
    if (!one && (publish || own))
        SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->pull));
    if (publish)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->publish, begin, 0));
    if (own)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->own, begin, 0));
    return SLR_OK;
}

/* ---- around a graph ---- */

/* Behind a graph's gathers they are: its end waits for all readers. */
enum slr_status slr_ring_await_slots(struct slr_ring *ring, CUstream stream)
{
    struct slr_memops m;
    m.count = 0;
    if (!ring->staged)
        return SLR_OK;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), ring->staged);
    ring->staged = 0;
    SLR_TRY(slr_memops_put(ring, &m, ring->tail));
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->tail));
    return SLR_CU(cuStreamWaitEvent, stream, ring->published, 0);
}

enum slr_status slr_ring_launched(struct slr_ring *ring, CUevent behind)
{
    ring->now.carrying = ring->now.restated = false;
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, behind, 0));
    return SLR_CU(cuEventRecord, ring->now.finished, ring->tail);
}

/* ---- behind a gather ---- */

enum slr_status slr_ring_join(struct slr_ring *ring, CUstream stream)
{
    /* The carrier has waited for the gather, so it now stands for the carrier's events as well. */
    if (ring->now.carrying && !ring->now.restated)
        SLR_TRY(SLR_CU(cuEventRecord, ring->now.finished, ring->carrier));
    ring->now.restated = ring->now.carrying;
    return SLR_CU(cuStreamWaitEvent, stream, ring->now.finished, 0);
}

/* A word that nobody reads. */
enum slr_status slr_ring_stand(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWriteValue32, stream, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, ring->rank), 0,
                  CU_STREAM_WRITE_VALUE_DEFAULT);
}

/* By streams, as the event may be recorded again meanwhile for another meaning. */
CUresult slr_ring_query(const struct slr_ring *ring, bool carried, bool aside)
{
    CUresult r = slr_real.cuStreamQuery(ring->tail);
    if (r == CUDA_SUCCESS && carried)
        r = slr_real.cuStreamQuery(ring->carrier);
    return r == CUDA_SUCCESS && aside ? slr_real.cuStreamQuery(ring->aside) : r;
}

enum slr_status slr_ring_join_measured(struct slr_ring *ring, CUstream stream)
{
    slr_timing_mark(ring->now.timing, SLR_TRACK_APP, stream);
    SLR_TRY(slr_ring_join(ring, stream));
    slr_timing_did(ring->now.timing, SLR_TRACK_APP, stream, SLR_SPAN_WAIT, -1, -1, 0);
    return SLR_OK;
}

enum slr_status slr_ring_carry(struct slr_ring *ring, CUstream stream, bool again)
{
    ring->now.restated = false; /* an event is about to be recorded there */
    if (ring->now.carrying && !again)
        return SLR_OK;
    /* The carrier waits for both, so its events complete when a plain gather would have been
     * over. */
    SLR_TRY(SLR_CU(cuEventRecord, ring->before, stream));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->carrier, ring->before, 0));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->carrier, ring->now.finished, 0));
    ring->now.carrying = true;
    return SLR_OK;
}

enum slr_status slr_ring_wait_before(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWaitEvent, stream, ring->before, 0);
}

enum slr_status slr_ring_wait_own(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWaitEvent, stream, ring->now.own_copied, 0);
}

enum slr_status slr_ring_wait_staged(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWaitEvent, stream, ring->now.staged, 0);
}

enum slr_status slr_ring_wait_chunk(struct slr_ring *ring, CUstream stream, uint32_t q, int step)
{
    if (ring->now.settling)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, stream, ring->now.settling, 0));
    ring->now.early |= q + 1 < ring->now.chunks;
    CUevent copied = ring->now.once    ? slr_last_event(ring)
                     : ring->now.whole ? slr_chunk_event(ring, ring->now.chunks - 1, step)
                                       : slr_chunk_event(ring, q, step);
    return SLR_CU(cuStreamWaitEvent, stream, copied, 0);
}

/* ---- operations on words, for a stream ---- */

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
