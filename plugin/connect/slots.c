/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank holds for a communicator, and which slots a call goes through (connect.h, Slots). That is told by its size alone, which is equal on all ranks, so nothing is
 * agreed on, and two ranks that make it at different times, or from a graph, use the same. */
#include "base/log.h"
#include "base/settings.h"
#include "kernels/scatter.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"

enum { LARGEST = SLR_SLOT_CLASSES - 1, GATHERS = LARGEST - 1 }; /* that gathers use at most */
enum { CLASS_BITS = 3 };
_Static_assert(SLR_SLOT_CLASSES <= 1 << CLASS_BITS, "a class fits");

bool slr_slots_any_given(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (c->shared.control->post[r].slots_given)
            return true;
    return false;
}

size_t slr_slots_wanted(unsigned k)
{
    return slr_get(SLR_S_SLOT_BYTES) >> 2 * (LARGEST - k);
}

static unsigned for_bytes(const struct slr_comm *c, size_t bytes, unsigned most)
{
    unsigned k = 0;
    if (c->slots_given)
        return LARGEST;
    while (k < most && slr_slots_wanted(k) < bytes)
        k++;
    return k;
}

/* As it would be with the largest slots. */
static struct slr_plan whole_plan(const struct slr_comm *c, size_t shard)
{
    const size_t most = c->slots_given ? c->lane->ring.slots[LARGEST].bytes : slr_slots_wanted(LARGEST);
    uint32_t wanted = (uint32_t)slr_get(SLR_S_CHUNKS);
    if (c->hosts && !wanted) /* as they arrive */
        wanted = (uint32_t)((shard - 1) / slr_arrival_bytes(shard, 0, false) + 1);
    return slr_plan_make(shard, c->nranks, most ? most : shard, wanted);
}

struct slr_plan slr_gather_plan(const struct slr_comm *c, size_t shard)
{
    struct slr_plan plan = whole_plan(c, shard);
    plan.slots = for_bytes(c, plan.piece, GATHERS);
    slr_plan_fit(&plan, c->lane->ring.slots[plan.slots].bytes);
    return plan;
}

unsigned slr_scatter_slots(const struct slr_comm *c, size_t shard)
{
    return for_bytes(c, slr_scatter_slot(shard, c->nranks), LARGEST);
}

size_t slr_scatter_room(const struct slr_comm *c, size_t shard)
{
    return slr_scatter_most(c->lane->ring.slots[slr_scatter_slots(c, shard)].bytes, c->nranks);
}

unsigned slr_call_slots(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (call->flow->kind->sends_all)
        return slr_scatter_slots(c, call->shard);
    /* Of the same size as the latest one. */
    const uint64_t latest = atomic_load_explicit(&c->latest_slots, memory_order_relaxed);
    if (latest >> CLASS_BITS == call->shard)
        return latest & ((1u << CLASS_BITS) - 1);
    const unsigned k = for_bytes(c, whole_plan(c, call->shard).piece, GATHERS);
    atomic_store_explicit(&c->latest_slots, (uint64_t)call->shard << CLASS_BITS | k, memory_order_relaxed);
    return k;
}

/* ---- what a rank holds: for the log, at its end ---- */

struct some {
    unsigned count;
    uint64_t bytes;
};

/* Blocks of the peer that this rank has mapped: what it has acknowledged stays as it is. */
static void add_mapped(const struct slr_comm *c, int owner, struct some *sum)
{
    const struct slr_control *control = c->shared.control;
    for (int i = 0; i < SLR_EXPORTS; i++) {
        const uint64_t ack = atomic_load(&control->post[c->rank].ack[owner][i]);
        if (!ack || (ack & (SLR_ACK_OPENING | SLR_ACK_REFUSED)))
            continue;
        sum->count++;
        sum->bytes += control->post[owner].exports[i].export.size;
    }
}

/* Those of its own that it offers. */
static struct some offered(const struct slr_comm *c)
{
    const struct slr_exported *e = c->shared.control->post[c->rank].exports;
    struct some sum = {0};
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (atomic_load(&e[i].state) != SLR_EXPORTED_EMPTY) {
            sum.count++;
            sum.bytes += e[i].export.size;
        }
    return sum;
}

uint64_t slr_connect_held(const struct slr_comm *c)
{
    uint64_t bytes = 0;
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
        bytes += atomic_load(&c->link->of[k].staging);
    return bytes;
}

void slr_connect_tell_held(const struct slr_comm *c)
{
    struct some mapped = {0};
    if (!c->shared.control || !atomic_load(&c->link->once) || !slr_log_enabled(SLR_LOG_INFO))
        return;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            add_mapped(c, r, &mapped);
    const struct some own = offered(c);
    slr_log(SLR_LOG_INFO, "held",
            "comm=%s crank=%d staging_bytes=%llu mapped=%u mapped_bytes=%llu exported=%u exported_bytes=%llu", c->name,
            c->rank, (unsigned long long)slr_connect_held(c), mapped.count, (unsigned long long)mapped.bytes, own.count,
            (unsigned long long)own.bytes);
}
