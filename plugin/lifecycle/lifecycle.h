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
#include "plugin/comm/comm.h"
#include "plugin/bootstrap/bootstrap.h"
#include "plugin/profiler/profile.h"

ncclResult_t slr_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                bool with_config);
ncclResult_t slr_comm_init_rank_scalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                         ncclConfig_t *config);
ncclResult_t slr_comm_init_all(ncclComm_t *comms, int ndev, const int *devlist);
ncclResult_t slr_comm_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t slr_comm_shrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                             int flags);
ncclResult_t slr_comm_finalize(ncclComm_t comm);
ncclResult_t slr_comm_destroy(ncclComm_t comm);
ncclResult_t slr_comm_abort(ncclComm_t comm);
ncclResult_t slr_comm_revoke(ncclComm_t comm, int flags);
ncclResult_t slr_comm_get_async_error(ncclComm_t comm, ncclResult_t *error);

/* The end of the process's part: called once, at unload or exit. */
void slr_plugin_at_exit(void);

/* In the child after fork: slipring is off there from now on. CUDA does not survive a fork either; but what
 * the parent shares with its peers the child still has, and its destructors may end what is the parent's.
 * The gate is left as well (interpose/gate_table.h), so that no call of the child's gets here. */
void slr_plugin_after_fork_child(void);

/* Where a communicator is made; writes the lines at the first one. */
void slr_about_log(void);

/* The driver has been made to have so many hardware queues, `to`, instead of `from`. From any thread. */
void slr_about_queues(unsigned long from, unsigned long to);

/* The agreement of a new communicator (design rule R2): the ring, for all ranks, or NCCL, for all
 * ranks. docs/protocol.md, 1, has the states, the word that decides, and each bad case.
 *
 *   begin     before the real call: take part in the bootstrap (bootstrap.h)
 *   finish    after it, for every communicator that this thread has just made, in step: bootstrap,
 *             post, judge, commit
 *
 * Nothing of this takes device memory: that comes with the first gather (connect.h). One thread may run
 * several ranks (ncclCommInitAll, groups): each step is taken for all of them before the next begins. */

/* A communicator that is being made: from before the real call to the end of its agreement. */
struct slr_init {
    bool begun; /* the bootstrap has begun; false: the communicator passes with `pass` */
    enum slr_reason pass;
    struct slr_key key;
    struct slr_bootstrap bootstrap;
    ncclComm_t *out; /* where the real call puts the handle */
    struct slr_comm *comm;
    uint32_t word;           /* this rank's view of the decision */
    bool expects;            /* a tuner may be made for it now (tuner_match.c) */
    struct slr_tuner *tuner; /* a reference, or NULL */
    struct slr_profile_init profile;
    struct slr_init *next; /* of the same thread and group */
};

void slr_init_begin(struct slr_init *init, const struct slr_key *key, ncclComm_t *out);

/* The real call failed or the communicator does not exist: peers see this rank leave. Also after
 * the end. */
void slr_init_cancel(struct slr_init *init);

/* All inits of the list have their real communicator; agrees and registers each. Blocks at most
 * SLIPRING_AGREE_TIMEOUT. */
void slr_inits_finish(struct slr_init *list);

#endif
