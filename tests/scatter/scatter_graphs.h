/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of what is put on the world's stream. */
#ifndef TESTS_SCATTER_SCATTER_GRAPHS_H
#define TESTS_SCATTER_SCATTER_GRAPHS_H

#include "scatter_wrong.h"

enum { LEARNED = 6, REPLAYS = 9 };

void graph_begin(struct world *w);
cudaGraph_t graph_end(struct world *w);

/* The graph goes. */
cudaGraphExec_t graph_executable(cudaGraph_t graph);

#endif
