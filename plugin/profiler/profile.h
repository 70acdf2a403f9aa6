/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler plugin (SLIPRING_PROFILE): what NCCL really ran, in the log. docs/profiling.md has the lines.
 *
 * NCCL loads the library as a plugin and calls the tables ncclProfiler_v1 ... v6 (profile_abi.c),
 * which turn every version's events into the calls of profile_impl.h.
 *
 * This header is the folder's door: what slipring's
 * own hooks add: whose call is under way on this thread, so that NCCL's lines carry slipring's name
 * of the communicator, and for an all-gather that slipring passed its number and the reason. */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_H
#define SLR_PLUGIN_PROFILER_PROFILE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct slr_watcher;

/* NCCL's profiler is called on the thread of a call that NCCL is left, inside of it: whose call it is. */
extern const struct slr_watcher slr_profile_watcher;

/* A communicator that this thread is making, or has promised to a group. */
struct slr_profile_init {
    char comm[9];
    int nranks, rank; /* -1: not known here */
    bool listed, taken;
    pthread_t thread;
    struct slr_profile_init *next;
};

/* Nothing when SLIPRING_PROFILE is off. The structure is the caller's, and stays until it is ended;
 * ending twice, or one that was never announced, is nothing. */
void slr_profile_init(struct slr_profile_init *init, const char *comm, int nranks, int rank);
void slr_profile_init_end(struct slr_profile_init *init);

/* For the plugin's init: the name of the communicator that is being made with these ranks (-1: not
 * told); false: can not be told. */
bool slr_profile_init_take(int nranks, int rank, char comm[9]);

#endif
