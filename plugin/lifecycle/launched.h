/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of one `slipring run` tell each other, so that a job says one line and not one for
 * each process.
 *
 * The launcher sets SLIPRING_RUN=PID:NAME, PID being its own, which COMMAND keeps since the launcher
 * execs it, and NAME one that nobody else has; or SLIPRING_RUN=quiet when a tool of slipring's, which says
 * itself what there is to say, has started it. The process PID is the *top*: perhaps a rank, perhaps
 * torchrun or a shell. It listens, from before main() to its end, on two abstract sockets with room for
 * one connection each, that it never accepts:
 *
 *   slipring-run-NAME-made   connected to by each process that makes a communicator, at its first one
 *   slipring-run-NAME-said   connected to by who wants to say the job's line; the first one may
 *
 * The kernel counts, so the top need not run, and nothing stays behind when it is killed. Where nobody
 * listens (no launcher, another network namespace, another host, a top that could not be preloaded) each
 * rank 0 says its line. At its exit the top says that no communicator was made if nobody has
 * connected. A top that becomes another program by exec, as shells do with their last command, hands
 * the sockets on to it; any other process that inherits them closes them. A top that ends by _exit or a
 * signal says nothing. */
#ifndef SLR_PLUGIN_LIFECYCLE_LAUNCHED_H
#define SLR_PLUGIN_LIFECYCLE_LAUNCHED_H

#include <stdbool.h>
#include <stdint.h>

enum slr_launched { SLR_LAUNCHED_NOT, SLR_LAUNCHED_QUIET, SLR_LAUNCHED_RUN };

/* By `slipring run`, or not. */
enum slr_launched slr_launched(void);

/* This process has made a communicator, as that rank. */
void slr_launched_made(uint64_t id, int rank);

/* Whether this process is, or has among its threads, rank 0 of its first communicator. */
bool slr_launched_rank0(void);

/* Whether this process is the first one that asks, of those that can know of each other. */
bool slr_launched_first(void);

#endif
