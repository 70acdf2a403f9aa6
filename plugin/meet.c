#include "plugin/meet.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "kernels/ring.h"
#include "plugin/control.h"

#define BACKLOG 4096
#define HUB_GRACE_MS 1000
#define BEGIN_TRIES 2000 /* a millisecond each: the hub is between bind and listen, or has just died */

/* `slipring doctor` reads it in the file of the library, to see whether library and tools belong together. */
static const char version_mark[] __attribute__((used)) = "libslipring version " SLIPRING_VERSION;

struct hello {
    uint32_t magic;
    char version[24];
    int32_t rank, nranks, pid;
};

struct verdict {
    uint32_t magic;
    uint32_t word;
    char version[24];
};

uint64_t slr_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static socklen_t name_of(const struct slr_key *key, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "slipring-");
    for (size_t i = 0; i < sizeof key->byte; i++)
        n += snprintf(a->sun_path + 1 + n, sizeof a->sun_path - 1 - (size_t)n, "%02x", key->byte[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* 1: hub, 0: member, -1: try again, -2: give up. */
static int try_begin(struct slr_meet *m, const struct sockaddr_un *a, socklen_t len)
{
    int s = open_socket();
    if (s < 0)
        return -2;
    if (bind(s, (const struct sockaddr *)a, len) == 0 && listen(s, BACKLOG) == 0) {
        m->hub = s;
        return 1;
    }
    int r = errno == EADDRINUSE ? -1 : -2;
    if (r == -1 && connect(s, (const struct sockaddr *)a, len) == 0) {
        m->member = s;
        return 0;
    }
    close(s);
    return r;
}

bool slr_meet_begin(struct slr_meet *m, const struct slr_key *key)
{
    struct sockaddr_un a;
    socklen_t len = name_of(key, &a);
    *m = (struct slr_meet){.hub = -1, .member = -1};
    int r = -1;
    for (int i = 0; i < BEGIN_TRIES && r == -1; i++) {
        r = try_begin(m, &a, len);
        if (r == -1)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (r < 0)
        slr_log(SLR_LOG_WARN, "no_meeting", "errno=%d msg=%s", errno,
                "no abstract Unix socket: all-gathers stay with NCCL");
    return r >= 0;
}

void slr_meet_end(struct slr_meet *m)
{
    if (m->hub >= 0)
        close(m->hub);
    if (m->member >= 0)
        close(m->member);
    m->hub = m->member = -1;
}

static bool same_user(int fd, int *pid)
{
    struct ucred c = {0};
    socklen_t len = sizeof c;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) != 0 || c.uid != geteuid())
        return false;
    *pid = c.pid;
    return true;
}

uint32_t slr_meet_hello(struct slr_meet *m, int rank, int nranks)
{
    struct hello h = {
        .magic = SLR_CONTROL_MAGIC, .version = SLIPRING_VERSION, .rank = rank, .nranks = nranks, .pid = getpid()};
    int hub_pid = 0;
    if (!same_user(m->member, &hub_pid)) {
        slr_log(SLR_LOG_WARN, "no_meeting", "hub_pid=%d msg=%s", hub_pid,
                "the communicator's socket belongs to another user");
        return slr_refusal(SLR_R_NO_CONTROL, rank);
    }
    /* If the hub has closed already, it has left its verdict, or its will. */
    ssize_t sent = send(m->member, &h, sizeof h, MSG_NOSIGNAL);
    return sent == (ssize_t)sizeof h || errno == EPIPE || errno == ECONNRESET ? SLR_UNDECIDED
                                                                              : slr_refusal(SLR_R_NO_CONTROL, rank);
}

/* Waits until `fd` is readable. false: the deadline has passed. */
static bool readable(int fd, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        uint64_t now = slr_now_ms();
        int left = now >= deadline ? 0 : deadline - now > 1000 ? 1000 : (int)(deadline - now);
        int r = poll(&p, 1, left);
        if (r > 0)
            return true;
        if (r == 0 && left == 0)
            return false;
    }
}

static uint32_t check_hello(const struct hello *h, ssize_t got, int fd, int nranks)
{
    int pid = 0;
    if (got <= 0)
        return slr_refusal(SLR_R_PEER_DIED, 0xffff);
    if (!same_user(fd, &pid) || (size_t)got < offsetof(struct hello, rank))
        return slr_refusal(SLR_R_NO_CONTROL, 0xffff);
    bool whole = got == (ssize_t)sizeof *h && h->rank >= 0 && h->rank < nranks && h->nranks == nranks;
    if (h->magic != SLR_CONTROL_MAGIC || memcmp(h->version, SLIPRING_VERSION, sizeof SLIPRING_VERSION) != 0) {
        slr_log(SLR_LOG_WARN, "version_differs", "peer=%d theirs=%.24s ours=%s", whole ? h->rank : -1, h->version,
                SLIPRING_VERSION);
        return slr_refusal(SLR_R_VERSION_DIFFERS, whole ? h->rank : 0xffff);
    }
    if (!whole)
        return slr_refusal(SLR_R_NO_CONTROL, 0xffff);
    if (pid != h->pid) {
        slr_log(SLR_LOG_WARN, "no_meeting", "peer=%d msg=%s", h->rank,
                "the ranks are in different process-id namespaces");
        return slr_refusal(SLR_R_NO_CONTROL, h->rank);
    }
    return SLR_UNDECIDED;
}

struct members {
    int fd[SLR_MAX_RANKS];
    int count;
    int32_t pid[SLR_MAX_RANKS]; /* by rank; 0: absent */
};

static void accept_waiting(int hub, struct members *all)
{
    while (all->count < SLR_MAX_RANKS) {
        int fd = accept4(hub, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            all->fd[all->count++] = fd;
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static uint32_t read_hello(struct members *all, int fd, int nranks, uint64_t deadline)
{
    struct hello h = {0};
    if (!readable(fd, deadline))
        return slr_refusal(SLR_R_AGREE_TIMEOUT, 0xffff);
    uint32_t word = check_hello(&h, recv(fd, &h, sizeof h, 0), fd, nranks);
    if (word == SLR_UNDECIDED)
        all->pid[h.rank] = h.pid;
    return word;
}

static int first_absent(const struct members *all, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (!all->pid[r])
            return r;
    return 0xffff;
}

/* Every member's hello is read before anything is judged, so that the verdict names the rank that is missing or
 * different. */
static uint32_t collect(struct members *all, int nranks, uint64_t deadline)
{
    uint32_t word = SLR_UNDECIDED;
    for (int i = 0; i < all->count; i++) {
        uint32_t w = read_hello(all, all->fd[i], nranks, deadline);
        if (word == SLR_UNDECIDED)
            word = w;
    }
    int absent = first_absent(all, nranks);
    if (absent == 0xffff)
        return word;
    if (word == SLR_UNDECIDED)
        return slr_refusal(SLR_R_RANK_ABSENT, absent);
    /* One rank was silent or died before it said who it is: it is the one that is absent. */
    return slr_refusal_rank(word) == 0xffff ? slr_refusal(slr_refusal_reason(word), absent) : word;
}

static int make_block(const struct members *all, int nranks)
{
    int fd = memfd_create("slipring-control", MFD_CLOEXEC);
    size_t bytes = slr_control_bytes(nranks);
    if (fd < 0)
        return -1;
    struct slr_control *c = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        c = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c == MAP_FAILED) {
        close(fd);
        return -1;
    }
    c->magic = SLR_CONTROL_MAGIC;
    c->nranks = nranks;
    for (int r = 0; r < nranks; r++)
        c->post[r].pid = all->pid[r];
    munmap(c, bytes);
    return fd;
}

static void answer(int to, uint32_t word, int fd)
{
    struct verdict v = {.magic = SLR_CONTROL_MAGIC, .word = word, .version = SLIPRING_VERSION};
    struct iovec io = {.iov_base = &v, .iov_len = sizeof v};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {0};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    if (word == SLR_UNDECIDED) {
        msg.msg_control = c.space;
        msg.msg_controllen = sizeof c.space;
        c.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&c.head), &fd, sizeof fd);
    }
    sendmsg(to, &msg, MSG_NOSIGNAL); /* a member that died is found by the agreement */
}

uint32_t slr_meet_host(struct slr_meet *m, int rank, int nranks, uint64_t deadline, int *fd)
{
    struct members all = {.count = 0};
    all.pid[rank] = getpid();
    accept_waiting(m->hub, &all);
    for (int i = 0; i < all.count; i++)
        answer(all.fd[i], slr_refusal(SLR_R_PEER_DIED, rank), -1); /* the will: valid when nothing follows */
    uint32_t word = collect(&all, nranks, deadline);
    *fd = word == SLR_UNDECIDED ? make_block(&all, nranks) : -1;
    if (word == SLR_UNDECIDED && *fd < 0)
        word = slr_refusal(SLR_R_NO_CONTROL, rank);
    for (int i = 0; i < all.count; i++) {
        answer(all.fd[i], word, *fd);
        close(all.fd[i]);
    }
    return word;
}

static int received_fd(struct msghdr *msg)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* One message of the hub. 1: taken; 0: the hub has closed; else -errno. */
static int read_verdict(int from, struct verdict *v, int *fd)
{
    char space[CMSG_SPACE(sizeof(int))] __attribute__((aligned(_Alignof(struct cmsghdr))));
    struct iovec io = {.iov_base = v, .iov_len = sizeof *v};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return got ? -errno : 0;
    *fd = received_fd(&msg);
    return got == (ssize_t)sizeof *v ? 1 : -EPROTO;
}

static uint32_t hub_gone(const struct slr_meet *m)
{
    int pid = 0;
    same_user(m->member, &pid);
    slr_log(SLR_LOG_WARN, "no_meeting", "hub_pid=%d msg=%s", pid,
            "the process of the rank that collects the others ended");
    return slr_refusal(SLR_R_PEER_DIED, 0xffff);
}

/* The hub's last message counts: first its will, then its verdict. A verdict of undecided brings the block and is the
 * end. */
uint32_t slr_meet_answer(struct slr_meet *m, int rank, uint64_t deadline, int *fd)
{
    struct verdict v = {.magic = 0};
    uint32_t word = SLR_UNDECIDED;
    *fd = -1;
    for (;;) {
        /* The hub gives up on silent members at its own deadline, and says so. */
        if (!readable(m->member, deadline + HUB_GRACE_MS))
            return slr_refusal(SLR_R_AGREE_TIMEOUT, word ? slr_refusal_rank(word) : 0xffff);
        int r = read_verdict(m->member, &v, fd);
        if (r == -ECONNRESET || r == -EINTR || r == -EAGAIN)
            continue; /* it closed without reading everything; what it sent is still there */
        if (r == 0)
            return word ? word : hub_gone(m);
        if (r < 0 || v.magic != SLR_CONTROL_MAGIC)
            return slr_refusal(SLR_R_VERSION_DIFFERS, 0xffff);
        word = v.word;
        if (word == SLR_UNDECIDED)
            return *fd >= 0 ? word : slr_refusal(SLR_R_NO_CONTROL, rank);
    }
}
