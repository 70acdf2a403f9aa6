/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's sums, its lines in the log, and the names in them. */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_SUM_H
#define SLR_PLUGIN_PROFILER_PROFILE_SUM_H

#include "plugin/profiler/profile_record.h"

/* A name as a small number that stays in the process: 0 is "?", for NULL and when there are too
 * many. Names are cut to 23 characters. */
unsigned slr_profile_name_id(const char *name);
const char *slr_profile_name(unsigned id);

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
