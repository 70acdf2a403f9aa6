/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/for_replays.h"

#include "base/mix.h"
#include "plugin/gather/record_memory.h"
#include "plugin/gather/transfer.h"

/* So that nobody waits for them at each call. */
static _Atomic uint64_t *unmappable(const struct slr_call *call, uint64_t *key)
{
    *key = slr_mix((uintptr_t)call->send, (uintptr_t)call->recv);
    return &call->comm->unmappable[*key % SLR_UNMAPPABLE];
}

void slr_for_replays(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    uint64_t key;
    if (!slr_for_replays_due(c) || c->put)
        return;
    if (!c->skips && !slr_transfer_await(call, true))
        c->skips = true;
    _Atomic uint64_t *known = unmappable(call, &key);
    const struct slr_recorded_gather g = {.send = call->send, .recv = call->recv, .shard = call->shard};
    const bool mixed = atomic_load(&c->shared.control->recorded) & SLR_MIXED;
    if (atomic_load(known) != key && !slr_record_memory_await(c, &g, mixed))
        atomic_store(known, key);
}
