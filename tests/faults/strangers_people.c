/* SPDX-License-Identifier: Apache-2.0 */
#include "strangers_people.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OTHER_USER 65534
#ifndef PATIENCE_MS
#define PATIENCE_MS 30000
#endif

static int my_orders = -1, my_reports = -1;
static _Atomic pid_t foreigner;

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct person person(int (*body)(int), int arg)
{
    int orders[2], reports[2];
    struct person p;
    pid_t parent = getpid();
    cr_assert(pipe(orders) == 0 && pipe(reports) == 0);
    p.pid = fork();
    cr_assert(p.pid >= 0);
    if (p.pid == 0) {
        my_orders = orders[0], my_reports = reports[1];
        close(orders[1]);
        close(reports[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        proceed();
        _exit(body(arg));
    }
    close(orders[0]);
    close(reports[1]);
    p.orders = orders[1], p.reports = reports[0];
    return p;
}

void go(const struct person *p)
{
    cr_assert_eq(write(p->orders, "", 1), 1);
}

void hear(const struct person *p)
{
    struct pollfd f = {.fd = p->reports, .events = POLLIN};
    char c;
    cr_assert(poll(&f, 1, PATIENCE_MS) == 1 && read(p->reports, &c, 1) == 1, "process %d does not come", (int)p->pid);
}

int ended(const struct person *p)
{
    int status = 0;
    cr_assert_eq(waitpid(p->pid, &status, 0), p->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

void remove_person(const struct person *p)
{
    kill(p->pid, SIGKILL);
    ended(p);
}

void tell(void)
{
    if (write(my_reports, "", 1) != 1)
        _exit(90);
}

void proceed(void)
{
    char c;
    if (read(my_orders, &c, 1) != 1)
        _exit(91);
}

void hold(void)
{
    for (;;)
        pause();
}

bool really_foreign(void)
{
    return geteuid() == 0;
}

void become_foreign(void)
{
    if (really_foreign() &&
        (setresgid(OTHER_USER, OTHER_USER, OTHER_USER) || setresuid(OTHER_USER, OTHER_USER, OTHER_USER)))
        _exit(92);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user has taken it back */
}

void seems_foreign(pid_t pid)
{
    atomic_store(&foreigner, really_foreign() ? 0 : pid);
}

static _Atomic bool crowded;

void never_alone(void)
{
    atomic_store(&crowded, true);
}

/* What this process connects to itself with is another user's, too. */
static void disguise(struct ucred *who)
{
    if ((who->pid && who->pid == atomic_load(&foreigner)) || (atomic_load(&crowded) && who->pid == getpid()))
        who->uid++;
}

static bool late;

void send_late(void)
{
    late = true;
}

ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    if (!late)
        return __real_send(fd, data, bytes, flags);
    late = false;
    tell();
    proceed();
    ssize_t n = __real_send(fd, data, bytes, flags);
    tell();
    return n;
}

static const struct person *_Atomic sends_late;
static _Atomic int looks;
static _Atomic bool sent_late;

void let_send_before_the_end(const struct person *p)
{
    atomic_store(&sends_late, p);
}

static void looked_at(const struct ucred *who)
{
    const struct person *p = atomic_load(&sends_late);
    if (!p || who->pid != p->pid || atomic_fetch_add(&looks, 1) != 1)
        return;
    go(p);
    hear(p);
    atomic_store(&sent_late, true);
}

void wait_until_it_has(void)
{
    for (uint64_t end = now_ms() + PATIENCE_MS; !atomic_load(&sent_late);) {
        cr_assert_lt(now_ms(), end, "nobody has been turned away");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    int r = __real_getsockopt(fd, level, name, value, len);
    if (r == 0 && level == SOL_SOCKET && name == SO_PEERCRED) {
        looked_at(value);
        disguise(value);
    }
    return r;
}

int __real_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
    struct pollfd over = {.fd = fd};
    int pair[2], r = __real_accept4(fd, a, len, flags);
    if (r >= 0 || !atomic_load(&crowded) || poll(&over, 1, 0) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return r;
    close(pair[1]);
    return pair[0];
}

static bool no_filters, endless;

void refuse_filters(void)
{
    no_filters = true;
}

void never_empty(void)
{
    endless = true;
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (no_filters && level == SOL_SOCKET && name == SO_ATTACH_FILTER) {
        errno = EPERM;
        return -1;
    }
    return __real_setsockopt(fd, level, name, value, len);
}

ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
    ssize_t n = __real_recvmsg(fd, m, flags | (endless ? MSG_PEEK : 0));
    for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(m) : NULL; c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            disguise((struct ucred *)(void *)CMSG_DATA(c));
    return n;
}

socklen_t name_socket(const struct slr_key *key, struct sockaddr_un *a)
{
    const struct slr_label label = slr_key_label(key, "socket");
    char hex[SLR_LABEL_HEX];
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    slr_label_hex(&label, hex);
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "slipring-%s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int connect_raw(const struct slr_key *key)
{
    struct sockaddr_un a;
    socklen_t len = name_socket(key, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s < 0)
        _exit(93);
    while (connect(s, (const struct sockaddr *)&a, len) != 0)
        if (errno != EINTR && errno != EAGAIN) {
            close(s);
            return -1;
        }
    return s;
}

int count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    cr_assert(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
