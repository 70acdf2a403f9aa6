/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/passed_alone.h"

#include <pthread.h>
#include "base/status.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/group_kept.h"

/* The ranks disagree about one call. `why` is the reason that the passing rank has published. */
static void differs(struct slr_comm *c, int peer, uint32_t why)
{
    slr_comm_fail(c, SLR_PEER, peer,
                  why == SLR_R_REGION ? "only some ranks make this gather in a region that leaves it to NCCL "
                                        "(slipring_region_begin): all ranks of a communicator have to, or none"
                                      : "only some ranks run this gather from a graph: all ranks of a communicator "
                                        "have to, or none; SLIPRING_ENABLE=off leaves all to NCCL");
}

/* Modulo 2^30: so much room the count has beside this in a descriptor (control.h); it is compared by differences. */
#define UNCOUNTED (UINT32_C(1) << 30)

static int32_t more_by(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 2);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* graphs are launched by any thread */

void slr_alone_note(struct slr_comm *c, enum slr_reason why, uint32_t calls)
{
    struct slr_post *own = &c->shared.control->post[c->rank];
    pthread_mutex_lock(&lock);
    const uint32_t before = atomic_load(&c->passed_alone),
                   count = (before & UNCOUNTED) | ((before + calls) & (UNCOUNTED - 1));
    atomic_store(&c->passed_alone, count);
    /* The reason first: whoever reads the count may ask for it at once. */
    atomic_store(&own->passed_alone_why, (uint32_t)why);
    atomic_store(&own->passed_alone, (uint64_t)count << 32 | (uint32_t)(c->substituted + slr_group_kept(c) + 1));
    pthread_mutex_unlock(&lock);
}

void slr_alone_uncounted(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_or(&c->passed_alone, UNCOUNTED);
    pthread_mutex_unlock(&lock);
}

void slr_alone_compare(const struct slr_call *call, int peer, uint32_t theirs)
{
    struct slr_comm *c = call->comm;
    if (theirs == call->passed_alone || (theirs | call->passed_alone) & UNCOUNTED)
        return;
    /* The reason is that of the rank which passed more. */
    int more = more_by(theirs, call->passed_alone) > 0 ? peer : c->rank;
    differs(c, peer, atomic_load(&c->shared.control->post[more].passed_alone_why));
}

void slr_alone_look(struct slr_comm *c, int peer)
{
    const struct slr_post *theirs = &c->shared.control->post[peer];
    uint64_t published = atomic_load(&theirs->passed_alone);
    /* The number of calls is read before the count of passed ones: this rank counts what it passes
     * before it numbers the next call, so it is never accused of its own delay. */
    uint32_t made = (uint32_t)atomic_load(&c->substituted), own = atomic_load(&c->passed_alone);
    const uint32_t passed = (uint32_t)(published >> 32);
    /* It has moved the call that the peer names as its next, and passed fewer before that. */
    if (published != 0 && (int32_t)(made - (uint32_t)published) >= 0 && !((passed | own) & UNCOUNTED) &&
        more_by(passed, own) > 0)
        differs(c, peer, atomic_load(&theirs->passed_alone_why));
}
