/* SPDX-License-Identifier: Apache-2.0 */
/* Who may take part in a bootstrap (bootstrap.h): accepts the connections to the root's socket
 * while the root is in NCCL's initialisation, and keeps those of the communicator's ranks.
 *
 * The socket's name is public, and everybody in the network namespace may connect to it. A
 * connection is a rank's when
 *   - its process has this process's effective user (SO_PEERCRED); any other is closed as soon as
 *     it is accepted;
 *   - the first message is the communicator's token, which only its ranks can make (key.h). Any
 *     other message closes it.
 * A rank shows its token, and is answered SLR_WELCOME, before it enters NCCL's initialisation. So
 * once any rank has returned from that, what has not shown the token is no rank's, and nobody has
 * to be waited for.
 *
 * Bounds. Who is there is heard after every few connections, as strangers may connect as fast as they are
 * turned away. The kernel's queue of a listening socket holds 4096 connections at most: a stranger could
 * fill it, so a thread takes them out at once. Of those that have not sent anything yet
 * ACCEPTOR_UNKNOWN are kept, the newest; a rank that is pushed out before its token was seen gets
 * no welcome, and connects again. Ranks that are welcome are never pushed out.
 *
 * The thread waits for nobody: only in poll(), for any of its connections. It takes no lock and
 * blocks all signals. So a welcome takes microseconds, and a rank that waits for one waits for a
 * process that NCCL needs as well.
 */
#ifndef SLR_PLUGIN_BOOTSTRAP_ACCEPTOR_H
#define SLR_PLUGIN_BOOTSTRAP_ACCEPTOR_H

#include <stdbool.h>
#include <sys/socket.h>
#include "kernels/ring.h" /* SLR_MAX_RANKS */
#include "plugin/comm/key.h"

struct slr_acceptor;

#define SLR_WELCOME "slipring" /* the answer to the token */

/* What has connected: the ranks' connections, which the caller owns from then on, and the number of
 * others (strangers) with the last of these. */
struct slr_accepted {
    int fd[SLR_MAX_RANKS];
    int count;
    unsigned strangers;
    struct ucred stranger;
};

/* `listener`: a listening, non-blocking socket; stays the caller's, who closes it after finish or
 * cancel. NULL: no memory or thread. */
struct slr_acceptor *slr_acceptor_start(int listener, const struct slr_key *token);

/* Ends accepting, the thread and *a. Waits only for the thread to take out what stands in the
 * listener's queue. Cancel also closes all connections; with NULL it does nothing. */
void slr_acceptor_finish(struct slr_acceptor *a, struct slr_accepted *out);
void slr_acceptor_cancel(struct slr_acceptor *a);

/* Whether the process at the other end of a connection is of this process's user; who it is, as far
 * as is known. */
bool slr_peer_is_ours(int fd, struct ucred *who);

#endif
