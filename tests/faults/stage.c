/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded beside libslipring: kills, stops or delays a rank at a known step of the agreement.
 *
 *   FAULT_AT="before:CALL:N:ACTION"   or "after:...": at the N-th CALL of libc that the agreement makes in this process
 *                                     ACTION: kill, stop, or a number of milliseconds to sleep
 *   FAULT_ROOT=R                      rank R collects the others: they do not bind before it listens
 *
 * CALL is one of the functions below. Only they are replaced, by plain system calls; nothing else in the tests uses
 * them on Unix sockets, and other memfds (the software GPU's) do not count.
 */
#include "board.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum when { BEFORE, AFTER };

static void act(const char *action)
{
    if (!strcmp(action, "kill"))
        kill(getpid(), SIGKILL);
    else if (!strcmp(action, "stop"))
        raise(SIGSTOP);
    else
        board_sleep_ms(atoi(action));
}

/* `count`: how often this call has been made before. */
static void reach(enum when when, const char *call, int count)
{
    const char *at = getenv("FAULT_AT");
    char when_name[8], name[32], action[16];
    int n;
    if (!at || sscanf(at, "%7[^:]:%31[^:]:%d:%15s", when_name, name, &n, action) != 4)
        return;
    if (!strcmp(when_name, when == BEFORE ? "before" : "after") && !strcmp(name, call) && n == count)
        act(action);
}

#define STAGED(call, ...)                                                                                              \
    do {                                                                                                               \
        static _Atomic int calls;                                                                                      \
        int number = atomic_fetch_add(&calls, 1) + 1;                                                                  \
        reach(BEFORE, #call, number);                                                                                  \
        long result = syscall(__VA_ARGS__);                                                                            \
        reach(AFTER, #call, number);                                                                                   \
        return result;                                                                                                 \
    } while (0)

static void wait_for_root(void)
{
    int root = board_env("FAULT_ROOT", -1);
    if (board() && root >= 0 && root != board_env(BOARD_RANK_ENV, -1))
        board_wait(&board()->root_listens, 1, 5000);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    wait_for_root();
    STAGED(bind, SYS_bind, fd, addr, len);
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    STAGED(connect, SYS_connect, fd, addr, len);
}

EXPORT int listen(int fd, int backlog)
{
    int r = (int)syscall(SYS_listen, fd, backlog);
    if (board() && r == 0)
        atomic_store(&board()->root_listens, 1);
    reach(AFTER, "listen", 1);
    return r;
}

EXPORT int accept4(int fd, struct sockaddr *restrict addr, socklen_t *restrict len, int flags)
{
    STAGED(accept4, SYS_accept4, fd, addr, len, flags);
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    STAGED(send, SYS_sendto, fd, buf, n, flags, NULL, 0);
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    STAGED(recv, SYS_recvfrom, fd, buf, n, flags, NULL, NULL);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    STAGED(sendmsg, SYS_sendmsg, fd, msg, flags);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    STAGED(recvmsg, SYS_recvmsg, fd, msg, flags);
}

EXPORT int memfd_create(const char *name, unsigned flags)
{
    bool ours = strncmp(name, "slipring", 8) == 0;
    if (ours)
        reach(BEFORE, "memfd_create", 1);
    int fd = (int)syscall(SYS_memfd_create, name, flags);
    if (ours)
        reach(AFTER, "memfd_create", 1);
    return fd;
}
