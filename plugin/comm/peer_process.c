/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that stay open in a program that may close them; process descriptors of the peers' processes. */
#include "plugin/comm/shared.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct slr_peer_process {
    int32_t pid;
    uint64_t number;
    int fd;      /* pidfd, or -1 */
    ino_t inode; /* of the descriptor */
    _Atomic bool gone;
    unsigned users; /* under the lock */
    struct slr_peer_process *next;
};

struct slr_kept slr_keep(int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return (struct slr_kept){.fd = -1};
    return (struct slr_kept){.fd = fd, .dev = st.st_dev, .ino = st.st_ino};
}

bool slr_kept_is_there(const struct slr_kept *k)
{
    struct stat st;
    return k->fd >= 0 && fstat(k->fd, &st) == 0 && st.st_dev == k->dev && st.st_ino == k->ino;
}

void slr_kept_close(struct slr_kept *k)
{
    if (slr_kept_is_there(k))
        close(k->fd);
    k->fd = -1;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_peer_process *processes;

/* A program that closes descriptors which it does not know may have opened something else under the
 * number. Before Linux 6.9 all pidfds have one inode, with other anonymous files; those take no
 * signal. */
static bool still_ours(const struct slr_peer_process *p)
{
    struct stat st;
    if (p->fd < 0 || fstat(p->fd, &st) != 0 || st.st_ino != p->inode)
        return false;
    return syscall(SYS_pidfd_send_signal, p->fd, 0, NULL, 0) == 0 || (errno != EBADF && errno != EINVAL);
}

/* Signal 0 is sent to nobody: only the check is made. */
static bool no_such_process(int32_t pid)
{
    return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

static struct slr_peer_process *open_watch(int32_t pid, uint64_t number)
{
    struct slr_peer_process *p = calloc(1, sizeof *p);
    struct stat st;
    if (!p)
        return NULL;
    p->pid = pid;
    p->number = number;
    p->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    p->gone = p->fd < 0 && errno == ESRCH; /* it ended before it could be watched */
    if (p->fd >= 0 && fstat(p->fd, &st) == 0)
        p->inode = st.st_ino;
    p->next = processes;
    return processes = p;
}

/* Those without a descriptor are not shared: the next one may get one. */
static struct slr_peer_process *find(int32_t pid, uint64_t number)
{
    struct slr_peer_process *p = processes;
    while (p && (p->number != number || p->pid != pid || !still_ours(p)))
        p = p->next;
    return p;
}

struct slr_peer_process *slr_peer_process_watch(int32_t pid, uint64_t number)
{
    pthread_mutex_lock(&lock);
    struct slr_peer_process *p = find(pid, number);
    if (!p)
        p = open_watch(pid, number);
    if (p)
        p->users++;
    pthread_mutex_unlock(&lock);
    return p;
}

bool slr_peer_process_gone(struct slr_peer_process *p)
{
    if (!p || atomic_load(&p->gone))
        return p != NULL;
    struct pollfd f = {.fd = p->fd, .events = POLLIN}; /* a negative one is ignored */
    if (p->fd >= 0 && poll(&f, 1, 0) <= 0)
        return false;
    /* Checked after poll(): what poll() reported of another file under the number does not
     * count. */
    if (still_ours(p) ? f.revents & POLLIN : no_such_process(p->pid))
        atomic_store(&p->gone, true);
    return atomic_load(&p->gone);
}

void slr_peer_process_unwatch(struct slr_peer_process *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    if (--p->users == 0) {
        struct slr_peer_process **at = &processes;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        if (still_ours(p)) /* else the number is the program's, and closing it would close its file */
            close(p->fd);
        free(p);
    }
    pthread_mutex_unlock(&lock);
}
