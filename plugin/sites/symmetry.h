/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: which of a communicator's calls use the same allocation at the same offset, on all
 * ranks and in every iteration. docs/memory.md says what the report means.
 *
 * The folder finds the call sites and reports on them. This header is its door; the others are for
 * the folder alone, and period.h, phases.h and sites.h have pure functions that unit tests call. It
 * uses the folders util and comm.
 *
 * Multicast, and a put that needs no agreement for each call, require such symmetry; slipring
 * checks it instead of assuming it. Nothing depends on the answer yet: how a shard travels is
 * agreed call by call (transfer/transfer.h), so a site that breaks costs a staging copy at most.
 *
 * The words, from small to large:
 *
 *   call     one ncclAllGather or ncclReduceScatter of the communicator that the ring has, equal on all
 *            ranks, by its number
 *   site     the same call of the program in each iteration: sites.h
 *   period   the number of calls after which the sequence of calls repeats, an iteration: period.h
 *   phase    calls in a row that have one period, such as training or evaluation: phases.h
 *
 * Publishing (published.h). Each rank has a ring of records in the control block. It writes one for
 * each call, under the communicator's lock and before it enqueues the call. Not when no rank's log
 * shows the sites, as nobody reads the records then: ranks tell each other at the agreement.
 *
 * Analysis. In the background (house-keeping thread, every tick) and on every rank whose log shows
 * it (SLIPRING_LOG=info), from the same records: call after call, as far as all ranks have
 * published.
 *
 *   a rank's record is           then
 *   older than the call, or      the rank is not there yet: look again at the next tick
 *   being written
 *   newer than the call          the call can not be read any more: skip to 384 calls before that
 *                                record, and count what was skipped
 *   of the call                  phases.h finds its site, sites.h compares
 *
 * A slow rank delays the analysis and is not delayed by it. A rank that is dead, or has failed,
 * publishes no more, so the analysis ends there. When a communicator ends, this rank's last gather
 * has arrived, and every peer published the call before it enqueued it: the analysis then reaches
 * the last call. The same holds for a program that exits after having waited for its gathers.
 *
 *   written                  by
 *   record of rank r         the thread of rank r that holds the communicator's lock
 *   slr_comm.symmetry        whoever holds the analysis lock (symmetry.c), under which only the log
 *                            is called
 *
 * Memory: 32 KiB in the control block and, once it has gathered, about 30 KiB of the heap for each
 * rank of the communicator, in every process. With SLIPRING_CALLERS also 8 KiB of who has made this
 * rank's latest calls, and the names of each site (callers/names.h).
 */
#ifndef SLR_PLUGIN_SITES_SYMMETRY_H
#define SLR_PLUGIN_SITES_SYMMETRY_H

#include <stdbool.h>

struct slr_comm;
struct slr_call;
struct slr_place;

/* Whether some rank's log shows the sites, from what all ranks have posted: equal on all. */
bool slr_symmetry_shown(const struct slr_comm *c);

/* When it does: under the communicator's lock, before the call is enqueued. */
void slr_symmetry_publish(const struct slr_call *call, const struct slr_place *send, const struct slr_place *recv);

/* Analyses what all ranks have published. */
void slr_symmetry_tick(struct slr_comm *c);

/* The communicator or the process ends: analyses what is left and reports, once. */
void slr_symmetry_end(struct slr_comm *c);

/* Ends it, if that has not been done, and frees its memory. */
void slr_symmetry_dispose(struct slr_comm *c);

#endif
