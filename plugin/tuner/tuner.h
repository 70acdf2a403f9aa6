/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner that NCCL loads from this library: one for each communicator and rank. All versions of
 * NCCL's interface (plugin/abi/tuner.h) come down to this one.
 *
 * The folder is NCCL's tuner plugin and the measuring for its tables. This header is its door, with
 * tune_table.h (also for the tool).
 *
 * A tuner answers only when it is certain that all ranks answer alike, because NCCL hangs otherwise:
 *
 *   WAITING  The process's communicators are made through slipring's hooks, and this one has not
 *            agreed yet (tuner_match.c): NCCL's defaults. A communicator that slipring can not
 *            match with its tuner stays so.
 *   ON       The ranks agreed on tables and settings. Or nobody can compare, and the user has to:
 *            there is no slipring between the program and NCCL (only the environment named the
 *            plugin), or there are several hosts.
 *   OFF      They differ, or a rank of this host has no tuner: NCCL's defaults.
 *
 * What it answers: while the program is explored, the candidate whose turn it is; else what the table says.
 *
 * Thread-safe. NCCL calls one tuner from one thread at a time, but not always from the same. */
#ifndef SLR_PLUGIN_TUNER_TUNER_H
#define SLR_PLUGIN_TUNER_TUNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "plugin/abi/nccl_common.h"

struct slr_comm;
struct slr_tune_rule;
struct slr_tune_site;
struct slr_tune_table;

/* Calls that took part so far: [collective][size class][registered]. */
struct slr_explore {
    uint32_t calls[SLR_NCCL_TUNED_FUNCS][64][2];
};

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

/* NULL: no memory. `hooked`: NCCL's calls come through slipring in this process. `log` may be NULL. */
struct slr_tuner *slr_tuner_new(int version, uint64_t comm_hash, size_t nranks, size_t nnodes, bool hooked,
                                slr_nccl_logger log);

void slr_tuner_put(struct slr_tuner *tuner); /* NULL: nothing */

/* Sets the cost table's chosen entry to 0 as well, where there is one. */
void slr_tuner_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, struct slr_tuner_choice *choice);

/* This thread is in ncclGroupSimulateEnd, which asks about calls that are not made. */
extern _Thread_local bool slr_tuner_simulating __attribute__((tls_model("initial-exec")));

/* ---- the tuners that NCCL makes while communicators are being made, until it is known whose they are ---- */

/* A communicator-making hook was called: NCCL's calls come through slipring in this process. */
void slr_tuner_hook_called(void);
bool slr_tuner_hooked(void);

/* This thread begins to make a communicator: the next tuner that is made on it goes to *slot, with
 * a reference, until the call has returned. Ends with slr_tuner_forget, in whatever way and on any thread. */
void slr_tuner_expect(struct slr_tuner **slot);
void slr_tuner_returned(struct slr_tuner **slot);
void slr_tuner_forget(struct slr_tuner **slot);

/* NCCL has made a tuner. */
void slr_tuner_made(struct slr_tuner *tuner);

/* Whether it has made any in this process. */
bool slr_tuner_any(void);

/* Those that were made on threads of NCCL's, chained by `next`, a reference each; they become the caller's. NULL when
 * more communicators than `own` are being made in this process: whose they are can not be told yet. */
struct slr_tuner *slr_tuner_take_alone(unsigned own);

/* ---- explore.c: measuring for `slipring tune` (SLIPRING_TUNE_EXPLORE) ---- */

/* The candidate of the next call; notes it for slr_explore_end on this thread. Under the tuner's
 * lock. `rule`: the table's for this call, or NULL. False: nothing is to be tried (any more). */
bool slr_explore_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, const struct slr_tune_rule *rule,
                        struct slr_tuner_choice *choice);

/* NCCL can not do what the candidate wants: the call is none of the candidate's, and not measured. */
void slr_explore_drop(void);

/* Around the real call of a collective on `stream`. The result is returned as it is. */
void slr_explore_begin(const struct slr_comm *c, CUstream stream);
ncclResult_t slr_explore_end(ncclResult_t result);

/* Logs what has been measured and is over. */
void slr_explore_drain(void);

/* ---- tune_file.c: SLIPRING_TUNE_FILE in this process: what tuners decide by, read once, at the first tuner; what call
 * sites know; and what is kept in it ---- */

struct slr_tune_state {
    const struct slr_tune_table *table; /* empty: none, or broken */
    const char *path;                   /* as the setting gives it */
    unsigned samples;                   /* of each candidate; 0: nothing is explored */
    /* Stands for all this: equal on ranks that decide alike. 0: nothing to decide, as without a tuner. */
    uint64_t word;
};

const struct slr_tune_state *slr_tune_state(void);

/* The file as it is now, to be freed by the caller, and its name. False: there is none, or it is
 * broken, which the log says once. */
bool slr_tune_read(struct slr_tune_table *table);
const char *slr_tune_path(void);

/* ---- what call sites have found by trying, if SLIPRING_TUNE_KEEP says so ----
 *
 * Written by the house-keeping thread within seconds, and at the end of the process, never by a thread that makes calls
 * (tune_impl.h: how). What can not be written is one warning, and then nothing more is tried. */

/* To be written; instead of what is to be written for the same conditions. */
void slr_tune_keep(const struct slr_tune_site *rule);

/* The house-keeping thread's tick. */
void slr_tune_keep_tick(void);

/* The process ends; the threads have stopped. */
void slr_tune_keep_end(void);

#endif
