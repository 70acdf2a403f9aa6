/* Staging memory: one device block of SLR_SLOTS slots for each communicator and rank, exported once to the peers of the
 * node.
 *
 * The block is taken with the driver's plain cuMemAlloc (the legacy CUDA IPC kind) within a budget for the whole
 * process (SLIPRING_CACHE_BYTES). Ownership: the block belongs to the rank that made it. Peers' imports must be closed
 * before it is freed: freeing an exported block that is open elsewhere is undefined behaviour in CUDA. plugin/retire.c
 * sees to that order. All functions need the communicator's context current.
 */
#ifndef SLR_CACHE_STAGING_H
#define SLR_CACHE_STAGING_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"

struct slr_staging {
    CUdeviceptr base;
    size_t slot, bytes; /* bytes = slots * slot */
};

/* Allocates `slots` slots of at most `wanted` bytes each, halving the slot down to SLR_SLOT_MIN until both the budget
 * and the device have room. SLR_NOMEM when not even that fits. */
#define SLR_SLOT_MIN ((size_t)4096)
enum slr_status slr_staging_make(struct slr_staging *s, unsigned slots, size_t wanted, uint64_t budget);

/* Frees the block and returns its bytes to the budget. Every import must be closed. */
void slr_staging_free(struct slr_staging *s);

/* Bytes that this process holds now. */
uint64_t slr_staging_held(void);

/* How a peer reaches the block: by its handle from another process, by its address in this one. */
struct slr_staging_offer {
    CUipcMemHandle handle;
    uint64_t base; /* meaning only in the owner's process */
};
enum slr_status slr_staging_offer(const struct slr_staging *s, struct slr_staging_offer *offer);

/* Maps a peer's block into this context. `same_process`: no handle may be opened (CUDA forbids opening one's own); peer
 * access from the current device to `device` is switched on instead. */
enum slr_status slr_staging_import(const struct slr_staging_offer *offer, bool same_process, CUcontext owner_ctx,
                                   CUdeviceptr *out);

/* False: the driver does not close the mapping, also when it is asked again. The owner must not free the block then. */
bool slr_staging_unimport(CUdeviceptr base, bool same_process);

#endif
