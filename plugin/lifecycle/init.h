/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement of a new communicator (design rule R2): the ring, for all ranks, or NCCL, for all
 * ranks. docs/protocol.md, 1, has the states, the word that decides, and each bad case.
 *
 *   begin     before the real call: take part in the bootstrap (bootstrap.h)
 *   agree     after it, for every communicator that this thread has just made, in step: bootstrap,
 *             post, judge, commit; of those that are not blocking on a thread, when NCCL is done (later.c)
 *   hosts     of those that may span hosts: make_hosts.c
 *   enlist    what has been decided is logged; calls find the communicator
 *
 * Nothing of this takes device memory: that comes with the first gather (connect.h). One thread may run
 * several ranks (ncclCommInitAll, groups): each step is taken for all of them before the next begins. */
#ifndef SLR_PLUGIN_LIFECYCLE_INIT_H
#define SLR_PLUGIN_LIFECYCLE_INIT_H

#include "base/real.h"
#include "base/status.h"
#include "plugin/bootstrap/bootstrap.h"
#include "plugin/comm/key.h"
#include "plugin/comm/making.h"
#include "plugin/hosts/hosts.h"
#include "plugin/profiler/profile.h"

struct slr_comm;
struct slr_tuner;

/* A communicator that is being made: from before the real call to the end of its agreement. */
struct slr_init {
    bool begun; /* the bootstrap has begun; false: the communicator passes with `pass` */
    enum slr_reason pass;
    struct slr_key key;
    struct slr_bootstrap bootstrap;
    ncclComm_t *out; /* where the real call puts the handle */
    bool later;      /* NCCL goes on making it when the call has returned */
    bool nonblocking;
    bool quiet; /* NCCL's call says nothing of going on */
    struct slr_making making;
    /* When NCCL has made it, what that says of it. */
    ncclComm_t nccl; /* NULL: it has not */
    int rank, nranks, device;
    struct slr_comm *comm;
    bool marked; /* with `shadow` ranks of several hosts can meet: make_hosts.c */
    ncclUniqueId shadow;
    struct slr_hosts_split split;
    struct slr_hosts *hosts; /* what they have agreed; NULL: nothing */
    bool lost;               /* they may have, and this rank does not know */
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

/* Asks NCCL about the communicator that it has made. False: it has not. */
bool slr_init_know(struct slr_init *init, ncclComm_t nccl);

/* All inits of the list have their real communicator. Blocks at most SLIPRING_AGREE_TIMEOUT. */
void slr_inits_agree(struct slr_init *list);

/* They have agreed: each is registered. */
void slr_inits_enlist(struct slr_init *list);

#endif
