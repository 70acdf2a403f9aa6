/* SPDX-License-Identifier: Apache-2.0 */
/* The device code that adds (kernels/scatter.h), for reduce-scatters: loaded when a communicator is made,
 * once in a process for each device. Loading may wait for all that the device has been given; so may
 * what NCCL does at that time. At the first reduce-scatter it could wait for a peer that waits for
 * this rank. */
#ifndef SLR_PLUGIN_CONNECT_SUMS_H
#define SLR_PLUGIN_CONNECT_SUMS_H

#include <stdbool.h>
#include "kernels/scatter.h"

struct slr_comm;

/* The settings want it. Uniform. */
bool slr_sums_wanted(void);

/* While the ranks agree: whether this rank can, for its post. */
bool slr_sums_load(struct slr_comm *c);

/* All ranks have posted that they can. */
bool slr_sums_all_can(const struct slr_comm *c);

/* The code of the communicator's device, when slr_sums_all_can(). */
const struct slr_reduce *slr_sums_of(const struct slr_comm *c);

#endif
