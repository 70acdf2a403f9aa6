/* SPDX-License-Identifier: Apache-2.0 */
/* Out-of-band messages between the house-keeping threads of the host's processes: one datagram
 * socket for each process.
 *
 * docs/protocol.md, 3, Zero copy: virtual memory, says who can send and who is believed. Everything is sent without
 * waiting, by any thread; what does not fit is dropped, and whoever needs an answer asks again. Only the house-keeping
 * thread receives. What can not be excluded: a process of another user that takes the name of one which died between
 * its question and the answer gets the answer. The question itself can not be forged.
 *
 *   WAKE   something has changed: look now, not only at the next tick
 *   ASK    a reader would like the descriptors of an exported block (exports.h)
 *   GIVE   the owner's answer, with all of them, as a queue may hold no more than ten messages; without: it can not be
 *          had */
#ifndef SLR_PLUGIN_BOOTSTRAP_OOB_H
#define SLR_PLUGIN_BOOTSTRAP_OOB_H

#include <stdbool.h>
#include <stdint.h>
#include "cache/handles.h"

struct slr_comm;

enum slr_oob_kind { SLR_OOB_WAKE, SLR_OOB_ASK, SLR_OOB_GIVE };

/* The number of this process, never 0, to be told to ranks only; opens the socket. */
uint64_t slr_oob_process(void);

/* To the process of a rank of the communicator; with SLR_OOB_WAKE `index` and `generation` mean
 * nothing. `pieces` NULL: none; they stay the caller's. False: not sent. */
bool slr_oob_send(const struct slr_comm *c, int to, enum slr_oob_kind kind, int index, uint64_t generation,
                  const struct slr_pieces *pieces);

/* The house-keeping threads of this process and of all peers look now. */
void slr_oob_wake(const struct slr_comm *c);

/* That of this process only. */
void slr_oob_wake_self(void);

/* A message that has come, ASK or GIVE, really from the process of the rank that it names. */
struct slr_oob_message {
    enum slr_oob_kind kind;
    struct slr_comm *comm; /* of this process; with a use that slr_oob_done ends */
    int from;              /* rank */
    int index;             /* of the export in its owner's table */
    uint64_t generation;
    struct slr_pieces pieces; /* GIVE: what the block is made of; or none */
};

/* For the house-keeping thread: waits at most `ms` for messages. Then takes those that have come, one after the other:
 * false when there are no more. Each is ended by slr_oob_done, which closes its descriptors. */
void slr_oob_wait(unsigned ms);
bool slr_oob_next(struct slr_oob_message *m);
void slr_oob_done(struct slr_oob_message *m);

/* In the child after fork: the socket is the parent's. */
void slr_oob_after_fork(void);

#endif
