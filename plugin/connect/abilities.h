/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks' devices can: change graphs, add.
 *
 * Graphs: whether this rank's driver can do what captured gathers need: first whether the functions exist,
 * which the rank posts when the communicator is made; then a trial (kernels/graph_try.h), when the ranks
 * connect, as nothing is put on a device before. Once in a process for each device.
 *
 * A rank whose trial fails takes back what it has posted (`records`) before it is MADE (connect.h). It
 * posts it never again. So whoever is connected reads of each rank what is so for good; before that, 0
 * is for good and 1 is not. All ranks come to the same: a gather is recorded only by who is connected.
 *
 * What fails is logged, once in a process, as graphs_off; nothing is tried or logged when the settings
 * leave captured gathers to NCCL anyway. */
#ifndef SLR_PLUGIN_CONNECT_ABILITIES_H
#define SLR_PLUGIN_CONNECT_ABILITIES_H

#include <stdbool.h>
#include <stddef.h>

struct slr_comm;
struct slr_reduce;

/* What this rank posts first: its settings and its driver's functions let gathers be taken into graphs. */
bool slr_graphs_may(void);

/* All ranks have posted that they can, as far as they know. */
bool slr_graphs_all_can(const struct slr_comm *c);

/* Whether captured calls of such a shard are taken into graphs: by the settings, by what the ranks have
 * posted, and by size. Equal on all ranks that are connected. */
bool slr_graphs_take(const struct slr_comm *c, size_t shard);

/* A captured gather stays with NCCL. If this process's driver has not got the functions, the log says
 * so. */
void slr_graphs_missed(void);

/* A step of connecting: the communicator's context is entered, its streams and staging are there. */
void slr_graphs_try(struct slr_comm *c);

/* ---- the device code that adds (kernels/reduce.h), for reduce-scatters: loaded when a communicator is made,
 * once in a process for each device. Loading may wait for all that the device has been given; so may
 * what NCCL does at that time. At the first reduce-scatter it could wait for a peer that waits for
 * this rank. */

/* The settings want it. Uniform. */
bool slr_sums_wanted(void);

/* While the ranks agree: whether this rank can, for its post. */
bool slr_sums_load(struct slr_comm *c);

/* All ranks have posted that they can. */
bool slr_sums_all_can(const struct slr_comm *c);

/* The code of the communicator's device, when slr_sums_all_can(). */
const struct slr_reduce *slr_sums_of(const struct slr_comm *c);

#endif
