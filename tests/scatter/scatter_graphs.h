/* SPDX-License-Identifier: Apache-2.0 */
/* What all cases with graphs need. */
#ifndef TESTS_SCATTER_SCATTER_GRAPHS_H
#define TESTS_SCATTER_SCATTER_GRAPHS_H

#include "scatter_wrong.h"

enum { LEARNED = 6, REPLAYS = 9 };

#endif
