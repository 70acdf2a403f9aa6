/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of one `slipring run` tell each other, so that a job says one line and not one for
 * each process.
 *
 * The launcher sets SLIPRING_RUN=PID:NAME, PID being its own, which COMMAND keeps since the launcher
 * execs it, and NAME one that nobody else has; or SLIPRING_RUN=quiet when a tool of slipring's, which says
 * itself what there is to say, has started it. The process PID is the *top*: perhaps a rank, perhaps
 * torchrun or a shell. It listens, from before main() to its end, on three abstract sockets with room for
 * one connection each, that it never accepts:
 *
 *   slipring-run-NAME-made   connected to by each process that makes a communicator, at its first one
 *   slipring-run-NAME-rank0  likewise by rank 0's
 *   slipring-run-NAME-said   connected to by who wants to say the job's line; the first one may
 *
 * The kernel counts, so the top need not run, and nothing stays behind when it is killed. Where nobody
 * listens (no launcher, another network namespace, another host, a top that could not be preloaded) each
 * rank 0 says its line. At its exit the top says why nothing is known: no communicator was made, or rank 0
 * has not come to its end. A top that becomes another program by exec, as shells do with their last
 * command, hands the sockets on to it; any other process that inherits them closes them. A top that ends by
 * _exit or a signal says nothing. */
#include "plugin/lifecycle/lifecycle_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "base/settings.h"
#include "plugin/comm/shared.h"

/* Programs count on the lowest free descriptors. */
enum { LOWEST_FD = 100, LOOKED_AT = 8, NAME_MOST = 64 };

static struct slr_kept made = {.fd = -1}, zero = {.fd = -1}, said = {.fd = -1}, err = {.fd = -1}; /* of the top */
static _Atomic uint64_t first_id; /* of the process's first communicator; 0: none yet */
static _Atomic bool rank0;

static const char *run_variable(void)
{
    const char *run = getenv("SLIPRING_RUN");
    return run ? run : "";
}

enum slr_launched slr_launched(void)
{
    const char *run = run_variable();
    return !*run ? SLR_LAUNCHED_NOT : strchr(run, ':') ? SLR_LAUNCHED_RUN : SLR_LAUNCHED_QUIET;
}

/* False: not started by a launcher, or the name is not one of its making. */
static bool address(const char *what, struct sockaddr_un *to, socklen_t *len)
{
    const char *name = strchr(run_variable(), ':');
    if (!name || !name[1] || strlen(name + 1) > NAME_MOST)
        return false;
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* The first byte is 0: a name that is no file. */
    int n = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "slipring-run-%s-%s", name + 1, what);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return true;
}

/* 0, or the errno of what failed. */
static int tell(const char *what)
{
    struct sockaddr_un to;
    socklen_t len;
    if (!address(what, &to, &len))
        return ENOENT;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 || connect(fd, (struct sockaddr *)&to, len) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

void slr_launched_made(uint64_t id, int rank)
{
    uint64_t before = 0;
    if (atomic_compare_exchange_strong(&first_id, &before, id ? id : 1))
        tell("made");
    const char *starters = slr_log_starter_rank();
    if (rank == 0 && (before == 0 || before == id) && (!starters || strtoul(starters, NULL, 10) == 0) &&
        !atomic_exchange(&rank0, true))
        tell("rank0");
}

bool slr_launched_rank0(void)
{
    return atomic_load(&rank0);
}

bool slr_launched_first(void)
{
    return tell("said") != EAGAIN;
}

/* ---- the top ---- */

/* The socket that the program before this one listened on, or that its parent does; -1: there is none. */
static int inherited(const struct sockaddr_un *at, socklen_t len)
{
    for (int fd = LOWEST_FD; fd < LOWEST_FD + LOOKED_AT; fd++) {
        struct sockaddr_un own;
        socklen_t size = sizeof own;
        if (getsockname(fd, (struct sockaddr *)&own, &size) == 0 && size == len && memcmp(&own, at, len) == 0)
            return fd;
    }
    return -1;
}

static int listen_anew(const struct sockaddr_un *at, socklen_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool listens = fd >= 0 && bind(fd, (const struct sockaddr *)at, len) == 0 && listen(fd, 0) == 0;
    int high = listens ? fcntl(fd, F_DUPFD, LOWEST_FD) : -1; /* stays open over exec */
    if (fd >= 0)
        close(fd);
    return high;
}

/* What the top listens on for `what`; another process closes it. */
static struct slr_kept socket_for(const char *what, bool top)
{
    struct sockaddr_un at;
    socklen_t len;
    if (!address(what, &at, &len))
        return slr_keep(-1);
    int fd = inherited(&at, len);
    if (!top && fd >= 0)
        close(fd);
    return slr_keep(!top ? -1 : fd >= 0 ? fd : listen_anew(&at, len));
}

/* Somebody has connected; or that is not known, as the program has closed the socket. */
static bool connected(const struct slr_kept *h)
{
    struct pollfd p = {.fd = h->fd, .events = POLLIN};
    return !slr_kept_is_there(h) || poll(&p, 1, 0) != 0;
}

static void at_exit(void)
{
    if (!slr_kept_is_there(&err) || !slr_get(SLR_S_ENABLE))
        return;
    if (!connected(&made))
        slr_log_tell(err.fd, "job",
                     "no process with libslipring.so made an NCCL communicator, so nothing was substituted; `slipring "
                     "doctor -- COMMAND` says what can keep the library out");
    else if (slr_kept_is_there(&zero) && connected(&zero) && !connected(&said))
        slr_log_tell(
            err.fd, "job",
            "nothing is known of the job, as rank 0 has not come to its end: it was killed, has ended by _exit, "
            "or still runs; with --record, `slipring report` says what it did until then");
}

/* A child that lives on keeps nobody waiting for the end of stderr. */
static void in_child(void)
{
    struct slr_kept *all[] = {&made, &zero, &said, &err};
    for (int i = 0; i < 4; i++)
        slr_kept_close(all[i]);
}

/* Before main(), as a program that uses no NCCL calls nothing here. Nothing happens but in the top.
 * stderr is kept: programs close it before their last exit handler, which this one is. */
__attribute__((constructor)) static void begin(void)
{
    if (slr_launched() != SLR_LAUNCHED_RUN)
        return;
    const bool top = strtoul(run_variable(), NULL, 10) == (unsigned long)getpid();
    made = socket_for("made", top);
    zero = socket_for("rank0", top);
    said = socket_for("said", top);
    if (!top)
        return;
    err = slr_keep(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LOWEST_FD));
    if (pthread_atfork(NULL, NULL, in_child) != 0 || atexit(at_exit) != 0)
        in_child();
}
