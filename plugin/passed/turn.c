/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/turn.h"

#include <stddef.h>
#include "base/status.h"
#include "kernels/flags.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/passed/in_call.h"

/* The words are registered when the ranks have been connected once, and stay so. */
static int take_word(struct slr_comm *c)
{
    if (atomic_load(&c->turns_off) || !atomic_load(&c->link->once))
        return SLR_NO_WORD;
    const unsigned at = atomic_fetch_add(&c->turns, 1) % SLR_TURNS;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, at);
    uint32_t done = atomic_load(&t->done);
    return atomic_compare_exchange_strong(&t->made, &done, done + 1) ? (int)at : SLR_NO_WORD;
}

struct slr_turn_call slr_turn_begin(struct slr_comm *c, bool follow)
{
    return (struct slr_turn_call){.entered = true,
                                  .word = follow ? take_word(c) : SLR_NO_WORD,
                                  .entry = slr_in_call_enter(follow ? c->shared.ctx : NULL, c)};
}

struct slr_turn_call slr_turn_enter(const struct slr_call *call)
{
    const bool turn = call->why == SLR_R_TRIAL;
    if (call->comm && !slr_in_group())
        return slr_turn_begin(call->comm, turn);
    if (call->comm)
        slr_group_add_turn(call->comm, slr_stream_name(call->stream, false), turn);
    return (struct slr_turn_call){.entered = false};
}

static enum slr_status write_behind(struct slr_comm *c, unsigned turn, uint32_t value, CUstream stream)
{
    const CUdeviceptr word =
        c->lane->ring.dflags + slr_turn_offset(c->nranks, c->rank, turn) + offsetof(struct slr_turn, done);
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = SLR_CU(cuStreamWriteValue32, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    slr_shared_work_end();
    return s;
}

static void end_word(struct slr_comm *c, int turn, CUstream stream, bool enqueued)
{
    if (turn == SLR_NO_WORD)
        return;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, (unsigned)turn);
    const uint32_t made = atomic_load(&t->made);
    if (enqueued && write_behind(c, (unsigned)turn, made, stream) == SLR_OK)
        return;
    if (enqueued) /* it would not work for the next one either */
        atomic_store(&c->turns_off, true);
    atomic_store(&t->done, made);
}

void slr_turn_late(struct slr_comm *c, int word, CUstream stream, bool enqueued)
{
    end_word(c, word, stream, enqueued);
}

ncclResult_t slr_turn_end(struct slr_comm *c, struct slr_turn_call call, CUstream stream, ncclResult_t r)
{
    if (r != ncclInProgress)
        end_word(c, call.word, stream, r == ncclSuccess);
    if (slr_in_call_leave(call.entry))
        return ncclSuccess;
    const ncclResult_t own = slr_comm_answer(c);
    return own != ncclSuccess ? own : ncclRemoteError; /* another one's gather held it up */
}

ncclResult_t slr_turn_leave(const struct slr_call *call, struct slr_turn_call in, ncclResult_t r)
{
    return in.entered ? slr_turn_end(call->comm, in, call->stream, r) : ncclSuccess;
}

bool slr_turns_of(struct slr_comm *c)
{
    uint32_t done;
    return slr_turns_open(c->lane->ring.flags, c->nranks, c->rank, &done);
}
