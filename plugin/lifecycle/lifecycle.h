/* SPDX-License-Identifier: Apache-2.0 */
/* The folder lifecycle/: communicators from their making to their end, the end of the process, and
 * the two threads that work for them meanwhile. For the hooks of interpose/, and for plugin/calls/, because a
 * group makes its communicators at its end.
 *
 * Each function does what the vendor's function of the like name promises, including the call to
 * the real one, and returns its result. Vendor argument checking stays the vendor's: bad arguments
 * are passed on. Called with slr_guard == 0 by the application's thread; they raise the guard
 * around vendor calls themselves.
 */
#ifndef SLR_PLUGIN_LIFECYCLE_LIFECYCLE_H
#define SLR_PLUGIN_LIFECYCLE_LIFECYCLE_H

#include "base/real.h"

struct slr_init;

ncclResult_t slr_get_unique_id(ncclUniqueId *id);
ncclResult_t slr_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                bool with_config);
ncclResult_t slr_comm_init_rank_scalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                         ncclConfig_t *config);
ncclResult_t slr_comm_init_all(ncclComm_t *comms, int ndev, const int *devlist);
ncclResult_t slr_comm_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t slr_comm_shrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                             int flags);
ncclResult_t slr_comm_get_unique_id(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t slr_comm_grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config);
/* Those that a group has kept (comm/group_kept.h), which its real end has made, or has not: `r` is what that
 * answered. */
void slr_inits_end(struct slr_init *list, ncclResult_t r);

ncclResult_t slr_comm_finalize(ncclComm_t comm);
ncclResult_t slr_comm_destroy(ncclComm_t comm);
ncclResult_t slr_comm_abort(ncclComm_t comm);
ncclResult_t slr_comm_revoke(ncclComm_t comm, int flags);
ncclResult_t slr_comm_suspend(ncclComm_t comm, int flags);
ncclResult_t slr_comm_get_async_error(ncclComm_t comm, ncclResult_t *error);

/* The end of the process's part: called once, at unload or exit. */
void slr_plugin_at_exit(void);

/* In the child after fork: slipring is off there from now on. CUDA does not survive a fork either; but what
 * the parent shares with its peers the child still has, and its destructors may end what is the parent's.
 * The gate is left as well (interpose/gate.h), so that no call of the child's gets here. */
void slr_plugin_after_fork_child(void);

/* The driver has been made to have so many hardware queues, `to`, instead of `from`. From any thread. */
void slr_about_queues(unsigned long from, unsigned long to);

#endif
