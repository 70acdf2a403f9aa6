/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/nccl_turn.h"

#include "base/cu.h"
#include "plugin/connect/connect.h"

/* The words are registered when the ranks have been connected once, and stay so. */
int slr_turn_begin(struct slr_comm *c)
{
    if (atomic_load(&c->turns_off) || !atomic_load(&c->link->checked))
        return SLR_NO_TURN;
    const unsigned at = atomic_fetch_add(&c->turns, 1) % SLR_TURNS;
    struct slr_turn *t = slr_turn(c->ring.flags, c->nranks, c->rank, at);
    uint32_t done = atomic_load(&t->done);
    return atomic_compare_exchange_strong(&t->made, &done, done + 1) ? (int)at : SLR_NO_TURN;
}

static enum slr_status write_behind(struct slr_comm *c, unsigned turn, uint32_t value, CUstream stream)
{
    const CUdeviceptr word =
        c->ring.dflags + slr_turn_offset(c->nranks, c->rank, turn) + offsetof(struct slr_turn, done);
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = SLR_CU(cuStreamWriteValue32, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    slr_shared_work_end();
    return s;
}

void slr_turn_end(struct slr_comm *c, int turn, CUstream stream, bool enqueued)
{
    if (turn == SLR_NO_TURN)
        return;
    struct slr_turn *t = slr_turn(c->ring.flags, c->nranks, c->rank, (unsigned)turn);
    const uint32_t made = atomic_load(&t->made);
    if (enqueued && write_behind(c, (unsigned)turn, made, stream) == SLR_OK)
        return;
    if (enqueued) /* it would not work for the next one either */
        atomic_store(&c->turns_off, true);
    atomic_store(&t->done, made);
}

bool slr_turns_of(struct slr_comm *c)
{
    uint32_t done;
    return slr_turns_open(c->ring.flags, c->nranks, c->rank, &done);
}
