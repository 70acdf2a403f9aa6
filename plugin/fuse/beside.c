/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/fuse/beside.h"

#include "kernels/gemm_parts.h"
#include "plugin/pending/pending_state.h"

/* A gather is known by its communicator and by how many pieces that has moved. With more gathers
 * pending than there is room for, the oldest is forgotten: it counts as one that had nothing
 * beside it. */
enum { GATHERS = 8 };
struct beside {
    uint64_t comm;
    uint32_t issued;
    double flop;
};
static _Thread_local struct beside list[GATHERS];
static _Thread_local unsigned latest;

static struct beside *find(const struct slr_comm *c)
{
    const uint32_t issued = atomic_load(&c->ring.issued);
    for (unsigned i = 0; i < GATHERS; i++)
        if (list[i].comm == slr_comm_id(c) && list[i].issued == issued)
            return &list[i];
    return NULL;
}

struct noted {
    CUcontext ctx;
    double flop;
};

/* For every pending gather: it never matches. */
static bool add(struct slr_comm *c, void *noted)
{
    const struct noted *n = noted;
    if (c->shared.ctx != n->ctx)
        return false;
    struct beside *b = find(c);
    if (!b) {
        b = &list[latest++ % GATHERS];
        *b = (struct beside){.comm = slr_comm_id(c), .issued = atomic_load(&c->ring.issued)};
    }
    b->flop += n->flop;
    return false;
}

void slr_beside_note(struct slr_gemm *gemm, CUcontext ctx)
{
    if (atomic_load(&slr_gate_word) == 0)
        return;
    if (gemm->lt && gemm->m == 0)
        slr_gemm_describe(gemm);
    struct noted n = {.ctx = ctx, .flop = slr_parts_flop(gemm)};
    slr_pending_find(add, &n);
}

double slr_beside(const struct slr_comm *c)
{
    const struct beside *b = find(c);
    return b ? b->flop : 0;
}
