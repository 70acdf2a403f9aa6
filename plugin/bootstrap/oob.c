#include "plugin/bootstrap/oob.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/once.h"
#include "plugin/comm/comm.h"

struct message {
    uint32_t magic; /* of the control block: version and layout */
    uint32_t kind;
    struct slr_label comm;
    int32_t from, to; /* ranks */
    int32_t entry;
    uint64_t generation;
};

struct letter {
    struct message text;
    pid_t pid; /* who sent it */
    int fd;
};

static uint64_t process;
static _Atomic int mailbox = -1;
static ino_t mailbox_inode;

/* -1: none. A program that closes descriptors which it does not know may have opened something else under the number.
 */
static int own_mailbox(void)
{
    struct stat st;
    int s = atomic_load(&mailbox);
    return s >= 0 && fstat(s, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == mailbox_inode ? s : -1;
}

/* What has come and is not delivered yet; the house-keeping thread's alone. */
static struct letter inbox[64];
static unsigned letters, delivered;

static socklen_t name_of(uint64_t who, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "slipring-mail-%016llx", (unsigned long long)who);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Without a socket everything takes its time, and memory that needs a descriptor is staged. */
static void open_mailbox(void)
{
    struct sockaddr_un a;
    socklen_t len = name_of(process, &a);
    struct stat st;
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (s >= 0 && fstat(s, &st) == 0 && setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
        bind(s, (const struct sockaddr *)&a, len) == 0) {
        mailbox_inode = st.st_ino;
        atomic_store(&mailbox, s);
        return;
    }
    slr_log(SLR_LOG_WARN, "no_mailbox", "msg=%s", "registered virtual memory will be staged");
    if (s >= 0)
        close(s);
}

uint64_t slr_oob_process(void)
{
    static struct slr_once once;
    if (slr_once_begin(&once)) {
        struct timespec now;
        if (getrandom(&process, sizeof process, GRND_NONBLOCK) != (ssize_t)sizeof process) {
            clock_gettime(CLOCK_REALTIME, &now); /* early in the boot: unique enough */
            process = slr_mix((uint64_t)getpid(), (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        }
        process |= 1;
        open_mailbox();
        slr_once_end(&once);
    }
    return process;
}

static bool post(uint64_t who, const struct message *text, int fd)
{
    struct sockaddr_un a;
    struct iovec body = {(void *)(uintptr_t)text, sizeof *text};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr m = {.msg_name = &a, .msg_namelen = name_of(who, &a), .msg_iov = &body, .msg_iovlen = 1};
    int s = own_mailbox();
    if (s < 0 || !who)
        return false;
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *text;
}

bool slr_oob_send(const struct slr_comm *c, int to, enum slr_oob_kind kind, int entry, uint64_t generation, int fd)
{
    struct message text = {.magic = SLR_CONTROL_MAGIC,
                           .kind = kind,
                           .comm = c->id,
                           .from = c->rank,
                           .to = to,
                           .entry = entry,
                           .generation = generation};
    return post(c->shared.control->post[to].process, &text, fd);
}

void slr_oob_wake(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++) {
        bool sent = false; /* one for each process */
        for (int q = 0; q < r; q++)
            sent = sent || c->shared.control->post[q].process == c->shared.control->post[r].process;
        if (!sent)
            slr_oob_send(c, r, SLR_OOB_WAKE, 0, 0, -1);
    }
}

void slr_oob_wake_self(void)
{
    struct message text = {.magic = SLR_CONTROL_MAGIC, .kind = SLR_OOB_WAKE};
    post(slr_oob_process(), &text, -1);
}

static void drop(struct letter *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* The first descriptor is the letter's. False: there are more, for which there is room in the padding; nobody sends
 * that. */
static bool take_descriptors(const struct cmsghdr *c, struct letter *l)
{
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        if (l->fd < 0)
            l->fd = fd;
        else
            close(fd);
    }
    return n <= 1;
}

/* Takes the descriptor and the sender out of a message's ancillary data. False: not from this user, or not ours. */
static bool open_envelope(struct msghdr *m, struct letter *l)
{
    struct ucred who = {.pid = 0};
    bool few = true;
    l->fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(c), sizeof who);
        if (c->cmsg_type == SCM_RIGHTS)
            few = take_descriptors(c, l) && few;
    }
    l->pid = who.pid;
    return few && who.pid > 0 && who.uid == getuid();
}

static ssize_t take(int s, struct letter *l, bool *good)
{
    struct iovec body = {&l->text, sizeof l->text};
    union {
        char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct msghdr m = {
        .msg_iov = &body, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(s, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return n;
    *good = open_envelope(&m, l) && n == (ssize_t)sizeof l->text && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
            l->text.magic == SLR_CONTROL_MAGIC;
    return n;
}

static void collect(int s)
{
    while (letters < sizeof inbox / sizeof *inbox) {
        bool good = false;
        if (take(s, &inbox[letters], &good) < 0)
            return;
        if (good)
            letters++;
        else
            drop(&inbox[letters]);
    }
}

void slr_oob_wait(unsigned ms)
{
    uint64_t end = slr_now_ms() + ms, now;
    int s = own_mailbox();
    while (letters == 0 && (now = slr_now_ms()) < end) {
        struct pollfd p = {.fd = s, .events = POLLIN}; /* a negative one is ignored */
        if (poll(&p, 1, (int)(end - now)) > 0 && !(p.revents & POLLIN))
            s = -1;
        if (s >= 0)
            collect(s);
    }
}

/* The communicator of a message that really comes from the process of the rank that it names. */
static struct slr_comm *addressee(const struct letter *l)
{
    struct slr_comm *c = slr_comm_find_id(&l->text.comm, l->text.to);
    if (c && c->pass == SLR_R_RING && l->text.from >= 0 && l->text.from < c->nranks && l->text.from != c->rank &&
        c->shared.control->post[l->text.from].pid == l->pid && l->text.entry >= 0 && l->text.entry < SLR_EXPORTS)
        return c;
    slr_comm_put(c);
    return NULL;
}

/* The oldest letter becomes the caller's. */
static struct letter take_letter(void)
{
    struct letter l = inbox[delivered++];
    if (delivered == letters)
        letters = delivered = 0;
    return l;
}

bool slr_oob_next(struct slr_oob_message *m)
{
    while (letters > 0) {
        struct letter l = take_letter();
        struct slr_comm *c = l.text.kind == SLR_OOB_WAKE ? NULL : addressee(&l);
        if (c) {
            *m = (struct slr_oob_message){.kind = (enum slr_oob_kind)l.text.kind,
                                          .comm = c,
                                          .from = l.text.from,
                                          .entry = l.text.entry,
                                          .generation = l.text.generation,
                                          .fd = l.fd};
            return true;
        }
        drop(&l);
    }
    return false;
}

void slr_oob_done(struct slr_oob_message *m)
{
    slr_comm_put(m->comm);
    if (m->fd >= 0)
        close(m->fd);
}

void slr_oob_after_fork(void)
{
    int s = own_mailbox();
    atomic_store(&mailbox, -1);
    if (s >= 0)
        close(s);
}
