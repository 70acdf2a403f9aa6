/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder lifecycle/ alone: what its files do for each other. */
#ifndef SLR_PLUGIN_LIFECYCLE_LIFECYCLE_IMPL_H
#define SLR_PLUGIN_LIFECYCLE_LIFECYCLE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"

struct slr_comm;
struct slr_hosts;
struct slr_init;

/* Of those that are finished there is nothing left but this; the others end their part in the bootstrap here. */
void slr_inits_free(struct slr_init *list);

/* ---- make_hosts.c ---- */

/* An id that the program has made: puts another one into what NCCL leaves unused of it, for the ranks' agreement over hosts. */
void slr_hosts_mark(ncclUniqueId *id);

/* The communicator is about to be made with that id. NULL: none is tracked. */
void slr_hosts_expect(struct slr_init *init, const ncclUniqueId *id);

/* NCCL has made the communicators; those of which ranks are absent from this host may span several, and are agreed on with
 * these: init->hosts. Waits at most SLIPRING_AGREE_TIMEOUT, twice. */
void slr_hosts_agree(struct slr_init *list);

/* ---- end.c ---- */

/* Inside and rail, as far as they are there, with the guard up. `abort`: as ncclCommAbort. */
void slr_hosts_end(struct slr_hosts *h, bool abort);

/* ---- later.c ---- */

/* NCCL goes on making them, and has taken all of them: finishes and frees the list, on a thread. */
void slr_inits_later(struct slr_init *list);

/* At the end of the process, as slr_threads_stop. */
void slr_inits_stop(void);

/* ---- whole.c ---- */

/* A communicator with its parts, all of them empty; slr_comm_dispose frees it. NULL: no memory. */
struct slr_comm *slr_comm_new(void);

/* NCCL has made its context; nothing is put into that before the first gather (connect.h). `flags`: the words of its
 * ring. */
enum slr_reason slr_comm_know_device(struct slr_comm *c, int device, void *flags);

/* ---- watchdog.c ---- */

/* One tick for one communicator, now, from another thread (abort does not wait for the next
 * tick). */
void slr_watchdog_look(struct slr_comm *c);

/* The watchdog's: once for each communicator, later calls do nothing. The program has been told. */
void slr_revoke_begin(struct slr_comm *c);

/* Before the program's own call that ends the communicator: waits for that, at most a second. True: NCCL's part of
 * ncclCommRevoke has been done. */
bool slr_revoke_end(struct slr_comm *c);

/* ---- threads.c ---- */

/* When a communicator needs them; any number of times. */
void slr_threads_start(void);

/* At the end of the process: they make no CUDA call any more, so that none comes after CUDA's own
 * end. */
void slr_threads_stop(void);

/* ---- tuner_match.c ---- */

/* Around the real call: a tuner may be made for this communicator from here on; not any more.
 * Forget may be called any number of times. */
void slr_tune_expect(struct slr_init *init);
void slr_tune_forget(struct slr_init *init);

/* On the thread of the real call, which has returned before NCCL has made the tuner. */
void slr_tune_returned(struct slr_init *init);

/* After the real call, for all inits of the thread, whose `comm` is known: finds the tuners. */
void slr_tune_match(struct slr_init *list);

/* For the post. */
uint64_t slr_tune_word(const struct slr_init *init);

/* Decides, for each. Waits until `deadline` for ranks that have not posted. */
void slr_tune_agree(struct slr_init *list, uint64_t deadline);

/* ---- launched.c ---- */

enum slr_launched { SLR_LAUNCHED_NOT, SLR_LAUNCHED_QUIET, SLR_LAUNCHED_RUN };

/* By `slipring run`, or not. */
enum slr_launched slr_launched(void);

/* This process has made a communicator, as that rank. */
void slr_launched_made(uint64_t id, int rank);

/* Whether this process is, or has among its threads, rank 0 of its first communicator, and of what has started it. */
bool slr_launched_rank0(void);

/* Whether this process is the first one that asks, of those that can know of each other. */
bool slr_launched_first(void);

/* ---- about.c ---- */

/* Where a communicator is made; writes the lines at the first one. */
void slr_about_log(void);

/* The line at the end of a job: docs/log.md, The end of a job. */

/* At the end of the process: says the line on stderr, if this is the process that does and there is
 * something to say. That is rank 0 of its first communicator, which the job's starter calls rank 0 as
 * well if it gave a rank. */
void slr_closing_say(void);

/* What the counters of this process say, in one line; "" when nothing was gathered and the process was
 * not started by `slipring run`. Returns `text`. */
const char *slr_closing_text(char *text, size_t size);

#endif
