/* SPDX-License-Identifier: Apache-2.0 */
/* Turns that slipring has learned to expect, and then others: something comes between the GEMM and the call, or
 * something else comes than the call. What was guessed may cost time, and nothing more. */
#ifndef TESTS_SCATTER_SCATTER_WRONG_H
#define TESTS_SCATTER_SCATTER_WRONG_H

#include <pthread.h>
#include <string.h>

#include "scatter.h"

/* The elements of C that most changes reach: parts of several shards, and of the first part of a GEMM. */
#define LOW(t) ((t)->all / 7)
#define HIGH(t) ((t)->all - (t)->all / 9)
#define CHANGED(t) ((t)->c + LOW(t) * (t)->elem)
#define CHANGED_BYTES(t) ((HIGH(t) - LOW(t)) * (t)->elem)
#define FROM_SPARE(t) ((t)->spare + LOW(t) * (t)->elem)

struct other {
    const char *name;
    void (*open)(struct site *t), (*close)(struct site *t); /* around all turns; NULL: nothing */
    void (*make)(struct turn *u);                           /* instead of the GEMM */
    void (*between)(struct turn *u);
    void (*call)(struct turn *u); /* instead of the call */
    void (*after)(struct turn *u);
    void (*model)(struct turn *u, int rank); /* of what C holds before the call */
    void (*expect)(struct turn *u);          /* what is received, where it is not the usual */
    void (*model_after)(struct turn *u, int rank);
    int beta, ranks;
    int m, pad; /* of the shape, where it is not the usual one */
    enum elem type;
    bool each;                  /* every turn is so, also those from which slipring learns */
    const struct other *always; /* those from which it learns, where they are not the usual ones */
};

#define OTHER(name_, ...)                                                                                              \
    {                                                                                                                  \
        .name = name_, .list = "wrong", .body = wrong_body, .arg = &(const struct other)                               \
        {                                                                                                              \
            .name = name_, __VA_ARGS__                                                                                 \
        }                                                                                                              \
    }

/* Turns as always, and turns that are otherwise, for which `arg` is a struct other. */
void wrong_body(struct world *w, const struct scatter_case *c);
/* The same, of which the others are captured once. */
void wrong_graph_body(struct world *w, const struct scatter_case *c);

/* What is enqueued of one; all of it, by the launch of a graph that holds that, unless it is NULL. */
void other_enqueue(struct turn *u, const struct other *o);
void other_play(struct turn *u, const struct other *o, cudaGraphExec_t exec);

/* ---- what C holds ---- */
void is_zero(struct turn *u, int rank);
void is_spare(struct turn *u, int rank);
void is_all_spare(struct turn *u, int rank);
void is_added(struct turn *u, int rank);
void is_reduced(struct turn *u, int rank);
void is_gathered(struct turn *u, int rank);
void is_gathered_turned(struct turn *u, int rank); /* on the other communicator */

/* ---- how the host sees the end of what is on the turn's stream ---- */
void await_event(struct turn *u);
void poll_event(struct turn *u);
void poll_stream(struct turn *u);

/* The receive buffer, as it was before the call, in the scratch one: what was put there from `spare`. */
void expect_recv_read(struct turn *u);

/* ---- what changes it ---- */
void memset_c(struct turn *u);
void copy_c(struct turn *u);
void tied(struct turn *u); /* on another stream, by events */
void host_sync(struct turn *u);
void gemm_add(struct turn *u);
void gemm_again(struct turn *u);
void all_reduce(struct turn *u);
void all_gather(struct turn *u);

/* `record` as a graph that is launched, and waited for. */
void graph_of(struct turn *u, void (*record)(struct turn *u));

#endif
