/* SPDX-License-Identifier: Apache-2.0 */
/* libslipring with a recorder in place of plugin/: tests see what the hooks would have joined and called. */
#ifndef TESTS_PRELOAD_RECORDER_H
#define TESTS_PRELOAD_RECORDER_H

#include <stdint.h>
#include "plugin/comm/stream.h"

struct recorded_join {
    int calls;                /* that do something which can be noticed, but for ends of events */
    struct slr_observed seen; /* the last one */
    int guard;                /* slr_guard during it */
    uint64_t event;           /* the last that ended */
    int ended;
    int unseen; /* slr_pending_events_unseen, and calls that say so */
    int frames; /* a backtrace from inside the last one */
    void *frame[32];
};

/* Exported by the recording library; looked up with dlsym(RTLD_DEFAULT, ...). Pending gathers make the stubs take their
 * slow path. */
typedef void (*slr_test_pending_t)(int gathers);
typedef struct recorded_join *(*slr_test_joins_t)(void);
typedef void (*slr_test_guard_t)(int guard);
/* From now on observed calls are answered with `result`, and not passed on; -1: passed on. */
typedef void (*slr_test_take_t)(int result);
/* The name of the last function of hooks.h that was called, "" for none, and the GEMM as it arrived. */
typedef const char *(*slr_test_hook_t)(void);

#endif
