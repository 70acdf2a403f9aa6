/* ncclGroupStart/End: what slipring does with the calls between them.
 *
 * NCCL enqueues nothing before the outermost end; so does slipring. In a group
 *   - an all-gather that the ring takes is recorded, and enqueued after the real ncclGroupEnd has enqueued NCCL's own
 * operations;
 *   - every other call goes to NCCL at once, inside its own group;
 *   - a communicator that is being made is recorded, and agrees after the real end.
 *
 * What else the group holds never decides whether a gather is substituted: ranks may group differently (one thread for
 * several devices here, one process each there; p2p calls on some ranks only), so that would break R1. It is safe
 * because operations of one group have no order among themselves: the ring starts from the point of the stream before
 * the real end (`entry`), and NCCL's kernels do not wait for the ring, so neither can wait for the other in a circle.
 * Gathers of one communicator on several streams synchronise those streams mutually, as NCCL's do.
 *
 * Thread-local, like NCCL's own group state.
 */
#ifndef SLR_PLUGIN_GROUP_H
#define SLR_PLUGIN_GROUP_H

#include "plugin/agree.h"
#include "plugin/gather.h"
#include "plugin/registered.h"

/* True between an outermost start and its end, on this thread. */
bool slr_in_group(void);

/* How many calls of the communicator this thread's group has recorded; 0 outside of groups. */
uint64_t slr_group_recorded(const struct slr_comm *c);

/* Keeps a call for the end of the group. false: no memory; the caller reports it. */
bool slr_group_record(const struct slr_call *call);

/* Around the real call of an operation of NCCL. It comes behind the communicator's gathers (order.h); in a group its
 * stream synchronises with them. The result is returned as it is. */
void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream);
ncclResult_t slr_nccl_end(ncclComm_t comm, cudaStream_t stream, ncclResult_t r);

/* Keeps a birth (heap-allocated, taken over) for the end of the group. */
void slr_group_record_birth(struct slr_birth *b);

/* Keeps a window that NCCL makes at the end of the group. Without memory for that it is NCCL's alone. */
void slr_group_record_window(const struct slr_window *w);

#endif
