/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks' devices can: change graphs, add.
 *
 * Graphs: whether this rank's driver can do what captured gathers need: first whether the functions exist,
 * which the rank posts when the communicator is made; then a trial (kernels/graph_try.h), when the ranks
 * connect, as nothing is put on a device before. Once in a process for each device.
 *
 * A rank whose trial fails takes back what it has posted (`captures`) before it is MADE (connect.h). It
 * posts it never again. So whoever is connected reads of each rank what is so for good; before that, 0
 * is for good and 1 is not. All ranks come to the same: a gather is recorded only by who is connected.
 *
 * What fails is logged, once in a process, as graphs_off; nothing is tried or logged when the settings
 * leave captured gathers to NCCL anyway. */
#include <pthread.h>
#include <stdatomic.h>
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"
#include "kernels/flags.h"
#include "kernels/graph_try.h"
#include "kernels/scatter.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"

#define DEVICES 64 /* that are remembered, that code is loaded for */
/* Gathers alone are not faster than NCCL's in a graph below that many times SLIPRING_MIN_BYTES
 * (docs/measurements.md). */
#define LEAST 8

static bool wanted(void)
{
    return slr_get(SLR_S_GRAPHS) && slr_get(SLR_S_ZERO_COPY) && slr_get(SLR_S_ALLOC);
}

bool slr_graphs_may(void)
{
    return wanted() && !slr_reach_past() && !slr_graph_try_missing();
}

bool slr_graphs_all_can(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (!__atomic_load_n(&c->shared.control->post[r].captures, __ATOMIC_SEQ_CST))
            return false;
    return true;
}

bool slr_graphs_take(const struct slr_comm *c, size_t shard)
{
    return slr_get(SLR_S_GRAPHS) && slr_graphs_all_can(c) &&
           shard * (uint64_t)c->nranks / LEAST >= slr_get(SLR_S_MIN_BYTES);
}

static void told(const char *step, const char *why)
{
    static atomic_flag once = ATOMIC_FLAG_INIT;
    int version = 0;
    if (atomic_flag_test_and_set(&once))
        return;
    if (slr_real.cuDriverGetVersion)
        slr_real.cuDriverGetVersion(&version);
    slr_log(SLR_LOG_WARN, "graphs_off", "step=%s status=%s cuda=%d.%d msg=%s", step, why, version / 1000,
            version % 1000 / 10, "captured gathers stay with NCCL on all ranks: the driver can not change graphs");
}

void slr_graphs_missed(void)
{
    const char *missing = wanted() ? slr_graph_try_missing() : NULL;
    if (missing)
        told(missing, "missing");
}

/* The words: the second half of the line of ready(me, me), which is this rank's alone and of which
 * slr_ring_try uses 8 bytes. The memory: the first slot, which gets its pattern on the same stream. */
static bool try_now(struct slr_comm *c, CUdeviceptr memory)
{
    const size_t at = slr_flag_offset(c->nranks, SLR_FLAG_READY, c->rank, c->rank) + SLR_FLAG_LINE / 2;
    struct slr_graph_try t = {.ctx = c->lane->ring.ctx,
                              .stream = c->lane->ring.pull,
                              .word = (_Atomic uint64_t *)(void *)((char *)c->lane->ring.flags + at),
                              .dword = c->lane->ring.dflags + at,
                              .memory = memory};
    _Static_assert(SLR_GRAPH_TRY_WORDS * 8 <= SLR_FLAG_LINE / 2, "half a line");
    _Static_assert(SLR_GRAPH_TRY_BYTES <= SLR_SLOT_MIN, "a slot");
    const bool good = slr_graph_try_make(&t) && slr_graph_try_use(&t);
    slr_graph_try_end(&t);
    if (!good)
        told(t.step, t.why);
    return good;
}

/* Two communicators of a device that try at the same time both do. */
static bool can(struct slr_comm *c, CUdeviceptr memory)
{
    enum { UNKNOWN, YES, NO };
    static _Atomic int known[DEVICES];
    const CUdevice device = c->shared.device;
    const bool kept = device >= 0 && device < DEVICES;
    const int before = kept ? atomic_load(&known[device]) : UNKNOWN;
    if (before != UNKNOWN)
        return before == YES;
    const bool good = try_now(c, memory);
    if (kept)
        atomic_store(&known[device], good ? YES : NO);
    return good;
}

void slr_graphs_try(struct slr_comm *c, CUdeviceptr memory)
{
    slr_graphs_missed();
    if (!slr_graphs_may() || !can(c, memory))
        __atomic_store_n(&c->shared.control->post[c->rank].captures, 0, __ATOMIC_SEQ_CST);
}

/* ---- sums ----
 *
 * The device code that adds (kernels/scatter.h), for reduce-scatters and all-reduces, and that copies between ranks of
 * one process: loaded when a communicator is made, once in a process for each device. Loading may wait for all that the
 * device has been given; so may what NCCL does at that time. At the first reduce-scatter it could wait for a peer that waits for
 * this rank. */

static struct loaded {
    pthread_mutex_t lock;
    CUcontext ctx;
    uint32_t resets; /* of the device, when it was loaded */
    struct slr_reduce reduce;
} loaded[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static bool sums_wanted(void)
{
    return slr_get(SLR_S_REDUCE_SCATTER) != 0 || slr_get(SLR_S_ALL_REDUCE) != 0;
}

bool slr_sums_all_can(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (!(c->shared.control->post[r].sums & SLR_SUMS_CAN))
            return false;
    return true;
}

bool slr_sums_any_strict(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (c->shared.control->post[r].sums & SLR_SUMS_STRICT)
            return true;
    return false;
}

static struct loaded *of(const struct slr_comm *c)
{
    return c->shared.device >= 0 && c->shared.device < DEVICES ? &loaded[c->shared.device] : NULL;
}

static bool load(struct slr_comm *c)
{
    struct loaded *l = of(c);
    if (!l || slr_shared_enter(&c->shared) != SLR_OK)
        return false;
    pthread_mutex_lock(&l->lock);
    if (l->ctx != c->shared.ctx || l->resets != c->shared.resets)
        l->reduce = (struct slr_reduce){0}; /* it went with its context */
    l->ctx = c->shared.ctx;
    l->resets = c->shared.resets;
    const enum slr_status s = slr_reduce_load(&l->reduce);
    pthread_mutex_unlock(&l->lock);
    slr_shared_leave();
    if (s != SLR_OK)
        slr_log(
            SLR_LOG_WARN, "sums_off", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank, slr_status_name(s),
            "reduce-scatters and all-reduces stay with NCCL on all ranks: the driver did not take the code that adds");
    return s == SLR_OK;
}

uint32_t slr_sums_post(struct slr_comm *c)
{
    const bool wanted = sums_wanted();
    const bool can = (wanted || slr_shared_any_in_one_process(&c->shared)) && load(c);
    return (wanted && can ? SLR_SUMS_CAN : 0u) | (slr_get(SLR_S_STRICT) ? SLR_SUMS_STRICT : 0u);
}

const struct slr_reduce *slr_sums_of(const struct slr_comm *c)
{
    return &of(c)->reduce;
}

const struct slr_reduce *slr_copies_of(const struct slr_comm *c)
{
    const struct loaded *l = slr_shared_any_in_one_process(&c->shared) ? of(c) : NULL;
    return l && l->reduce.module && slr_real.cuGraphExecKernelNodeSetParams ? &l->reduce : NULL;
}
