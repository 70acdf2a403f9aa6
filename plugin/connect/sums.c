/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connect/sums.h"

#include <pthread.h>
#include "base/log.h"
#include "plugin/comm/comm.h"

#define DEVICES 64 /* that code is loaded for */

static struct loaded {
    pthread_mutex_t lock;
    CUcontext ctx;
    uint32_t resets; /* of the device, when it was loaded */
    struct slr_reduce reduce;
} loaded[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

bool slr_sums_wanted(void)
{
    return slr_get(SLR_S_REDUCE_SCATTER) != 0;
}

bool slr_sums_all_can(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (!c->shared.control->post[r].sums)
            return false;
    return true;
}

static struct loaded *of(const struct slr_comm *c)
{
    return c->shared.device >= 0 && c->shared.device < DEVICES ? &loaded[c->shared.device] : NULL;
}

bool slr_sums_load(struct slr_comm *c)
{
    struct loaded *l = of(c);
    if (!slr_sums_wanted() || !l || slr_shared_enter(&c->shared) != SLR_OK)
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
        slr_log(SLR_LOG_WARN, "sums_off", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank, slr_status_name(s),
                "reduce-scatters stay with NCCL on all ranks: the driver did not take the code that adds");
    return s == SLR_OK;
}

const struct slr_reduce *slr_sums_of(const struct slr_comm *c)
{
    return &of(c)->reduce;
}
