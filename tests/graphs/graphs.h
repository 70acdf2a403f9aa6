/* SPDX-License-Identifier: Apache-2.0 */
/* Captured gathers that are replayed: graphs.c runs the cases of the other graphs_*.c. */
#ifndef TESTS_FORMS_GRAPHS_H
#define TESTS_FORMS_GRAPHS_H

#include <cuda.h>
#include "../order/forms.h"

#define SHARD ((size_t)64 << 10)

struct world {
    const char *name; /* of the case */
    int rank, nranks;
    bool threads; /* the ranks are threads of one process */
    ncclComm_t comm;
    cudaStream_t s, side;
    cudaEvent_t event, back;
    uint64_t seed;
    unsigned replays; /* of the soak, and of who is far ahead; 0: as many as usual */
};

struct graph_case {
    const char *name;
    void (*body)(struct world *w);
    bool kills; /* the last rank */
    bool first; /* nothing is gathered before it */
    bool loose; /* NCCL puts no events into graphs: bodies of conditional nodes take none */
};
/* Each ends with a row without a name. */
extern const struct graph_case graph_shape_cases[], graph_life_cases[], graph_unlike_cases[], graph_soak_cases[],
    graph_memory_cases[], graph_scatter_cases[], graph_group_cases[], graph_body_cases[], graph_tried_cases[],
    graph_ahead_cases[], graph_first_cases[];

void driver(CUresult r, const char *call);
#define DRIVER(call) driver(call, #call)

/* Device memory for buffers of gathers. What cudaMalloc gives is not used across devices of one process. */
void *memory_get(size_t bytes);
void memory_put(void *p);

/* A gather whose send buffer is the own shard of its receive buffer, or not. */
void buffers_open(struct world *w, struct gather *g, size_t shard, bool in_place);
void buffers_close(struct gather *g);

/* A capture of the gather alone. */
cudaGraph_t record(struct world *w, struct gather *g);

/* New data; the launch, or the call; all bytes compared. */
void replay(struct world *w, cudaGraphExec_t exec, struct gather *g, const char *what);
void eager(struct world *w, struct gather *g, const char *what);

/* The communicator ends before the graph, which can not be launched any more and goes, too. */
void outlives(struct world *w, cudaGraphExec_t exec);
void launch_or_told(struct world *w, cudaGraphExec_t exec);

#endif
