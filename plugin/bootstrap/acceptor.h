/* Who may take part in a meeting (bootstrap.h): accepts the connections to the collecting rank's socket while that rank is
 * in NCCL's initialisation, and keeps those of the communicator's ranks.
 *
 * The socket's name is public, and everybody in the network namespace may connect to it. A connection is a rank's when
 *   - its process has this process's effective user (SO_PEERCRED); any other is closed as soon as it is accepted;
 *   - the first message is the communicator's token, which only its ranks can make (key.h). Any other message closes
 *     it.
 * A rank shows its token, and is answered SLR_WELCOME, before it enters NCCL's initialisation. So once any rank has
 * returned from that, what has not shown the token is no rank's, and nobody has to be waited for.
 *
 * Bounds. The kernel's queue of a listening socket holds 4096 connections at most: a stranger could fill it, so a
 * thread takes them out at once. Of those that have not sent anything yet ACCEPTOR_UNKNOWN are kept, the newest; a rank
 * that is pushed out before its token was seen gets no welcome, and connects again. Ranks that are welcome are never
 * pushed out.
 *
 * The thread waits for nobody: only in poll(), for any of its connections. It takes no lock and blocks all signals. So
 * a welcome takes microseconds, and a rank that waits for one waits for a process that NCCL needs as well.
 */
#ifndef SLR_PLUGIN_BOOTSTRAP_ACCEPTOR_H
#define SLR_PLUGIN_BOOTSTRAP_ACCEPTOR_H

#include <stdbool.h>
#include <sys/socket.h>
#include "kernels/ring.h" /* SLR_MAX_RANKS */
#include "plugin/comm/key.h"

struct slr_acceptor;

#define SLR_WELCOME "slipring" /* the answer to the token */

/* What came: the ranks' connections, which are the caller's from then on, and how many others, with one of these. */
struct slr_accepted {
    int fd[SLR_MAX_RANKS];
    int count;
    unsigned strangers;
    struct ucred stranger; /* the last one */
};

/* `listener`: a listening, non-blocking socket; stays the caller's, who closes it after finish or cancel. NULL: no
 * memory or thread. */
struct slr_acceptor *slr_acceptor_start(int listener, const struct slr_key *token);

/* Nobody can connect any more; ends the thread and *a. Takes no time but for what stands in the queue. */
void slr_acceptor_finish(struct slr_acceptor *a, struct slr_accepted *out);
void slr_acceptor_cancel(struct slr_acceptor *a); /* the same, and all connections are closed; NULL: nothing */

/* Whether the process at the other end of a connection is of this process's user; who it is, as far as is known. */
bool slr_peer_is_ours(int fd, struct ucred *who);

#endif
