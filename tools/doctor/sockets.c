/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks need to meet (plugin/bootstrap/bootstrap.c, oob.c) is done here between two
 * processes: an abstract name, the kernel's word for who is there, a descriptor passed on, a
 * datagram with credentials. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"

#define WAIT_SECONDS 5
#define WORD 0x736c6970u

/* Two processes: 0 listens, 1 connects. What went wrong first is in `what`. */
struct meeting {
    _Atomic int listening; /* 1: yes; -1: it gave up */
    struct sockaddr_un name;
    socklen_t name_length;
    struct {
        char what[64];
        int error;
        pid_t pid;
    } side[2];
};

static bool bad(struct meeting *m, int side, const char *what, int error)
{
    if (!*m->side[side].what) {
        snprintf(m->side[side].what, sizeof m->side[side].what, "%s", what);
        m->side[side].error = error;
    }
    return false;
}

static int open_stream(struct meeting *m, int side)
{
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = WAIT_SECONDS};
    if (s < 0)
        bad(m, side, "socket(AF_UNIX, SOCK_SEQPACKET)", errno);
    else
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return s;
}

/* As plugin/bootstrap/bootstrap.c: the peer's user is this process's, and its number is what it
 * says. */
static bool trusted(struct meeting *m, int side, int s)
{
    struct ucred c = {0};
    socklen_t len = sizeof c;
    pid_t said = 0;
    if (recv(s, &said, sizeof said, 0) != (ssize_t)sizeof said)
        return bad(m, side, "recv", errno);
    if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &c, &len) != 0)
        return bad(m, side, "SO_PEERCRED", errno);
    if (c.uid != geteuid())
        return bad(m, side, "SO_PEERCRED: the kernel names another user", 0);
    return c.pid == said || bad(m, side, "SO_PEERCRED: the kernel names another process", 0);
}

static bool send_word(struct meeting *m, int s)
{
    unsigned word = WORD;
    int fd = memfd_create("slipring-doctor", MFD_CLOEXEC);
    struct iovec io = {&word, sizeof word};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space};
    if (fd < 0)
        return bad(m, 0, "memfd_create", errno);
    bool good = write(fd, &word, sizeof word) == (ssize_t)sizeof word;
    memcpy(CMSG_DATA(&c.head), &fd, sizeof fd);
    good = (good && sendmsg(s, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof word) || bad(m, 0, "sendmsg(SCM_RIGHTS)", errno);
    close(fd);
    return good;
}

static bool take_word(struct meeting *m, int s)
{
    unsigned word = 0, inside = 0;
    int fd = -1;
    struct iovec io = {&word, sizeof word};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {.space = {0}};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space};
    if (recvmsg(s, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof word)
        return bad(m, 1, "recvmsg", errno);
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
    if (fd < 0)
        return bad(m, 1, "SCM_RIGHTS: no descriptor came", 0);
    bool good = pread(fd, &inside, sizeof inside, 0) == (ssize_t)sizeof inside && inside == WORD;
    close(fd);
    return good || bad(m, 1, "SCM_RIGHTS: the descriptor is not the one that was sent", 0);
}

/* A name that the kernel chooses: two doctors do not meet. */
static bool listening(struct meeting *m, int s)
{
    m->name.sun_family = AF_UNIX;
    m->name_length = sizeof m->name;
    return bind(s, (struct sockaddr *)&m->name, sizeof m->name.sun_family) == 0 &&
           getsockname(s, (struct sockaddr *)&m->name, &m->name_length) == 0 && listen(s, 4) == 0;
}

static void host(struct meeting *m)
{
    int s = open_stream(m, 0);
    bool up = s >= 0 && (listening(m, s) || bad(m, 0, "bind to an abstract name", errno));
    m->listening = up ? 1 : -1;
    int peer = up ? accept4(s, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (up && peer < 0)
        bad(m, 0, "accept", errno);
    if (peer >= 0 && trusted(m, 0, peer))
        send_word(m, peer);
    if (peer >= 0)
        close(peer);
    if (s >= 0)
        close(s);
}

static void member(struct meeting *m)
{
    pid_t me = getpid();
    while (m->listening == 0)
        usleep(500);
    int s = m->listening > 0 ? open_stream(m, 1) : -1;
    if (s < 0)
        return;
    if (connect(s, (struct sockaddr *)&m->name, m->name_length) != 0)
        bad(m, 1, "connect to an abstract name", errno);
    else if (send(s, &me, sizeof me, MSG_NOSIGNAL) != (ssize_t)sizeof me)
        bad(m, 1, "send", errno);
    else
        take_word(m, s);
    close(s);
}

static void job(void *data, int index)
{
    (index == 0 ? host : member)(data);
}

/* A datagram that says who sent it, to itself: what plugin/bootstrap/oob.c relies on. */
static const char *datagram(int *error)
{
    int pair[2], on = 1;
    char byte = 1;
    struct iovec io = {&byte, 1};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } c = {.space = {0}};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space};
    struct ucred who = {0};
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0) {
        *error = errno;
        return "socketpair(AF_UNIX, SOCK_DGRAM)";
    }
    bool came = setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 && send(pair[1], &byte, 1, 0) == 1 &&
                recvmsg(pair[0], &msg, MSG_DONTWAIT) == 1;
    *error = errno;
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    if (came && head && head->cmsg_type == SCM_CREDENTIALS)
        memcpy(&who, CMSG_DATA(head), sizeof who);
    close(pair[0]);
    close(pair[1]);
    return came && who.uid == getuid() && who.pid == getpid() ? NULL : "SO_PASSCRED, SCM_CREDENTIALS";
}

static void check_pidfd(struct doctor *d)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) {
        close(fd);
        doctor_add(d, DOCTOR_PIDFD, DOCTOR_OK, "pidfd_open works");
    } else {
        doctor_add(d, DOCTOR_PIDFD, DOCTOR_WARN, "pidfd_open: %s", strerror(errno));
    }
}

void doctor_check_sockets(struct doctor *d)
{
    struct meeting *m = child_shared(sizeof *m);
    struct child_end end[2];
    int error = 0;
    child_run(job, m, 2, d->limit_ms, end);
    const char *what = NULL;
    for (int i = 0; i < 2 && !what; i++)
        if (*m->side[i].what) {
            what = m->side[i].what;
            error = m->side[i].error;
        }
    for (int i = 0; i < 2 && !what; i++)
        if (end[i].how != CHILD_ENDED || end[i].value != 0)
            what = "two processes did not come together";
    if (!what)
        what = datagram(&error);
    if (what)
        doctor_add(d, DOCTOR_SOCKETS, DOCTOR_FAIL, "%s%s%s", what, error ? ": " : "", error ? strerror(error) : "");
    else
        doctor_add(d, DOCTOR_SOCKETS, DOCTOR_OK, "two processes met, knew each other and passed a descriptor on");
    check_pidfd(d);
}
