/* SPDX-License-Identifier: Apache-2.0 */
/* The IPC handle cache: each block is exported once for the process, and each block of another
 * process is imported once for each device, however many communicators use it.
 *
 * Exports. A handle is remembered with its block, so it lives as long as the block's generation
 * does. Memory of the virtual memory management is exported by file descriptor, one for each
 * process that asks; a descriptor that stays open would keep the memory from going back when the
 * application gives it up.
 *
 * Imports. An import is known by {process, generation, device}: the owner's process by a random
 * number (a process id comes again), the block by its generation in that process, and the device of
 * this process that maps it. It is counted:
 *
 *   FREE -> OPENING -> OPEN (count 1) <-> OPEN (count n) -> CLOSING (count 0) -> FREE
 *            | failed: FREE                                   | the driver refuses: OPEN (count 1)
 *
 * Who lets go of the last use closes the mapping before slr_import_close returns, and only then may
 * say so to the owner: an owner that has seen all of its communicators' acknowledgements go may
 * free the block.
 *
 * The lock is held for the table only, never while the driver is called: opening and closing may
 * wait for the device. Who meets an entry that another thread is opening or closing comes again
 * later (SLR_IMPORT_LATER); nobody waits. The table is fixed: when it is full, the block is not
 * mapped, and its shards are staged.
 *
 * All functions but slr_imports_forget want the communicator's context to be current.
 */
#ifndef SLR_CACHE_HANDLES_H
#define SLR_CACHE_HANDLES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

/* How another process reaches a block. Passed on through shared memory. */
enum slr_export_kind { SLR_EXPORT_HANDLE, SLR_EXPORT_DESCRIPTOR };
struct slr_export {
    uint64_t base, size; /* base: meaning only in the owner's process */
    uint32_t kind;
    CUipcMemHandle handle; /* SLR_EXPORT_HANDLE */
};

/* False: it can not be exported (the log says why, once for each reason). One thread at a time; the
 * caller has pinned the block. */
bool slr_export_block(uint64_t generation, struct slr_export *out);

/* It will be by a descriptor. */
bool slr_export_virtual(uint64_t generation);

/* A new descriptor, close-on-exec, that the caller closes. Refused: the block is gone, or the
 * driver refuses. Later: the program is unmapping memory just now (retain.h). */
enum { SLR_EXPORT_REFUSED = -1, SLR_EXPORT_LATER = -2 };
int slr_export_descriptor(uint64_t generation);

struct slr_import_key {
    uint64_t process, generation;
    CUdevice device; /* that maps it */
};

enum slr_import_result {
    SLR_IMPORT_OK,
    SLR_IMPORT_LATER, /* the table is full, or another thread is at it */
    SLR_IMPORT_NEEDS_DESCRIPTOR /* not open yet, and no descriptor was given */,
    SLR_IMPORT_FAILED
};

#define SLR_IMPORTS 1024

/* `descriptor`: for SLR_EXPORT_DESCRIPTOR, or -1; stays the caller's. */
enum slr_import_result slr_import_open(const struct slr_import_key *key, const struct slr_export *e, int descriptor,
                                       CUdeviceptr *base);

/* Ends one use. False: it was the last one, and the driver did not close the mapping: the use goes
 * on. */
bool slr_import_close(const struct slr_import_key *key);

/* The device was reset: its mappings are gone. -1: all. */
void slr_imports_forget(int device);

#endif
