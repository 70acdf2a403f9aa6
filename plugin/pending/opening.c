/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pending/opening.h"

#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"

/* From the latest to the first: `before` is the number of the one that was found last. */
static bool comes_before(struct slr_comm *c, void *before)
{
    return c->pending->serial < *(const uint64_t *)before;
}

static void join_each(void)
{
    uint64_t before = UINT64_MAX;
    for (struct slr_comm *c; (c = slr_pending_find(comes_before, &before)) != NULL;) {
        before = c->pending->serial;
        if (slr_comm_lock_soon(c)) {
            slr_pending_join(c, SLR_R_JOIN_BYPASSED, "dlopen");
            slr_comm_unlock(c);
        }
        slr_comm_put(c);
    }
}

static void order_each(void)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        if (slr_comm_lock_soon(comms[i])) {
            slr_order_note(comms[i]);
            slr_comm_unlock(comms[i]);
        }
        slr_comm_put(comms[i]);
    }
}

void slr_pending_opening(void)
{
    if (slr_guard != 0)
        return;
    slr_guard++;
    join_each();
    order_each();
    slr_guard--;
}
