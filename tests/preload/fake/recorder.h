/* SPDX-License-Identifier: Apache-2.0 */
/* libslipring with a recorder in place of plugin/: tests see what the hooks would have joined and called. */
#ifndef TESTS_PRELOAD_RECORDER_H
#define TESTS_PRELOAD_RECORDER_H

#include <stdint.h>

struct recorded_join {
    int calls;      /* since slr_test_reset */
    int all;        /* the last one: slr_pending_join_all */
    int per_thread; /* the last one's arguments */
    int why;
    int guard; /* slr_guard during the call */
    uint64_t stream;
    uint64_t event; /* of records and waits, and the event that ended */
    unsigned flags;
    int ended;       /* slr_pending_event_end */
    int unseen;      /* slr_pending_events_unseen */
    uint64_t memory; /* slr_pending_free */
    char who[64];
    int frames; /* a backtrace from inside the join */
    void *frame[32];
};

/* Exported by the recording library; looked up with dlsym(RTLD_DEFAULT, ...). Pending gathers make the stubs take their
 * slow path. */
typedef void (*slr_test_pending_t)(int gathers);
typedef struct recorded_join *(*slr_test_joins_t)(void);
typedef void (*slr_test_guard_t)(int guard);
/* From now on records of events and waits for them are answered with `result`, and not passed on; -1: passed on. */
typedef void (*slr_test_take_t)(int result);
typedef void (*slr_test_captures_t)(int by); /* so many more streams capture */
/* The name of the last function of hooks.h that was called, "" for none, and the GEMM as it arrived. */
typedef const char *(*slr_test_hook_t)(void);

#endif
