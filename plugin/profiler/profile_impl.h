/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder profiler/ alone: profile_abi.c turns every version's events into calls of profile.c and
 * profile_record.c, which sum up in profile_sum.c. */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_IMPL_H
#define SLR_PLUGIN_PROFILER_PROFILE_IMPL_H

#include <stddef.h>
#include "base/wait.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/profiler/profile.h"

/* The profiler behind NCCL's plugin tables: one for all versions.
 *
 * An operation (a collective, or one send or receive) has a record in a pool of the process from its start until its
 * own stop and the stops of its kernel channels, in whatever order and on whatever threads these come: NCCL stops an
 * operation as soon as it is enqueued, and its proxy thread reports the channels when the GPU has come to them. A
 * handle names record and generation, not memory: one that comes late or twice hits nothing. Where the pool is full of
 * records that are still open, an operation is not recorded, and counted as lost.
 *
 * One lock for all of it, for moments: nothing is written to the log under it.
 *
 * NULL is a handle of nothing, everywhere. Times are nanoseconds; host times CLOCK_MONOTONIC. */
extern pthread_mutex_t slr_profile_lock;
extern pthread_cond_t slr_profile_written; /* a line has been */

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

/* The application's call begins, on its thread. The handle is only a parent's; stopping it is nothing. */
void *slr_profile_call(struct slr_profile *p, const char *datatype);

void *slr_profile_start(struct slr_profile *p, const struct slr_profile_op *op);
void *slr_profile_channel(void *parent, uint64_t gpu_start);
void slr_profile_channel_ended(void *channel, uint64_t gpu_stop);
void slr_profile_stop(void *handle); /* of either */

#define SLR_EXPECT_UNKNOWN 0xffffu /* more than ever come */

struct slr_profile_record {
    struct slr_profile *owner;       /* NULL: free */
    struct slr_profile_record *next; /* free one */
    uint32_t generation;
    bool own, reported;          /* its own stop has not come; its line is written, or being written */
    unsigned open, seen, expect; /* kernel channels that have started and not stopped; started; that will come */
    uint64_t first, last;        /* GPU time over all channels; UINT64_MAX and 0: none */
    uint64_t begin, end;
    uint64_t seq, count, bytes, call;
    int peer;
    uint8_t func, algo, proto, dtype, reason, channels;
};

/* ---- under the lock ---- */

/* A fresh record that has begun now, with its handle, or NULL when all that were looked at are still open. */
struct slr_profile_record *slr_oprecord_take(struct slr_profile *owner, void **handle);

/* Reports what the owner still has, complete or not; what comes for it later is ignored. */
void slr_oprecord_flush(const struct slr_profile *owner);

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

/* Whose lines they are. */
struct slr_profile_who {
    int nranks, rank;
    uint64_t hash;
    char name[9]; /* slipring's; "": not known yet */
};

struct slr_profile {
    struct slr_profile_who who;
    uint64_t lost; /* operations for which there was no record */
    struct slr_profile_sum sums[SLR_PROFILE_SUMS];
    unsigned count;
    uint64_t unsummed; /* operations of combinations beyond the table */
    unsigned writing;  /* threads that write a line of it */
    struct slr_profile *next;
};

/* The communicator gets slipring's name, if it has none yet. */
void slr_profile_bind(struct slr_profile *p, const char *comm);

/* One operation has ended: its own line if it was asked for, for which the lock is given up, and the sums. */
void slr_profile_count(const struct slr_profile_record *r);

/* The lines of the sums, once. Not under the lock. */
void slr_profile_log_sums(struct slr_profile *p);

#endif
