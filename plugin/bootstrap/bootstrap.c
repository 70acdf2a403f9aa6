/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of a communicator: the root's side and the members'. */
#include "plugin/bootstrap/bootstrap.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "kernels/ring.h"
#include "plugin/comm/control.h"

#define BACKLOG 4096
#define ROOT_GRACE_MS 1000 /* members wait this much longer than the root does */
#define WELCOME_MS 20000   /* for the root's acceptor to answer */
#define BEGIN_TRIES 2000   /* a millisecond each: the root is about to listen, or has just died */

/* `slipring doctor` reads it in the file of the library, to see whether library and tools belong together. */
static const char version_mark[] __attribute__((used)) = "libslipring version " SLIPRING_VERSION;

struct hello {
    uint32_t magic;
    char version[24];
    int32_t rank, nranks, pid;
    uint64_t process;
};

struct verdict {
    uint32_t magic;
    uint32_t word;
    char version[24];
};

static socklen_t name_of(const struct slr_key *key, struct sockaddr_un *address)
{
    /* The name of the host, too: ranks that are to be on different ones do not meet. */
    const char *host = slr_settings()->text[SLR_S_HOST];
    const struct slr_key here = host[0] ? slr_key_derive("host", key, host, strlen(host)) : *key;
    const struct slr_label label = slr_key_label(&here, "socket");
    char hex[SLR_LABEL_HEX];
    slr_label_hex(&label, hex);
    return slr_abstract_name(address, "slipring-%s", hex);
}

/* SOCK_SEQPACKET: connections, so that a peer's end is seen, and messages that keep their borders. */
static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Milliseconds for poll(), at most a second: so a deadline never overflows its int. */
static int left_until(uint64_t deadline)
{
    uint64_t now = slr_now_ms();
    return now >= deadline ? 0 : deadline - now > 1000 ? 1000 : (int)(deadline - now);
}

/* Waits until `fd` is readable. false: the deadline has passed. */
static bool readable(int fd, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        int left = left_until(deadline);
        int r = poll(&p, 1, left);
        if (r > 0)
            return true;
        if (r == 0 && left == 0)
            return false;
    }
}

enum begun { BEGUN, BEGIN_AGAIN, BEGIN_NOT };

/* The root's acceptor answers at once, unless its process is stopped or the machine is very busy;
 * then NCCL's own initialisation waits for that process, too, so that this costs no time. */
static enum begun await_welcome(int sock, int root_pid)
{
    char said[sizeof SLR_WELCOME + 1];
    if (!readable(sock, slr_now_ms() + WELCOME_MS)) {
        slr_log(SLR_LOG_WARN, "no_meeting", "root_pid=%d msg=%s", root_pid,
                "the process of the rank that collects the others does not answer");
        return BEGIN_NOT;
    }
    ssize_t got = recv(sock, said, sizeof said, 0);
    return got == (ssize_t)sizeof SLR_WELCOME && memcmp(said, SLR_WELCOME, sizeof SLR_WELCOME) == 0 ? BEGUN
                                                                                                    : BEGIN_AGAIN;
}

/* Shows the token to the process that listens, if it is of this user. A rank that is turned away
 * for lack of room, or finds a root that has just died, tries again. */
static enum begun introduce(int sock, const struct slr_key *key)
{
    const struct slr_key token = slr_key_token(key);
    struct ucred root;
    if (!slr_peer_is_ours(sock, &root)) {
        slr_log(SLR_LOG_WARN, "no_meeting", "root_pid=%d root_uid=%u msg=%s", root.pid, root.uid,
                "the communicator's socket belongs to another user");
        return BEGIN_NOT;
    }
    if (send(sock, &token, sizeof token, MSG_NOSIGNAL) != (ssize_t)sizeof token)
        return BEGIN_AGAIN;
    return await_welcome(sock, root.pid);
}

/* The name is this rank's: it is the root. */
static enum begun begin_root(struct slr_bootstrap *b, int sock, const struct slr_key *key)
{
    const struct slr_key token = slr_key_token(key);
    b->acceptor = slr_acceptor_start(sock, &token);
    b->root = b->acceptor ? sock : -1;
    if (!b->acceptor)
        slr_log(SLR_LOG_WARN, "no_meeting", "msg=%s", "no thread to accept the other ranks");
    return b->acceptor ? BEGUN : BEGIN_NOT;
}

/* One try. Binding decides who is the root: the kernel gives an abstract name to one socket only. A
 * connection that is refused means a root that does not listen yet, or has just died. */
static enum begun try_socket(struct slr_bootstrap *b, const struct slr_key *key, int *opened)
{
    struct sockaddr_un address;
    socklen_t len = name_of(key, &address);
    int sock = open_socket();
    *opened = sock;
    if (sock >= 0 && bind(sock, (const struct sockaddr *)&address, len) == 0 && listen(sock, BACKLOG) == 0)
        return begin_root(b, sock, key);
    if (errno == EADDRINUSE && connect(sock, (const struct sockaddr *)&address, len) != 0)
        return BEGIN_AGAIN;
    if (errno != EADDRINUSE) {
        slr_log(SLR_LOG_WARN, "no_meeting", "errno=%d msg=%s", errno,
                "no abstract Unix socket: all-gathers stay with NCCL");
        return BEGIN_NOT;
    }
    enum begun r = introduce(sock, key);
    b->member = r == BEGUN ? sock : -1;
    return r;
}

static enum begun try_begin(struct slr_bootstrap *b, const struct slr_key *key)
{
    int sock;
    enum begun r = try_socket(b, key, &sock);
    if (r != BEGUN && sock >= 0)
        close(sock);
    return r;
}

bool slr_bootstrap_begin(struct slr_bootstrap *b, const struct slr_key *key)
{
    *b = (struct slr_bootstrap){.root = -1, .member = -1};
    enum begun r = BEGIN_AGAIN;
    for (int i = 0; i < BEGIN_TRIES && r == BEGIN_AGAIN; i++) {
        r = try_begin(b, key);
        if (r == BEGIN_AGAIN)
            slr_sleep_ms(1);
    }
    if (r == BEGIN_AGAIN)
        slr_log(SLR_LOG_WARN, "no_meeting", "msg=%s",
                "the communicator's socket is taken, and its owner lets nobody in");
    return r == BEGUN;
}

void slr_bootstrap_end(struct slr_bootstrap *b)
{
    slr_acceptor_cancel(b->acceptor);
    b->acceptor = NULL;
    if (b->root >= 0)
        close(b->root);
    if (b->member >= 0)
        close(b->member);
    b->root = b->member = -1;
}

uint32_t slr_bootstrap_hello(struct slr_bootstrap *b, const struct slr_bootstrap_self *self)
{
    struct hello h = {.magic = SLR_CONTROL_MAGIC,
                      .version = SLIPRING_VERSION,
                      .rank = self->rank,
                      .nranks = self->nranks,
                      .pid = getpid(),
                      .process = self->process};
    /* A root that has closed already has sent its fallback or a verdict before: that is read later. */
    ssize_t sent = send(b->member, &h, sizeof h, MSG_NOSIGNAL);
    return sent == (ssize_t)sizeof h || errno == EPIPE || errno == ECONNRESET
               ? SLR_UNDECIDED
               : slr_refusal(SLR_R_NO_CONTROL, self->rank);
}

static uint32_t check_version(const struct hello *h, bool whole)
{
    if (h->magic == SLR_CONTROL_MAGIC && memcmp(h->version, SLIPRING_VERSION, sizeof SLIPRING_VERSION) == 0)
        return SLR_UNDECIDED;
    slr_log(SLR_LOG_WARN, "version_differs", "peer=%d theirs=%.24s ours=%s", whole ? h->rank : -1, h->version,
            SLIPRING_VERSION);
    return slr_refusal(SLR_R_VERSION_DIFFERS, whole ? h->rank : 0xffff);
}

/* Of a message that is cut off the version is still compared: another version may have another
 * length. The process id must be the one that the kernel reports: else the ids that ranks post
 * would mean different processes to different ranks. */
static uint32_t check_hello(const struct hello *h, ssize_t got, int fd, int nranks)
{
    struct ucred who;
    if (got <= 0)
        return slr_refusal(SLR_R_PEER_DIED, 0xffff);
    if ((size_t)got < offsetof(struct hello, rank))
        return slr_refusal(SLR_R_NO_CONTROL, 0xffff);
    bool whole = got == (ssize_t)sizeof *h && h->rank >= 0 && h->rank < nranks && h->nranks == nranks;
    uint32_t word = check_version(h, whole);
    if (word != SLR_UNDECIDED)
        return word;
    if (!whole)
        return slr_refusal(SLR_R_NO_CONTROL, 0xffff);
    slr_peer_is_ours(fd, &who); /* it is: else the acceptor had closed it */
    if (who.pid != h->pid) {
        slr_log(SLR_LOG_WARN, "no_meeting", "peer=%d msg=%s", h->rank,
                "the ranks are in different process-id namespaces");
        return slr_refusal(SLR_R_NO_CONTROL, h->rank);
    }
    return SLR_UNDECIDED;
}

struct members {
    struct slr_accepted in;
    bool heard[SLR_MAX_RANKS];  /* by connection: its hello, or its end */
    int32_t pid[SLR_MAX_RANKS]; /* by rank; 0: absent */
    uint64_t process[SLR_MAX_RANKS];
};

static void note_rank(struct members *all, const struct slr_bootstrap_self *self, int pid)
{
    all->pid[self->rank] = pid;
    all->process[self->rank] = self->process;
}

static uint32_t read_hello(struct members *all, int i, int nranks)
{
    struct hello h = {0};
    uint32_t word = check_hello(&h, recv(all->in.fd[i], &h, sizeof h, 0), all->in.fd[i], nranks);
    if (word == SLR_UNDECIDED && all->pid[h.rank])
        return slr_refusal(SLR_R_NO_CONTROL, h.rank); /* two say that they are this rank */
    if (word == SLR_UNDECIDED)
        note_rank(all, &(struct slr_bootstrap_self){.rank = h.rank, .process = h.process}, h.pid);
    return word;
}

static int first_absent(const struct members *all, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (!all->pid[r])
            return r;
    return 0xffff;
}

/* Waits for those that have not been heard. False: all have, or the deadline has passed. */
static bool wait_for_some(const struct members *all, struct pollfd p[SLR_MAX_RANKS], uint64_t deadline)
{
    bool missing = false;
    for (int i = 0; i < all->in.count; i++) {
        p[i] = (struct pollfd){.fd = all->heard[i] ? -1 : all->in.fd[i], .events = POLLIN};
        missing = missing || !all->heard[i];
    }
    int left = left_until(deadline);
    return missing && (poll(p, (nfds_t)all->in.count, left) > 0 || left > 0);
}

/* Every member's hello is read, as they come, before anything is judged, so that the verdict names
 * the rank that is missing or different. The first refusal; SLR_UNDECIDED: none. */
static uint32_t hear_all(struct members *all, int nranks, uint64_t deadline)
{
    struct pollfd p[SLR_MAX_RANKS];
    uint32_t word = SLR_UNDECIDED;
    while (wait_for_some(all, p, deadline))
        for (int i = 0; i < all->in.count; i++)
            if (p[i].fd >= 0 && p[i].revents) {
                uint32_t w = read_hello(all, i, nranks);
                word = word == SLR_UNDECIDED ? w : word;
                all->heard[i] = true;
            }
    for (int i = 0; i < all->in.count && word == SLR_UNDECIDED; i++)
        if (!all->heard[i])
            word = slr_refusal(SLR_R_AGREE_TIMEOUT, 0xffff);
    return word;
}

static uint32_t collect(struct members *all, int nranks, uint64_t deadline)
{
    uint32_t word = hear_all(all, nranks, deadline);
    int absent = first_absent(all, nranks);
    if (absent == 0xffff)
        return word;
    if (word == SLR_UNDECIDED)
        return slr_refusal(SLR_R_RANK_ABSENT, absent);
    /* One rank was silent or died before it said who it is: it is the one that is absent. */
    return slr_refusal_rank(word) == 0xffff ? slr_refusal(slr_refusal_reason(word), absent) : word;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Sealed before anybody else has it, so that its size can be relied upon. F_SEAL_SEAL keeps others
 * from adding a seal against writing. */
static bool fill_block(int fd, const struct members *all, int nranks)
{
    size_t bytes = slr_control_bytes(nranks);
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return false;
    struct slr_control *control = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        return false;
    control->magic = SLR_CONTROL_MAGIC;
    control->nranks = nranks;
    for (int r = 0; r < nranks; r++) {
        control->post[r].pid = all->pid[r];
        control->post[r].process = all->process[r];
    }
    munmap(control, bytes);
    return true;
}

static int make_block(const struct members *all, int nranks)
{
    int fd = memfd_create("slipring-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && !fill_block(fd, all, nranks)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Memory that whoever sent it can not make shorter: reading behind its end would kill this process. */
static bool block_is_sound(int fd, int nranks)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size == (off_t)slr_control_bytes(nranks) &&
           (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS;
}

static void answer(int to, uint32_t word, int fd)
{
    struct verdict v = {.magic = SLR_CONTROL_MAGIC, .word = word, .version = SLIPRING_VERSION};
    struct iovec io = {.iov_base = &v, .iov_len = sizeof v};
    union slr_descriptor_room room;
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    if (word == SLR_UNDECIDED)
        slr_descriptors_put(&msg, &room, &fd, 1);
    sendmsg(to, &msg, MSG_NOSIGNAL); /* a member that has died is found by the agreement */
}

static void say_strangers(const struct slr_accepted *in, int rank)
{
    if (in->strangers)
        slr_log(SLR_LOG_WARN, "strangers", "crank=%d connections=%u pid=%d uid=%u msg=%s", rank, in->strangers,
                in->stranger.pid, in->stranger.uid,
                "connected to the communicator's socket and are none of its ranks: ignored");
}

uint32_t slr_bootstrap_collect(struct slr_bootstrap *b, const struct slr_bootstrap_self *self, uint64_t deadline,
                               int *fd)
{
    struct members all = {.in.count = 0};
    note_rank(&all, self, getpid());
    slr_acceptor_finish(b->acceptor, &all.in);
    b->acceptor = NULL;
    say_strangers(&all.in, self->rank);
    /* The fallback, before this rank waits for anybody: should it die from here on, this is the
     * last thing that a member reads, and it counts. Else the verdict below replaces it. */
    for (int i = 0; i < all.in.count; i++)
        answer(all.in.fd[i], slr_refusal(SLR_R_PEER_DIED, self->rank), -1);
    uint32_t word = collect(&all, self->nranks, deadline);
    *fd = word == SLR_UNDECIDED ? make_block(&all, self->nranks) : -1;
    if (word == SLR_UNDECIDED && *fd < 0)
        word = slr_refusal(SLR_R_NO_CONTROL, self->rank);
    for (int i = 0; i < all.in.count; i++) {
        answer(all.in.fd[i], word, *fd);
        close(all.in.fd[i]);
    }
    return word;
}

/* The one descriptor of a message; *fd -1: there is none. False: there are more, and all are closed. */
static bool receive_descriptors(struct msghdr *msg, int *fd)
{
    bool one = true;
    unsigned count = 0;
    *fd = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head))
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
            one = slr_descriptors_take(head, fd, &count, 1) && one;
    if (one)
        return true;
    close(*fd);
    *fd = -1;
    return false;
}

/* One message of the root, with the block's descriptor or -1 in *fd. 1: taken; 0: the root has closed; else -errno. */
static int read_verdict(int from, struct verdict *v, int *fd)
{
    char space[CMSG_SPACE(sizeof(int))] __attribute__((aligned(_Alignof(struct cmsghdr))));
    struct iovec io = {.iov_base = v, .iov_len = sizeof *v};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    *fd = -1;
    ssize_t got = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return got ? -errno : 0;
    bool one = receive_descriptors(&msg, fd);
    return one && got == (ssize_t)sizeof *v && v->magic == SLR_CONTROL_MAGIC ? 1 : -EPROTO;
}

/* The root has ended before it sent anything. 0xffff: its rank is not known. */
static uint32_t root_gone(const struct slr_bootstrap *b)
{
    struct ucred root;
    slr_peer_is_ours(b->member, &root);
    slr_log(SLR_LOG_WARN, "no_meeting", "root_pid=%d msg=%s", root.pid,
            "the process of the rank that collects the others ended");
    return slr_refusal(SLR_R_PEER_DIED, 0xffff);
}

/* The root's last word. The descriptor belongs to a verdict of undecided only. */
static uint32_t take_verdict(const struct slr_bootstrap_self *self, uint32_t word, int *fd)
{
    if (word == SLR_UNDECIDED && *fd >= 0 && block_is_sound(*fd, self->nranks))
        return word;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return word == SLR_UNDECIDED ? slr_refusal(SLR_R_NO_CONTROL, self->rank) : word;
}

/* The root's last message counts: first its fallback, then its verdict. A verdict of undecided
 * brings the block and is the end. */
uint32_t slr_bootstrap_answer(struct slr_bootstrap *b, const struct slr_bootstrap_self *self, uint64_t deadline,
                              int *fd)
{
    struct verdict v = {.magic = 0};
    uint32_t word = SLR_UNDECIDED;
    *fd = -1;
    for (;;) {
        /* The root gives up on silent members at its own deadline, and says so. */
        if (!readable(b->member, deadline + ROOT_GRACE_MS))
            return slr_refusal(SLR_R_AGREE_TIMEOUT, word ? slr_refusal_rank(word) : 0xffff);
        int r = read_verdict(b->member, &v, fd);
        if (r == -ECONNRESET || r == -EINTR || r == -EAGAIN)
            continue; /* it closed without reading everything; what it sent is still there */
        if (r == 0)
            return word ? word : root_gone(b);
        if (r < 0)
            return take_verdict(self, slr_refusal(SLR_R_VERSION_DIFFERS, 0xffff), fd);
        word = take_verdict(self, v.word, fd);
        if (v.word == SLR_UNDECIDED)
            return word;
    }
}
