/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of records of operations (profile_core.h), and the life of one record.
 *
 * Its state is one word, changed by compare-and-swap only: the generation, and
 *
 *   used       taken; its fields are the taker's until it gives the handle away
 *   own        its own stop has not come
 *   open       kernel channels that have started and not stopped
 *   seen       kernel channels that have started
 *   reported   somebody writes it into the sums, or has: only who sets this does so
 *   told       that is over
 *
 * It is free again when it is told, and neither own nor open.
 */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_RECORD_H
#define SLR_PLUGIN_PROFILER_PROFILE_RECORD_H

#include <stdatomic.h>
#include "base/wait.h"
#include "plugin/profiler/profile_core.h"

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

#endif
