/* SPDX-License-Identifier: Apache-2.0 */
/* slipring's C API, for C and C++ programs that know of it. No program needs it: libslipring.so works without.
 *
 * Two ways to use it:
 *
 *   #include <slipring.h>                       linked with -lslipring, before NCCL, cuBLAS and the CUDA runtime in the
 *                                               link order (pkg-config slipring; CMake: slipring::slipring). Such a
 *                                               program is substituted without a preload.
 *
 *   #define SLIPRING_WEAK                       linked with nothing: works with slipring (preloaded) and without.
 *                                               Position-independent code only (-fPIE or -fPIC, the usual default).
 *   #include <slipring.h>
 *   if (slipring_loaded()) ...                  or the slipring_try_* functions below, which ask that themselves
 *
 * All functions may be called from any thread, at any time, also in a process that uses no CUDA: they start nothing,
 * allocate nothing, wait for nothing and write nothing. Errors are return values: 0, or a negative errno value.
 */
#ifndef SLIPRING_H
#define SLIPRING_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header. */
#define SLIPRING_VERSION_MAJOR 0
#define SLIPRING_VERSION_MINOR 2
#define SLIPRING_VERSION_PATCH 0
#define SLIPRING_VERSION_NUMBER (SLIPRING_VERSION_MAJOR * 10000 + SLIPRING_VERSION_MINOR * 100 + SLIPRING_VERSION_PATCH)

#ifdef SLIPRING_WEAK
#ifndef __PIC__ /* else the linker decides for good that slipring is not there */
#error "SLIPRING_WEAK needs position-independent code: compile with -fPIE or -fPIC"
#endif
#define SLIPRING_FUNCTION __attribute__((weak, visibility("default")))
#else
#define SLIPRING_FUNCTION __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library: as SLIPRING_VERSION_NUMBER, and in words ("0.2.0"; static storage). */
SLIPRING_FUNCTION int slipring_version(void);
SLIPRING_FUNCTION const char *slipring_version_string(void);

/* ---- counters ----
 *
 * Totals of this process since it started, over all communicators and threads; the log's "summary" line has the same
 * names. They are read one by one while others count, so they are not one snapshot. Bytes count all ranks' shards
 * together. docs/install.md says what each means. */
struct slipring_counters {
    size_t size; /* set by the caller: sizeof(struct slipring_counters). Later versions add members at the end. */
    uint64_t calls, bytes;                         /* ncclAllGather calls seen */
    uint64_t substituted, substituted_bytes;       /* those that went to the ring */
    uint64_t passed;                               /* those that went to NCCL */
    uint64_t fused, gemm_chunks;                   /* GEMMs that consumed a gather; the parts that they were made of */
    uint64_t joined;                               /* how often streams were made to wait for a gather instead */
    uint64_t staged, zero_copy, pushed;            /* shards that went to a peer in each way */
    uint64_t mapped;                               /* blocks of peers that a communicator got access to */
    uint64_t exports, imports;                     /* handles and descriptors made; blocks of other processes opened, */
    uint64_t import_hits, import_closes;           /* found open, closed */
    uint64_t verified, verify_bad;                 /* SLIPRING_VERIFY: calls compared with NCCL's; different ones */
    uint64_t sites, sites_symmetric, sites_broken; /* 0: `slipring report` finds call sites */
    uint64_t scatters;                             /* ncclReduceScatter calls */
    uint64_t scatters_substituted, scatters_fused; /* moved to the ring; with all-reduces, behind a GEMM's parts */
    uint64_t scatters_produced;                    /* GEMMs in blocks because one of either was expected */
    uint64_t reduces, reduces_substituted;         /* ncclAllReduce calls; moved to the ring */
};

/* Fills what both the program and the library know of; the rest of counters->size bytes becomes 0. -EINVAL: no
 * counters, or a size that no version has (it has not been set). */
SLIPRING_FUNCTION int slipring_counters_read(struct slipring_counters *counters);

/* ---- regions: on and off for a part of a program ----
 *
 * Between slipring_region_begin(flags) and the slipring_region_end() that belongs to it, for calls of this thread:
 *
 *   SLIPRING_REGION_GATHERS   ncclAllGather goes to NCCL (reason "region" in the log), and so do ncclReduceScatter and
 *                             ncclAllReduce. EVERY RANK of the communicator must make the same calls inside of such
 *                             regions: whether a call is substituted has to be the same on all ranks. When only some
 *                             do, the communicator fails on all ranks with a message in the log, and
 *                             ncclCommGetAsyncError says so, as soon as the difference shows: nothing hangs for ever,
 *                             and no wrong data is taken for right.
 *   SLIPRING_REGION_GEMMS     a GEMM that consumes a gathered buffer waits for the whole gather and runs whole (reason
 *                             "gemm_region"), with the results of an unsplit GEMM to the last bit. Ranks may differ.
 *
 * Regions nest up to SLIPRING_REGION_DEPTH deep and add up: an inner one switches nothing back on. Flags 0: a region
 * that changes nothing. In an ncclGroup it counts where ncclAllGather is called, not where the group ends. Threads that
 * are started inside a region are outside of it.
 *
 * begin: -EINVAL unknown flag, -ENOSPC too deep: no region was begun. end: -EPERM no region is open. */
#define SLIPRING_REGION_GATHERS 1u
#define SLIPRING_REGION_GEMMS 2u
#define SLIPRING_REGION_DEPTH 64

SLIPRING_FUNCTION int slipring_region_begin(unsigned flags);
SLIPRING_FUNCTION int slipring_region_end(void);

#ifdef SLIPRING_WEAK
/* Whether slipring is in this process. */
static inline int slipring_loaded(void)
{
    return slipring_region_begin != NULL;
}

/* As the functions above, and 0 when slipring is not there: then all gathers go to NCCL and GEMMs run whole anyway. */
static inline int slipring_try_region_begin(unsigned flags)
{
    return slipring_region_begin ? slipring_region_begin(flags) : 0;
}

static inline int slipring_try_region_end(void)
{
    return slipring_region_end ? slipring_region_end() : 0;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
