/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that the application registers with NCCL (ncclCommRegister, ncclCommWindowRegister, ncclMemAlloc).
 *
 * The call always reaches NCCL with its own arguments, and its result and handle are what the application gets.
 * docs/protocol.md, 3, Zero copy: registration, says what else it does, when, for how long it waits, and why that can
 * not deadlock.
 *
 * ncclCommDestroy and ncclCommAbort end what is still registered. In a group, windows are registered at its end, as
 * NCCL does it. */
#ifndef SLR_PLUGIN_MEMORY_REGISTRATION_H
#define SLR_PLUGIN_MEMORY_REGISTRATION_H

#include <stddef.h>
#include "base/real.h"

struct slr_comm;

/* The hooks: what NCCL's functions of the like names promise, with the real call in it. */
ncclResult_t slr_comm_register(const ncclComm_t comm, void *buffer, size_t bytes, void **handle);
ncclResult_t slr_comm_deregister(const ncclComm_t comm, void *handle);
ncclResult_t slr_comm_window_register(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags);
ncclResult_t slr_comm_window_deregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t slr_mem_alloc(void **p, size_t bytes);
ncclResult_t slr_mem_free(void *p);

/* A window of a group. */
struct slr_window {
    ncclComm_t comm;
    void *buffer;
    size_t bytes;
    ncclWindow_t *out;
    struct slr_window *next;
    struct slr_comm *found; /* while they are registered; NULL: of no use */
    uint64_t generation;    /* of its block; 0: no zero copy because of this */
};

/* After NCCL has made them. */
void slr_registered_windows(struct slr_window *list);

/* Those of a group; they were allocated one by one. */
void slr_windows_free(struct slr_window *list);

/* Registered memory that is part of another block by now (cache/external.c), or has been unmapped and mapped anew:
 * what its registration gave goes on with that block. For the house-keeping thread. */
void slr_registered_follow(struct slr_comm *c);

/* The communicator ends. */
void slr_registered_end(struct slr_comm *c, uint64_t latest);

#endif
