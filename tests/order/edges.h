/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of a few driver calls, each once with the edge that orders its accesses and once without. */
#ifndef TESTS_RACE_EDGES_H
#define TESTS_RACE_EDGES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define BYTES 4096

/* What two processes share: also host memory that both register. */
struct mail {
    _Atomic int step;
    pid_t pid;
    uint32_t flag, settled[2]; /* settled: of each process */
    CUipcMemHandle memory, other;
    CUipcEventHandle event;
};

struct edge_env {
    bool edge;
    CUstream a, b;    /* non-blocking */
    CUdeviceptr x, y; /* BYTES each */
    CUevent event;
    struct mail *mail; /* registered */
    CUdeviceptr flag;  /* mail->flag as the device sees it */
    uint32_t *settled, settles;
};

struct edge_case {
    const char *name;
    void (*body)(struct edge_env *e);
    void (*peer)(struct edge_env *e); /* NULL: one process */
    const char *first, *second;       /* what the report names; NULL: fill() and look() */
};
extern const struct edge_case edges_stream[], edges_word[], edges_memory[], edges_process[], edges_unused[],
    edges_graph[];

#define CU(call)                                                                                                       \
    do {                                                                                                               \
        CUresult rc_ = (call);                                                                                         \
        if (rc_) {                                                                                                     \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)rc_);                                   \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

void fill(struct edge_env *e, CUstream s); /* writes x */
void look(struct edge_env *e, CUstream s); /* reads x */
/* Returns when what is queued on s has run, by means that the oracle does not see: without an edge the second access
 * comes surely later, and must be reported all the same. */
void settle(struct edge_env *e, CUstream s);
void follow(struct edge_env *e, CUstream from, CUstream to); /* by an event */
void post(struct edge_env *e, int step);
void await(struct edge_env *e, int step);
void die_with_lock(void);
void stop_with_lock(void);

#endif
