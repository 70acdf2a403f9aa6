/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that NCCL goes on making when the call has returned, because they are not blocking. docs/protocol.md,
 * 1, has the agreement itself.
 *
 *   MAKING     NCCL is at work; a thread of slipring's asks how far it is  (lifecycle/later.c)
 *   AGREEING   NCCL has made it; the ranks agree, as for a blocking one
 *   -> the list of communicators (comm.h), with the decision
 *   ENDED      the program has aborted or destroyed it meanwhile: NCCL is not asked any more, and the rank leaves
 *
 * To the program all of this is ncclInProgress. A new communicator tells how far NCCL is by its own state; one that is
 * split or shrunk from a non-blocking one by its parent's, and has no handle before.
 *
 * Ranks may mix, some blocking and some not: the barrier is NCCL's, and a rank's steps are the same. Nothing waits for
 * another rank in a call of the program's: the thread does, at most SLIPRING_AGREE_TIMEOUT, and then it is NCCL for all.
 * The thread reads *newcomm and asks NCCL only under the list's lock, under which an abort marks the entry first: so it
 * never asks for what has ended, and an abort waits for nobody. A rank that ends it in AGREEING leaves when its thread
 * sees that, whatever was decided: its peers find it gone when they connect.
 *
 * NCCL's state is not for two threads at once (the first that sees the end joins NCCL's thread). So while slipring asks
 * it the program's own questions are answered from here. */
#ifndef SLR_PLUGIN_COMM_MAKING_H
#define SLR_PLUGIN_COMM_MAKING_H

#include <stdbool.h>
#include "base/real.h"

struct slr_making {
    ncclComm_t comm;   /* NULL: not known yet */
    ncclComm_t parent; /* NULL: it tells itself */
    bool agrees, ended;
    struct slr_making *next;
};

/* The list's lock, under which NCCL is asked, and all fields are changed. */
void slr_making_lock(void);
void slr_making_unlock(void);

void slr_making_add(struct slr_making *m);
void slr_making_remove(struct slr_making *m); /* under the lock; nothing where it is not on the list */

/* The state of the communicator, or of what is being made from it, is ncclInProgress. */
bool slr_making_now(ncclComm_t comm);

/* The program ends the communicator: before the real call. */
void slr_making_end(ncclComm_t comm);

/* The program uses one that NCCL has made, and has not asked slipring whether it may: waits until the ranks have agreed.
 * NCCL itself answers for one that it has not made. */
void slr_making_await(ncclComm_t comm);

#endif
