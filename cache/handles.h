/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that crosses processes. The IPC handle cache: each block is exported once for the process,
 * and each block of another process is imported once for each device, however many communicators
 * use it (docs/protocol.md, "Zero copy"). And what the program has given away by itself. All of the
 * cache want the communicator's context to be current, but slr_imports_forget. */
#ifndef SLR_CACHE_HANDLES_H
#define SLR_CACHE_HANDLES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

/* ---- exports ---- */

#define SLR_PIECES 240 /* mappings that a block of virtual memory has, at most: a message carries 253 descriptors */

/* How another process reaches a block. Passed on through shared memory. Virtual memory goes by file
 * descriptors, made for each process that asks: one that stays open would keep the memory from going
 * back. */
enum slr_export_kind { SLR_EXPORT_HANDLE, SLR_EXPORT_DESCRIPTORS };
struct slr_export {
    uint64_t base, size; /* base: meaning only in the owner's process */
    uint32_t kind;
    CUipcMemHandle handle; /* SLR_EXPORT_HANDLE */
};

/* False: it can not be exported (the log says why, once for each reason), or is not memory of that device: where ranks
 * share a process, an address that one of them has unmapped may be another's. One thread at a time; the caller has pinned
 * the block. */
bool slr_export_block(uint64_t generation, int device, struct slr_export *out);

bool slr_export_virtual(uint64_t generation); /* it will be by descriptors */

/* The mappings that a block of virtual memory is made of, from its beginning on. */
struct slr_pieces {
    uint32_t count;
    uint64_t bytes[SLR_PIECES];
    int fd[SLR_PIECES];
};

/* New descriptors, close-on-exec, the caller's. Refused: the block is gone, or the driver refuses.
 * Later: the program is unmapping memory. Unless made, there are none. */
enum slr_export_result { SLR_EXPORT_MADE, SLR_EXPORT_REFUSED, SLR_EXPORT_LATER };
enum slr_export_result slr_export_descriptors(uint64_t generation, struct slr_pieces *out);

void slr_pieces_close(struct slr_pieces *pieces); /* the descriptors; then there are none */

/* ---- imports, counted ----
 *
 *   FREE -> OPENING -> OPEN (count 1) <-> OPEN (count n) -> CLOSING (count 0) -> FREE
 *            | failed: FREE                                   | the driver refuses: OPEN (count 1)
 *
 * The lock is held for the table only, never while the driver is called; nobody waits for an entry
 * that another thread is opening or closing. When the table is full, the block is not mapped, and
 * its shards are staged. */
#define SLR_IMPORTS 1024

struct slr_import_key {
    uint64_t process, generation; /* the owner's, by a random number (a process id comes again); the block's there */
    CUdevice device;              /* that maps it */
};

enum slr_import_result {
    SLR_IMPORT_OK,
    SLR_IMPORT_LATER,            /* the table is full, or another thread is at it */
    SLR_IMPORT_NEEDS_DESCRIPTOR, /* not open yet, and no descriptors were given */
    SLR_IMPORT_FAILED
};

/* `pieces`: for SLR_EXPORT_DESCRIPTORS, NULL: not at hand; they stay the caller's. */
enum slr_import_result slr_import_open(const struct slr_import_key *key, const struct slr_export *e,
                                       const struct slr_pieces *pieces, CUdeviceptr *base);

/* Ends one use; the last one closes the mapping before this returns: only then may the owner be
 * told. False: the driver did not close it; the use goes on. */
bool slr_import_close(const struct slr_import_key *key);

/* The device was reset: its mappings are gone. -1: all. */
void slr_imports_forget(int device);

/* ---- memory of another device of this process ----
 *
 * A kernel that reads it without access (cuCtxEnablePeerAccess) breaks its context for good, and the driver does not
 * tell who has access. So what the program, NCCL and frameworks take is followed by hooks, between primary contexts:
 *
 *   not known --taken--> on --slr_access_use()--> used --given back--> hidden --taken--> used
 *                         +--given back--> not known            (a device is reset: not known, from all)
 *
 * What is used stays with the driver when the program gives it back, which is answered as if it had none: a rank may
 * have been told of memory for a call that it has yet to make, and a wait for that could be for ever.
 *
 * Thread-safe; the driver is called without a lock. */
typedef CUresult (*slr_access_fn)(CUcontext peer, unsigned flags);
typedef CUresult (*slr_access_end_fn)(CUcontext peer);
CUresult slr_access_take(CUcontext peer, unsigned flags, slr_access_fn driver);
CUresult slr_access_give_back(CUcontext peer, slr_access_end_fn driver);

/* Whether kernels in the current context, a primary one, may use the block, of cuMemAlloc, from now on for as long as it
 * lives. */
bool slr_access_use(uint64_t generation);

/* ---- given by the program ---- */

/* Memory that others than this process's streams may reach, and then use when they learn by ways of
 * their own how far it has come: exported to other processes, or a window of NCCL's. Told before
 * the handle is there, with the guard up. Whole allocations, for good, also when they are freed and
 * come again; of virtual memory it is not told which: then all counts. Thread-safe; looks take no
 * lock. */
void slr_memory_gives(CUdeviceptr p);
void slr_memory_gives_range(CUdeviceptr p, size_t bytes);
void slr_memory_gives_all(void);

bool slr_memory_given(CUdeviceptr p, size_t bytes);

#endif
