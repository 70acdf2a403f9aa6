/* SPDX-License-Identifier: Apache-2.0 */
/* What the ring needs before it moves anything. */
#include <stdlib.h>
#include "base/status.h"
#include "kernels/ring_impl.h"

/* ---- how a gather is cut ---- */

#define PIECE_ALIGN 512u            /* whole sectors; a multiple of every element size */
#define PIECE_MIN ((size_t)8 << 20) /* smaller pieces are not worth a step of their own */
#define STEPS_WANTED 8              /* ranks x pieces that give a GEMM enough to overlap with */

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* With many ranks the shards themselves are fine enough; with few, each shard is cut further
 * (nvFuser #3606). */
static size_t pieces_chosen(size_t shard, int nranks)
{
    size_t by_steps = ceil_div(STEPS_WANTED, (size_t)nranks);
    size_t by_size = shard / PIECE_MIN;
    size_t pieces = by_steps < by_size ? by_steps : by_size;
    return pieces ? pieces : 1;
}

/* Each piece is a copy for every peer, and a kernel of NCCL's: the fewer, the less is between them; the more, the less comes
 * behind the last arrival. Modelled with adapters of 25 and 50 GB/s (bench/modelled_node --hosts), not measured. */
#define ARRIVAL_MIN ((size_t)16 << 20)
#define ARRIVALS_WANTED 4
#define SMALL 4 /* as many times more */

size_t slr_arrival_bytes(size_t shard, uint32_t wanted, bool small)
{
    const size_t finer = small ? SMALL : 1, by_size = shard / (ARRIVAL_MIN / finer);
    const size_t chosen = by_size < finer * ARRIVALS_WANTED ? by_size : finer * ARRIVALS_WANTED;
    const size_t pieces = wanted ? wanted : chosen ? chosen : 1;
    return ceil_div(ceil_div(shard, pieces), PIECE_ALIGN) * PIECE_ALIGN;
}

struct slr_plan slr_plan_make(size_t shard, int nranks, size_t most, uint32_t wanted)
{
    struct slr_plan plan = {.shard = shard};
    size_t pieces = wanted ? wanted : pieces_chosen(shard, nranks);
    size_t piece = ceil_div(shard, pieces);
    piece = ceil_div(piece, PIECE_ALIGN) * PIECE_ALIGN;
    if (piece > most)
        piece = most;
    plan.piece = piece < shard ? piece : shard;
    plan.pieces = (uint32_t)ceil_div(shard, plan.piece);
    /* More pieces than events: several pieces share one, and are one chunk. */
    uint32_t events = plan.pieces * (uint32_t)(nranks > 1 ? nranks - 1 : 1);
    plan.group = (uint32_t)ceil_div(events, SLR_MAX_CHUNK_EVENTS);
    plan.chunks = (uint32_t)ceil_div(plan.pieces, plan.group);
    return plan;
}

void slr_plan_cut(struct slr_plan *plan, int nranks, size_t piece)
{
    const unsigned slots = plan->slots;
    *plan = slr_plan_make(plan->shard, nranks, piece, (uint32_t)ceil_div(plan->shard, piece));
    plan->slots = slots;
}

/* A piece passes through a slot whole. */
void slr_plan_fit(struct slr_plan *plan, size_t slot)
{
    const size_t cuts = ceil_div(plan->piece, slot);
    if (cuts == 1)
        return;
    plan->piece = ceil_div(ceil_div(plan->piece, cuts), PIECE_ALIGN) * PIECE_ALIGN;
    plan->pieces = (uint32_t)ceil_div(plan->shard, plan->piece);
    plan->group *= (uint32_t)cuts;
    plan->chunks = (uint32_t)ceil_div(plan->pieces, plan->group);
}

/* ---- streams and events ---- */

static enum slr_status open_arrival(struct slr_arrival *a)
{
    if (!a->owned)
        SLR_TRY(SLR_CU(cuEventCreate, &a->owned, CU_EVENT_DISABLE_TIMING));
    if (!a->staged)
        SLR_TRY(SLR_CU(cuEventCreate, &a->staged, CU_EVENT_DISABLE_TIMING));
    if (!a->settled)
        SLR_TRY(SLR_CU(cuEventCreate, &a->settled, CU_EVENT_DISABLE_TIMING));
    return a->finished ? SLR_OK : SLR_CU(cuEventCreate, &a->finished, CU_EVENT_DISABLE_TIMING);
}

static enum slr_status create_objects(struct slr_ring *ring)
{
    int least = 0, greatest = 0;
    SLR_TRY(SLR_CU(cuCtxGetStreamPriorityRange, &least, &greatest));
    /* Non-blocking: the legacy default stream must not wait for a peer. Urgent: their operations
     * are short and others wait for them. */
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &ring->publish, CU_STREAM_NON_BLOCKING, greatest));
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &ring->pull, CU_STREAM_NON_BLOCKING, greatest));
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &ring->carrier, CU_STREAM_NON_BLOCKING, greatest));
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &ring->tail, CU_STREAM_NON_BLOCKING, greatest));
    /* Its copy is long and nobody waits for it but the end of the gather. */
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &ring->own, CU_STREAM_NON_BLOCKING, least));
    SLR_TRY(SLR_CU(cuEventCreate, &ring->entry, CU_EVENT_DISABLE_TIMING));
    SLR_TRY(SLR_CU(cuEventCreate, &ring->published, CU_EVENT_DISABLE_TIMING));
    SLR_TRY(SLR_CU(cuEventCreate, &ring->before, CU_EVENT_DISABLE_TIMING));
    return open_arrival(&ring->now);
}

static void destroy_event(CUevent *ev)
{
    if (*ev)
        slr_real.cuEventDestroy(*ev);
    *ev = NULL;
}

static void destroy_stream(CUstream *s)
{
    if (*s)
        slr_real.cuStreamDestroy(*s);
    *s = NULL;
}

static void close_arrival(struct slr_arrival *a)
{
    destroy_event(&a->owned);
    destroy_event(&a->staged);
    destroy_event(&a->settled);
    destroy_event(&a->finished);
    for (uint32_t i = 0; i < a->chunk_events; i++)
        destroy_event(&a->chunk_event[i]);
    free(a->chunk_event);
    a->chunk_event = NULL;
    a->chunk_events = 0;
}

static void destroy_objects(struct slr_ring *ring)
{
    destroy_stream(&ring->publish);
    destroy_stream(&ring->pull);
    destroy_stream(&ring->carrier);
    destroy_stream(&ring->tail);
    destroy_stream(&ring->own);
    destroy_stream(&ring->visitor);
    if (ring->scratch)
        slr_real.cuMemFreeAsync(ring->scratch, ring->aside);
    ring->scratch = ring->scratch_bytes = 0;
    destroy_stream(&ring->aside);
    destroy_event(&ring->entry);
    destroy_event(&ring->published);
    destroy_event(&ring->before);
    destroy_event(&ring->asked);
    destroy_event(&ring->apart);
    close_arrival(&ring->now);
    for (unsigned i = 0; i < SLR_TOGETHER - 1; i++)
        close_arrival(&ring->kept[i]);
}

enum slr_status slr_ring_open(struct slr_ring *ring)
{
    enum slr_status s = create_objects(ring);
    if (s != SLR_OK)
        destroy_objects(ring);
    atomic_store(&ring->opened, s == SLR_OK);
    return s;
}

enum slr_status slr_ring_open_visitor(struct slr_ring *ring)
{
    return ring->visitor ? SLR_OK : SLR_CU(cuStreamCreateWithPriority, &ring->visitor, CU_STREAM_NON_BLOCKING, 0);
}

/* ---- several gathers ---- */

void slr_ring_swap(struct slr_ring *ring, unsigned at)
{
    const struct slr_arrival latest = ring->now;
    ring->now = ring->kept[at];
    ring->kept[at] = latest;
}

enum slr_status slr_ring_keep(struct slr_ring *ring, unsigned at)
{
    SLR_TRY(slr_ring_stand_behind(ring)); /* as long as that one's event is known */
    SLR_TRY(open_arrival(&ring->kept[at]));
    slr_ring_swap(ring, at);
    return SLR_OK;
}

/* The words of a rank to itself are used by no gather. */
enum slr_status slr_ring_try(struct slr_ring *ring)
{
    struct slr_memops m;
    m.count = 0;
    slr_memops_say_ready(&m, ring, ring->rank, slr_ready_value(1, 0));
    SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    SLR_TRY(SLR_CU(cuStreamSynchronize, ring->publish));
    /* Accepted is not done: the host looks. */
    if (slr_flag_piece(ring->flags, ring->nranks, SLR_FLAG_READY, ring->rank, ring->rank) != 1)
        return SLR_CUDA;
    slr_memops_await_ready(&m, ring, ring->rank, slr_ready_value(1, 0));
    SLR_TRY(slr_memops_put(ring, &m, ring->pull));
    SLR_TRY(SLR_CU(cuStreamWaitValue32, ring->pull, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, ring->rank), 0,
                   CU_STREAM_WAIT_VALUE_GEQ));
    return SLR_CU(cuStreamSynchronize, ring->pull);
}

static void synchronize(CUstream s)
{
    if (s)
        slr_real.cuStreamSynchronize(s);
}

void slr_ring_close(struct slr_ring *ring)
{
    /* First, so that no other thread asks streams that are about to be destroyed. */
    atomic_store(&ring->opened, false);
    synchronize(ring->publish);
    synchronize(ring->pull);
    synchronize(ring->own);
    synchronize(ring->tail);
    synchronize(ring->carrier);
    synchronize(ring->visitor);
    synchronize(ring->aside);
    destroy_objects(ring);
}

/* A stream that answers with an error has nothing left that could be waited for. */
static bool idle(CUstream s)
{
    return slr_real.cuStreamQuery(s) != CUDA_ERROR_NOT_READY;
}

bool slr_ring_idle(struct slr_ring *ring)
{
    return !atomic_load(&ring->opened) ||
           (idle(ring->publish) && idle(ring->pull) && idle(ring->own) && idle(ring->tail) && idle(ring->carrier) &&
            (!ring->visitor || idle(ring->visitor)) && (!ring->aside || idle(ring->aside)));
}

bool slr_ring_sends_idle(struct slr_ring *ring)
{
    return !atomic_load(&ring->opened) || idle(ring->publish);
}
