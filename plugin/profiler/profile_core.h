/* SPDX-License-Identifier: Apache-2.0 */
/* The profiler behind NCCL's plugin tables: one for all versions.
 *
 * An operation (a collective, or one send or receive) has a record in a pool of the process from
 * its start until its own stop and the stops of its kernel channels, in whatever order and on
 * whatever threads these come: NCCL stops an operation as soon as it is enqueued, and its proxy
 * thread reports the channels when the GPU has come to them. Pool and records are used without
 * locks. A handle names record and generation, not memory: one that comes late or twice hits
 * nothing. Where the pool is full of records that are still open, an operation is not recorded, and
 * counted as lost.
 *
 * NULL is a handle of nothing, everywhere. Times are nanoseconds; host times CLOCK_MONOTONIC.
 */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_CORE_H
#define SLR_PLUGIN_PROFILER_PROFILE_CORE_H

#include <stddef.h>
#include "plugin/abi/nccl_common.h"
#include "plugin/profiler/profile.h"

/* NCCL's launch queues hold about a quarter of them for each communicator. */
#define SLR_PROFILE_RECORDS 4096
#define SLR_PROFILE_SUMS 256 /* combinations of one communicator */
#define SLR_PROFILE_NAMES 64 /* of functions, algorithms and protocols in a process */

/* A communicator as NCCL announces it. */
struct slr_profile_comm {
    int version;         /* of the plugin table */
    uint64_t hash;       /* NCCL's; 0: not told (v1 to v3) */
    int nranks, rank;    /* -1: not told (v1 to v3) */
    slr_nccl_logger log; /* NULL: none */
};

/* An operation as NCCL announces it. Names as NCCL writes them; they are copied. */
struct slr_profile_op {
    const char *func, *algo, *proto, *datatype;
    uint64_t seq; /* NCCL's number among the communicator's operations of this function */
    size_t count;
    unsigned channels; /* 0: not told */
    int peer;          /* of a send or receive; -1: a collective */
    int rank;          /* the communicator's, where init was not told (v1 to v3); else 0 */
    uint64_t hash;     /* likewise */
    void *parent;      /* handle of the application's call, or NULL */
    bool timed;        /* kernel channels with GPU time will follow */
};

struct slr_profile;

/* NULL: profiling is off. */
struct slr_profile *slr_profile_open(const struct slr_profile_comm *comm);

/* The communicator ends: writes what is left, and its sums. NULL: nothing. */
void slr_profile_close(struct slr_profile *p);

/* The application's call begins, on its thread. The handle is only a parent's; stopping it is
 * nothing. */
void *slr_profile_call(struct slr_profile *p, const char *datatype);

void *slr_profile_start(struct slr_profile *p, const struct slr_profile_op *op);
void *slr_profile_channel(void *parent, uint64_t gpu_start);
void slr_profile_channel_ended(void *channel, uint64_t gpu_stop);
void slr_profile_stop(void *handle); /* of either */

#endif
