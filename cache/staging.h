/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory: SLR_SLOTS slots for each communicator and rank, which its peers on the host read
 * from. A rank that has only one kind of peers makes only that kind of memory:
 *
 *   far    for ranks of other processes: plain cuMemAlloc memory, exported by a legacy CUDA IPC handle
 *   near   for ranks of the same process: cuMemCreate memory, mapped once with access for the devices of all of them
 *
 * Why: CUDA ties a queued copy to the context of another device of the process when it knows the
 * memory on one side as that context's, which it does for cuMemAlloc memory and for explicit peer
 * copies. Then the other device's thread can not synchronise, free or load a kernel before that
 * copy has run, and the copy waits for what this thread has yet to enqueue. Memory of cuMemCreate
 * ties nothing, nor does an import, nor do kernels. So between ranks of one process no copy of an engine may touch
 * another device's cuMemAlloc memory, or be a Peer call (rule R9); a kernel may (handles.h: slr_access_use).
 *
 * The memory belongs to the rank that made it, and counts towards a budget of the process
 * (SLIPRING_CACHE_BYTES). Peers must have closed their imports, and completed their copies, before
 * it is freed: plugin/memory/deferred_free.c. All functions need the communicator's context
 * current. */
#ifndef SLR_CACHE_STAGING_H
#define SLR_CACHE_STAGING_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct slr_staging {
    CUdeviceptr far, near;        /* 0: not that kind */
    size_t far_bytes, near_bytes; /* at least the wanted number of slots */
    size_t slot;
};

static inline size_t slr_staging_bytes(const struct slr_staging *s)
{
    return s->far_bytes + s->near_bytes;
}

struct slr_staging_want {
    unsigned slots;
    size_t slot; /* bytes of one at most, within the budget */
    uint64_t budget;
    bool far;               /* other processes are to read it */
    unsigned near;          /* devices that are to read it in this process, the owner's among them and first; 0: none */
    const CUdevice *device; /* [near] */
};

/* Halves the slot down to SLR_SLOT_MIN until both the budget and the device have room; SLR_NOMEM
 * when not even that fits, SLR_ABSENT when the driver has no memory that the near devices can
 * share. */
#define SLR_SLOT_MIN ((size_t)4096)
enum slr_status slr_staging_make(struct slr_staging *s, const struct slr_staging_want *want);

/* Returns its bytes to the budget. Every import must be closed. */
void slr_staging_free(struct slr_staging *s);

/* The device was reset, and the memory went with it: only the budget is put right. */
void slr_staging_forget(struct slr_staging *s);

uint64_t slr_staging_held(void); /* bytes that this process holds now */

/* How a peer reaches the slots: by handle from another process, by address in this one. */
struct slr_staging_export {
    CUipcMemHandle handle;
    uint64_t near; /* meaning only in the owner's process */
};
enum slr_status slr_staging_export(const struct slr_staging *s, struct slr_staging_export *offer);

/* A peer's slots as this device sees them. `same_process`: nothing has to be opened. */
enum slr_status slr_staging_import(const struct slr_staging_export *offer, bool same_process, CUdeviceptr *out);

/* Of another process. False: the driver does not close the mapping, also when it is asked again.
 * The owner must not free the memory then. */
bool slr_staging_close(CUdeviceptr base);

#endif
