/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder profiler/ alone: profile_abi.c turns every version's events into calls of profile_record.c, which sums up in
 * profile_sum.c. */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_IMPL_H
#define SLR_PLUGIN_PROFILER_PROFILE_IMPL_H

#include <stdatomic.h>
#include <stddef.h>
#include "base/wait.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/profiler/profile.h"

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
    const char *func, *algo, *proto;
    unsigned type; /* slr_profile_type_id() */
    uint64_t seq;  /* NCCL's number among the communicator's operations of this function */
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

#define SLR_EXPECT_UNKNOWN 0xffffu

struct slr_profile_record {
    _Atomic uint64_t word;
    struct slr_profile *_Atomic owner; /* NULL while free */
    _Atomic uint64_t first, last;      /* GPU time over all channels; UINT64_MAX and 0: none */
    uint64_t begin;
    _Atomic uint64_t end;
    uint64_t seq, count, bytes, call;
    int peer;
    _Atomic uint16_t expect; /* kernel channels that will come */
    uint8_t func, algo, proto, dtype, reason, channels;
};

/* A fresh record with its handle, or NULL when all that were tried are still open. `report` is for
 * records that are taken from operations whose kernel channels never came. */
typedef void (*slr_profile_report)(struct slr_profile_record *r, unsigned channels_seen);
struct slr_profile_record *slr_oprecord_take(void **handle, slr_profile_report report);

/* Everything is filled in: from here on it can end. */
void slr_oprecord_ready(struct slr_profile_record *r, struct slr_profile *owner);

/* Stops of the operation or one of its channels; report is called by whoever makes it complete. */
void slr_oprecord_stop(void *handle, slr_profile_report report);
void *slr_oprecord_channel(void *parent, uint64_t gpu_start);
void slr_oprecord_channel_ended(void *channel, uint64_t gpu_stop);

/* Reports what the owner still has, complete or not; what comes for it later is ignored. */
void slr_oprecord_flush(const struct slr_profile *owner, slr_profile_report report);

/* A communicator's sums, its lines in the log, and the names in them. */

/* A name as a small number that stays in the process: 0 is "?", for NULL and when there are too
 * many. Names are cut to 23 characters. */
unsigned slr_profile_name_id(const char *name);

/* NCCL's name of a data type ("ncclBfloat16") as nccl.h's number plus one; 0: none of them. */
unsigned slr_profile_type_id(const char *nccl_name);

struct slr_profile_sum {
    uint64_t key, bytes;   /* what is summed: record's names, channels and reason in one word */
    uint64_t calls, timed; /* of these with GPU time */
    uint64_t min_ns, max_ns, total_ns;
};

struct slr_profile {
    int nranks;
    _Atomic int rank;
    _Atomic uint64_t hash;
    char name[9]; /* slipring's; valid when bound == BOUND */
    _Atomic int bound;
    _Atomic uint64_t lost; /* operations for which there was no record */
    pthread_mutex_t lock;  /* the rest; taken once for each operation, when it has ended */
    struct slr_profile_sum sums[SLR_PROFILE_SUMS];
    unsigned count;
    uint64_t unsummed; /* operations of combinations beyond the table */
    struct slr_profile *next;
};

/* The communicator gets slipring's name, if it has none yet. */
void slr_profile_bind(struct slr_profile *p, const char *comm);

/* One operation has ended: its own line if it was asked for, and the sums. */
void slr_profile_count(struct slr_profile *p, struct slr_profile_record *r, unsigned channels_seen);

/* The lines of the sums, once. */
void slr_profile_log_sums(struct slr_profile *p);

#endif
