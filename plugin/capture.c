#include "plugin/capture.h"

#include "plugin/comm.h"

static const char differs[] =
    "only some ranks record this gather in a graph: all ranks of a communicator have to, or none; "
    "SLIPRING_ENABLE=off leaves all to NCCL";

void slr_capture_note(struct slr_comm *c)
{
    uint64_t count = atomic_fetch_add(&c->captured, 1) + 1;
    atomic_store(&c->shared.control->post[c->rank].captured, count << 32 | (uint32_t)(c->substituted + 1));
}

void slr_capture_compare(struct slr_comm *c, int peer, uint32_t theirs)
{
    if (theirs != atomic_load(&c->captured))
        slr_comm_fail(c, SLR_PEER, peer, differs);
}

void slr_capture_look(struct slr_comm *c, int peer)
{
    uint64_t posted = atomic_load(&c->shared.control->post[peer].captured);
    /* In this order: a call is counted after what was captured before it. */
    uint32_t made = (uint32_t)atomic_load(&c->substituted), own = atomic_load(&c->captured);
    if (posted != 0 && (int32_t)(made - (uint32_t)posted) >= 0 && (int32_t)((uint32_t)(posted >> 32) - own) > 0)
        slr_comm_fail(c, SLR_PEER, peer, differs);
}
