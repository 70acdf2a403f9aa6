/* SPDX-License-Identifier: Apache-2.0 */
/* Who may take part in a bootstrap: accepts the connections to the root's socket
 * while the root is in NCCL's initialisation, and keeps those of the communicator's ranks.
 *
 * docs/protocol.md, 1, Strangers, says which connections are a rank's: of this process's effective user (SO_PEERCRED),
 * and with the communicator's token (key.h) as the first message. All others are closed.
 *
 * Bounds. Who is there is heard after every few connections, as strangers may connect as fast as they are
 * turned away. The kernel's queue of a listening socket holds 4096 connections at most: a stranger could
 * fill it, so a thread takes them out at once. Of those that have not sent anything yet
 * ACCEPTOR_UNKNOWN are kept, the newest; a rank that is pushed out before its token was seen gets
 * no welcome, and connects again. Ranks that are welcome are never pushed out.
 *
 * The thread waits for nobody: only in poll(), for any of its connections. It takes no lock and blocks all signals. So
 * a welcome takes microseconds, and a rank that waits for one waits for a process that NCCL needs as well. */
#include "plugin/bootstrap/bootstrap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/wait.h"

#define ACCEPTOR_UNKNOWN 64
#define TURN 64 /* connections that are accepted before those that are there are heard */
#define SHORT_OF_DESCRIPTORS_MS 2
#define LOOK_MS 500 /* should the program have closed the listener, which wakes nobody */

struct slr_acceptor {
    int listener;
    struct slr_key token;
    int unknown[ACCEPTOR_UNKNOWN]; /* have said nothing yet; the oldest first */
    int unknowns;
    struct slr_accepted in;
    pthread_t thread;
    _Atomic bool stopped;
};

bool slr_peer_is_ours(int fd, struct ucred *who)
{
    socklen_t len = sizeof *who;
    *who = (struct ucred){.uid = (uid_t)-1};
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &len) == 0 && who->uid == geteuid();
}

socklen_t slr_abstract_name(struct sockaddr_un *address, const char *fmt, ...)
{
    va_list ap;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    va_start(ap, fmt);
    const int n = vsnprintf(address->sun_path + 1, sizeof address->sun_path - 1, fmt, ap);
    va_end(ap);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void slr_descriptors_put(struct msghdr *msg, union slr_descriptor_room *room, const int *fd, unsigned count)
{
    *room = (union slr_descriptor_room){
        .head = {.cmsg_len = CMSG_LEN(count * sizeof *fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&room->head), fd, count * sizeof *fd);
    msg->msg_control = room->bytes;
    msg->msg_controllen = CMSG_SPACE(count * sizeof *fd);
}

bool slr_descriptors_take(const struct cmsghdr *part, int *fd, unsigned *count, unsigned most)
{
    const size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof *fd;
    const bool few = n <= most - *count;
    for (size_t i = 0; i < n; i++) {
        int one;
        memcpy(&one, CMSG_DATA(part) + i * sizeof one, sizeof one);
        if (*count < most)
            fd[(*count)++] = one;
        else
            close(one);
    }
    return few;
}

static void turn_away(struct slr_acceptor *a, int fd)
{
    a->in.strangers++;
    slr_peer_is_ours(fd, &a->in.stranger);
    close(fd);
}

/* The first message has come, or the end. Descriptors that are sent with it end here: recv() takes none. */
static void hear(struct slr_acceptor *a, int fd)
{
    struct slr_key said = {{0}};
    ssize_t got = recv(fd, &said, sizeof said, MSG_TRUNC); /* the length of the message */
    if (got == (ssize_t)sizeof said && memcmp(&said, &a->token, sizeof said) == 0 && a->in.count < SLR_MAX_RANKS) {
        a->in.fd[a->in.count++] = fd;
        /* A rank that has died meanwhile is found when its hello is read: the result is of no use here. */
        send(fd, SLR_WELCOME, sizeof SLR_WELCOME, MSG_NOSIGNAL);
    } else {
        turn_away(a, fd);
    }
}

/* The array stays in the order of arrival, so index 0 is the one that has been silent for longest. */
static int take_unknown(struct slr_acceptor *a, int i)
{
    int fd = a->unknown[i];
    memmove(a->unknown + i, a->unknown + i + 1, (size_t)(--a->unknowns - i) * sizeof *a->unknown);
    return fd;
}

/* Reads from all that have something to say, without waiting. From the last to the first, because
 * take_unknown() moves up what stands behind. */
static void hear_all(struct slr_acceptor *a)
{
    struct pollfd p[ACCEPTOR_UNKNOWN];
    for (int i = 0; i < a->unknowns; i++)
        p[i] = (struct pollfd){.fd = a->unknown[i], .events = POLLIN};
    if (poll(p, (nfds_t)a->unknowns, 0) <= 0)
        return;
    for (int i = a->unknowns - 1; i >= 0; i--)
        if (p[i].revents)
            hear(a, take_unknown(a, i));
}

/* False: there is nothing more to accept. */
static bool accept_one(struct slr_acceptor *a)
{
    struct ucred who;
    int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    /* A connection that was reset while it stood in the queue says nothing about the next one. */
    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED;
    if (!slr_peer_is_ours(fd, &who)) {
        turn_away(a, fd);
        return true;
    }
    if (a->unknowns == ACCEPTOR_UNKNOWN)
        hear_all(a);
    if (a->unknowns == ACCEPTOR_UNKNOWN)
        turn_away(a, take_unknown(a, 0)); /* a rank gets no answer, and connects again */
    a->unknown[a->unknowns++] = fd;
    return true;
}

/* Waits for a connection or a message. False: nobody can connect any more. */
static bool await(const struct slr_acceptor *a)
{
    struct pollfd p[1 + ACCEPTOR_UNKNOWN] = {{.fd = a->listener, .events = POLLIN}};
    for (int i = 0; i < a->unknowns; i++)
        p[1 + i] = (struct pollfd){.fd = a->unknown[i], .events = POLLIN};
    poll(p, 1 + (nfds_t)a->unknowns, LOOK_MS);
    return !atomic_load(&a->stopped);
}

/* Without this the thread would spin: the connection stays in the queue, and poll() returns at once. */
static void rest_if_short(int error)
{
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
        nanosleep(&(struct timespec){.tv_nsec = SHORT_OF_DESCRIPTORS_MS * 1000000}, NULL);
}

/* Until the listener is shut down; then what stands in its queue, to which nothing is added any more. */
static void *serve(void *arg)
{
    struct slr_acceptor *a = arg;
    bool open;
    do {
        open = await(a);
        errno = 0; /* rest_if_short() looks at the last accept4() only */
        for (int i = 0; (i < TURN || !open) && accept_one(a); i++)
            ;
        rest_if_short(errno);
        hear_all(a);
    } while (open);
    return NULL;
}

struct slr_acceptor *slr_acceptor_start(int listener, const struct slr_key *token)
{
    struct slr_acceptor *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->listener = listener;
    a->token = *token;
    if (slr_thread_start(&a->thread, "slipring-accept", serve, a) == 0)
        return a;
    free(a);
    return NULL;
}

void slr_acceptor_finish(struct slr_acceptor *a, struct slr_accepted *out)
{
    /* Wakes poll(). Before the flag: a thread that sees the flag drains a queue that is closed. */
    shutdown(a->listener, SHUT_RDWR);
    atomic_store(&a->stopped, true);
    pthread_join(a->thread, NULL);
    /* All ranks have shown their token before NCCL let this one go (bootstrap.h). */
    while (a->unknowns > 0)
        turn_away(a, take_unknown(a, 0));
    *out = a->in;
    explicit_bzero(a, sizeof *a); /* the token must not stay in freed memory */
    free(a);
}

void slr_acceptor_cancel(struct slr_acceptor *a)
{
    struct slr_accepted in;
    if (!a)
        return;
    slr_acceptor_finish(a, &in);
    for (int i = 0; i < in.count; i++)
        close(in.fd[i]);
}
