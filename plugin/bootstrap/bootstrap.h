/* SPDX-License-Identifier: Apache-2.0 */
/* The folder bootstrap/: how the ranks of a new communicator that run on this host find each other before there is any
 * shared memory (this file), and how their processes send each other messages afterwards (oob.h).
 *
 * docs/protocol.md, 1, has the protocol: key, token, fallback, HELLO and VERDICT, strangers, and each
 * bad case. It needs no time-out in the good case and in the commonest bad ones, because NCCL's own
 * initialisation is a barrier: no rank returns from it before all have entered.
 *
 * A stranger that binds the name and does not listen looks like a root that is about to: 2 s. Descriptors are accepted
 * only from the root.
 *
 * One thread may run several ranks. begin() waits only for the root's acceptor, a thread that waits
 * for nobody. After the real call the thread runs hello() for all its members, then collect() for
 * all its roots, then answer() for all its members. */
#ifndef SLR_PLUGIN_BOOTSTRAP_BOOTSTRAP_H
#define SLR_PLUGIN_BOOTSTRAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "cache/handles.h"
#include "kernels/flags.h"
#include "plugin/comm/key.h"

struct slr_acceptor;

struct slr_bootstrap {
    int root;                      /* listening socket, or -1 */
    int member;                    /* connection to the root, or -1 */
    struct slr_acceptor *acceptor; /* of the root; NULL: none, or it has ended */
};

/* Before the real call. false: no socket could be had (logged); the rank stays out. */
bool slr_bootstrap_begin(struct slr_bootstrap *b, const struct slr_key *key);

/* Gives up at any time: peers see end-of-file. */
void slr_bootstrap_end(struct slr_bootstrap *b);

/* What a rank says of its process. */
struct slr_bootstrap_self {
    int rank, nranks;
    uint64_t process; /* the random number of its process (oob.h) */
};

/* The three steps after the real call. Each returns a decision word (control.h): SLR_UNDECIDED to go on, or a refusal.
 * `deadline` in milliseconds of slr_now_ms(). collect() (the root) and answer() (a member) give the control block's
 * descriptor in *fd, owned by the caller; its size and seals are right. */
uint32_t slr_bootstrap_hello(struct slr_bootstrap *b, const struct slr_bootstrap_self *self);
uint32_t slr_bootstrap_collect(struct slr_bootstrap *b, const struct slr_bootstrap_self *self, uint64_t deadline,
                               int *fd);
uint32_t slr_bootstrap_answer(struct slr_bootstrap *b, const struct slr_bootstrap_self *self, uint64_t deadline,
                              int *fd);

struct slr_acceptor;

/* ---- acceptor.c, for this folder alone ---- */

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

/* Whether the process at the other end of a connection is of this process's user; who it is, as far as is known. */
bool slr_peer_is_ours(int fd, struct ucred *who);

/* An abstract name; returns the address's length. */
socklen_t slr_abstract_name(struct sockaddr_un *address, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Descriptors into a message that has none yet; `count` up to SLR_PIECES. */
union slr_descriptor_room {
    char bytes[CMSG_SPACE(SLR_PIECES * sizeof(int))];
    struct cmsghdr head;
};
void slr_descriptors_put(struct msghdr *msg, union slr_descriptor_room *room, const int *fd, unsigned count);

/* Of a part of a message: they come behind the *count that are in fd[] already, until there are `most`; others are
 * closed. False: there were others, for which there is room in the padding; nobody sends that. */
bool slr_descriptors_take(const struct cmsghdr *part, int *fd, unsigned *count, unsigned most);

#endif
