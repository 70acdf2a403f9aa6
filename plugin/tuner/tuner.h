/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner that NCCL loads from this library: one for each communicator and rank. All versions of
 * NCCL's interface (plugin/abi/tuner.h) come down to this one.
 *
 * The folder is NCCL's tuner plugin and the measuring for its tables. This header is its door, with
 * tuner_made.h (whose tuner is it?), tune_state.h (what is tuned by?), explore.h (for hooks), and
 * tune_table.h (also for the tool). It uses the folders util and comm.
 *
 * A tuner answers only when it is certain that all ranks answer alike, because NCCL hangs
 * otherwise:
 *
 *   WAITING  The process's communicators are made through slipring's hooks, and this one has not
 *            agreed yet (tuner_match.h): NCCL's defaults. A communicator that slipring can not
 *            match with its tuner stays so.
 *   ON       The ranks agreed on tables and settings. Or nobody can compare, and the user has to:
 *            there is no slipring between the program and NCCL (only the environment named the
 *            plugin), or there are several hosts.
 *   OFF      They differ, or a rank of this host has no tuner: NCCL's defaults.
 *
 * What it answers: while the program is explored (explore.h), the candidate whose turn it is; else
 * what the table says.
 *
 * Thread-safe. NCCL calls one tuner from one thread at a time, but not always from the same. */
#ifndef SLR_PLUGIN_TUNER_TUNER_H
#define SLR_PLUGIN_TUNER_TUNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "plugin/abi/nccl_common.h"
#include "plugin/tuner/explore.h"

enum slr_tuner_state { SLR_TUNER_WAITING, SLR_TUNER_ON, SLR_TUNER_OFF };

struct slr_tuner {
    _Atomic int refs; /* NCCL's, the initialisation's */
    _Atomic int state;
    uint64_t comm_hash; /* NCCL's name of the communicator; 0 before v5 */
    size_t nranks, nnodes;
    pthread_mutex_t lock; /* the fields below */
    struct slr_explore explore;
    struct slr_tuner *next; /* in the list of those that no communicator has been found for */
};

/* What NCCL asks, and the answer: -1 and 0 leave it to NCCL. */
struct slr_tuner_ask {
    int func;
    size_t bytes; /* of the larger side */
    int pipe_ops; /* operations that are one to NCCL */
    bool registered;
    float *cost; /* [algos][protos]; NULL: v2 */
    int algos, protos;
    bool collnet, nvls; /* v2 */
};
struct slr_tuner_choice {
    int algo, proto, channels;
};

/* NULL: no memory. `hooked`: NCCL's calls come through slipring in this process. `log` may be NULL.
 */
struct slr_tuner *slr_tuner_new(int version, uint64_t comm_hash, size_t nranks, size_t nnodes, bool hooked,
                                slr_nccl_logger log);
void slr_tuner_hold(struct slr_tuner *tuner);
void slr_tuner_put(struct slr_tuner *tuner); /* NULL: nothing */

/* Sets the cost table's chosen entry to 0 as well, where there is one. */
void slr_tuner_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice);

/* This thread is in ncclGroupSimulateEnd, which asks about calls that are not made. */
extern _Thread_local bool slr_tuner_simulating __attribute__((tls_model("initial-exec")));

#endif
