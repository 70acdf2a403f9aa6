/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler plugin (SLIPRING_PROFILE): what NCCL really ran, in the log.
 *
 *   line       when                               for
 *   nccl_sum   a communicator or the process      each combination of function, bytes, type,
 *              ends                               algorithm, protocol, channels and reason: calls
 *                                                 and GPU time
 *   nccl       an operation has ended             each operation that SLIPRING_TRACE selects
 *
 * NCCL loads the library as a plugin and calls the tables ncclProfiler_v1 ... v6 (profile_abi.c),
 * which turn every version's events into the calls of profile_impl.h.
 *
 * This header is the folder's door, and the others are for the folder alone. It is what slipring's
 * own hooks add: whose call is under way on this thread, so that NCCL's lines carry slipring's name
 * of the communicator, and for an all-gather that slipring passed its number and the reason. The
 * folder uses util, comm, timeline and tuner.
 *
 * How NCCL's side and slipring's are brought together:
 *
 *   Communicator   NCCL calls the plugin's init while it makes a communicator, on the calling
 *                  thread or on one of its own. A communicator that is being made through a hook is
 *                  announced (slr_profile_init). init takes the announcement of its own thread,
 *                  else the only one that fits ranks and rank. Where several fit (communicators of
 *                  the same size made in one group), or NCCL is not to be waited for
 *                  (non-blocking), the first all-gather that slipring passes on it tells. Until
 *                  then, and where nothing is hooked, the name is "?".
 *   Call           From NCCL 2.28 (v5) on, an event comes from inside the application's call, on
 *                  its thread, and the operation that NCCL makes of it names that event as its
 *                  parent. Replays of a captured graph carry the captured call's number. Before
 *                  2.28 there is no such event: an operation outside of groups begins inside the
 *                  call. Of one in a group it can not be told which call it belongs to: its call is
 *                  0 and its reason "-".
 */
#ifndef SLR_PLUGIN_PROFILER_PROFILE_H
#define SLR_PLUGIN_PROFILER_PROFILE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "plugin/comm/watch.h"

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
