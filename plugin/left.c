#include "plugin/left.h"

#include "plugin/comm.h"
#include "plugin/group.h"

static void differs(struct slr_comm *c, int peer, uint32_t why)
{
    slr_comm_fail(c, SLR_PEER, peer,
                  why == SLR_R_REGION ? "only some ranks make this gather in a region that leaves it to NCCL "
                                        "(slipring_region_begin): all ranks of a communicator have to, or none"
                                      : "only some ranks record this gather in a graph: all ranks of a communicator "
                                        "have to, or none; SLIPRING_ENABLE=off leaves all to NCCL");
}

void slr_left_note(struct slr_comm *c, enum slr_reason why)
{
    struct slr_post *own = &c->shared.control->post[c->rank];
    uint64_t count = atomic_fetch_add(&c->left, 1) + 1;
    atomic_store(&own->left_why, (uint32_t)why);
    atomic_store(&own->left, count << 32 | (uint32_t)(c->substituted + slr_group_recorded(c) + 1));
}

void slr_left_compare(const struct slr_call *call, int peer, uint32_t theirs)
{
    struct slr_comm *c = call->comm;
    if (theirs == call->left)
        return;
    int more = (int32_t)(theirs - call->left) > 0 ? peer : c->rank;
    differs(c, peer, atomic_load(&c->shared.control->post[more].left_why));
}

void slr_left_look(struct slr_comm *c, int peer)
{
    const struct slr_post *theirs = &c->shared.control->post[peer];
    uint64_t posted = atomic_load(&theirs->left);
    /* In this order: a call is counted after what was left before it. */
    uint32_t made = (uint32_t)atomic_load(&c->substituted), own = atomic_load(&c->left);
    if (posted != 0 && (int32_t)(made - (uint32_t)posted) >= 0 && (int32_t)((uint32_t)(posted >> 32) - own) > 0)
        differs(c, peer, atomic_load(&theirs->left_why));
}
