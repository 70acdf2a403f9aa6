/* SPDX-License-Identifier: Apache-2.0 */
/* The process's out-of-band socket: sending, receiving, and who may be believed. */
#include "plugin/bootstrap/oob.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/wait.h"
#include "plugin/bootstrap/bootstrap.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"

struct message {
    uint64_t receiver; /* its number, which the socket's filter looks for: first */
    uint32_t magic;    /* of the control block: version and layout */
    uint32_t kind;
    struct slr_label comm;
    int32_t from, to; /* ranks */
    int32_t index;
    uint64_t generation;
    uint64_t bytes[SLR_PIECES]; /* behind each descriptor that comes along */
};

struct received {
    struct message text;
    pid_t pid; /* who sent it */
    unsigned descriptors;
    int fd[SLR_PIECES];
};

static uint64_t process;
static _Atomic int oob_socket = -1;
static ino_t socket_inode;

/* -1: none. A program that closes descriptors which it does not know may have opened something else
 * under the number. */
static int own_socket(void)
{
    struct stat st;
    int sock = atomic_load(&oob_socket);
    return sock >= 0 && fstat(sock, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == socket_inode ? sock : -1;
}

/* What has come and is not taken yet; the house-keeping thread's alone. */
enum { TURN = 256 };              /* messages that are looked at before the time is */
static struct received queue[64]; /* what does not fit stays in the socket */
static unsigned queued, taken;

/* Everybody can read it (/proc/net/unix), and the number can not be told from it. */
static socklen_t name_of(uint64_t who, struct sockaddr_un *address)
{
    struct slr_sha256 h;
    union {
        uint8_t digest[SLR_SHA256_BYTES];
        uint64_t name;
    } made;
    slr_sha256_begin(&h);
    slr_sha256_add(&h, "oob", 3);
    slr_sha256_add(&h, &who, sizeof who);
    slr_sha256_end(&h, made.digest);
    return slr_abstract_name(address, "slipring-oob-%016llx", (unsigned long long)made.name);
}

/* The kernel throws away what does not begin with this process's number, before it takes a place among
 * the few messages that a socket holds: the sender pays for it. Where it takes no filter, collect()
 * looks. A filter's numbers are in the network's order. */
static void keep_out(int sock)
{
    uint32_t word[2];
    memcpy(word, &process, sizeof word);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(struct message), 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(word[0]), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof word[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(word[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, sizeof(struct message)),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

/* Without a socket every change is seen at the next tick only, and memory that needs a descriptor is staged. */
static void open_socket(void)
{
    struct sockaddr_un address;
    socklen_t len = name_of(process, &address);
    struct stat st;
    int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (sock >= 0)
        keep_out(sock);
    if (sock >= 0 && fstat(sock, &st) == 0 && setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
        bind(sock, (const struct sockaddr *)&address, len) == 0) {
        socket_inode = st.st_ino;
        atomic_store(&oob_socket, sock);
        return;
    }
    slr_log(SLR_LOG_WARN, "no_mailbox", "msg=%s", "registered virtual memory will be staged");
    if (sock >= 0)
        close(sock);
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
        process |= 1; /* 0 means none in a post */
        open_socket();
        slr_once_end(&once);
    }
    return process;
}

/* Sends to the process with the number `who`. MSG_DONTWAIT: a process that is stopped must not stop
 * this one; what is lost is asked for again. */
static bool post(uint64_t who, struct message *text, const struct slr_pieces *pieces)
{
    struct sockaddr_un address;
    struct iovec body = {text, sizeof *text};
    union slr_descriptor_room room;
    struct msghdr msg = {
        .msg_name = &address, .msg_namelen = name_of(who, &address), .msg_iov = &body, .msg_iovlen = 1};
    int sock = own_socket();
    if (sock < 0 || !who)
        return false;
    text->receiver = who;
    if (pieces && pieces->count) {
        memcpy(text->bytes, pieces->bytes, pieces->count * sizeof *text->bytes);
        slr_descriptors_put(&msg, &room, pieces->fd, pieces->count);
    }
    return sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *text;
}

bool slr_oob_send(const struct slr_comm *c, int to, enum slr_oob_kind kind, int index, uint64_t generation,
                  const struct slr_pieces *pieces)
{
    struct message text = {.magic = SLR_CONTROL_MAGIC,
                           .kind = kind,
                           .comm = c->id,
                           .from = c->rank,
                           .to = to,
                           .index = index,
                           .generation = generation};
    return post(c->shared.control->post[to].process, &text, pieces);
}

void slr_oob_wake(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++) {
        bool sent = false; /* one for each process */
        for (int q = 0; q < r; q++)
            sent = sent || c->shared.control->post[q].process == c->shared.control->post[r].process;
        if (!sent)
            slr_oob_send(c, r, SLR_OOB_WAKE, 0, 0, NULL);
    }
}

void slr_oob_wake_self(void)
{
    struct message text = {.magic = SLR_CONTROL_MAGIC, .kind = SLR_OOB_WAKE};
    post(slr_oob_process(), &text, NULL);
}

/* A descriptor that nobody takes would stay open for the life of the process. */
static void drop(struct received *r)
{
    while (r->descriptors > 0)
        close(r->fd[--r->descriptors]);
}

/* Takes the descriptors and the sender out of a message's ancillary data. False: not from this user, or not ours. */
static bool read_ancillary(struct msghdr *msg, struct received *r)
{
    struct ucred who = {.pid = 0};
    bool few = true;
    r->descriptors = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
        if (head->cmsg_level != SOL_SOCKET)
            continue;
        if (head->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(head), sizeof who);
        if (head->cmsg_type == SCM_RIGHTS)
            few = slr_descriptors_take(head, r->fd, &r->descriptors, SLR_PIECES) && few;
    }
    r->pid = who.pid;
    return few && who.pid > 0 && who.uid == getuid();
}

/* One message of the socket. *good: it is whole, of this version and of a process of this user. */
static ssize_t take(int sock, struct received *r, bool *good)
{
    struct iovec body = {&r->text, sizeof r->text};
    union {
        char bytes[CMSG_SPACE(SLR_PIECES * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {
        .msg_iov = &body, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return n;
    *good = read_ancillary(&msg, r) && n == (ssize_t)sizeof r->text && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
            r->text.magic == SLR_CONTROL_MAGIC && r->text.receiver == process;
    return n;
}

/* Takes what has come, as far as there is room. Bounded, as others may send as fast as it is thrown away. */
static void collect(int sock)
{
    for (unsigned i = 0; i < TURN && queued < sizeof queue / sizeof *queue; i++) {
        bool good = false;
        if (take(sock, &queue[queued], &good) < 0)
            return;
        if (good)
            queued++;
        else
            drop(&queue[queued]);
    }
}

void slr_oob_wait(unsigned ms)
{
    uint64_t end = slr_now_ms() + ms, now;
    int sock = own_socket();
    while (queued == 0 && (now = slr_now_ms()) < end) {
        struct pollfd p = {.fd = sock, .events = POLLIN}; /* a negative one is ignored */
        /* An error on the socket would be reported at once each time: from then on it only sleeps. */
        if (poll(&p, 1, (int)(end - now)) > 0 && !(p.revents & POLLIN))
            sock = -1;
        if (sock >= 0)
            collect(sock);
    }
}

/* The communicator of a message that really comes from the process of the rank that it names. The
 * kernel has filled in the process id, so it can not be forged; the rest is the sender's word. */
static struct slr_comm *addressee(const struct received *r)
{
    struct slr_comm *c = slr_comm_find_id(&r->text.comm, r->text.to);
    if (c && c->pass == SLR_R_RING && r->text.from >= 0 && r->text.from < c->nranks && r->text.from != c->rank &&
        c->shared.control->post[r->text.from].pid == r->pid && r->text.index >= 0 && r->text.index < SLR_EXPORTS)
        return c;
    slr_comm_put(c);
    return NULL;
}

/* The oldest message, in the queue still; the caller owns its descriptors. */
static struct received *take_oldest(void)
{
    struct received *r = &queue[taken++];
    if (taken == queued)
        queued = taken = 0;
    return r;
}

static void hand_over(struct received *r, struct slr_pieces *pieces)
{
    pieces->count = r->descriptors;
    memcpy(pieces->fd, r->fd, r->descriptors * sizeof *r->fd);
    memcpy(pieces->bytes, r->text.bytes, r->descriptors * sizeof *r->text.bytes);
    r->descriptors = 0;
}

bool slr_oob_next(struct slr_oob_message *m)
{
    while (queued > 0) {
        struct received *r = take_oldest();
        /* A wake has done its work when it ended the wait: nothing is delivered for it. */
        struct slr_comm *c = r->text.kind == SLR_OOB_WAKE ? NULL : addressee(r);
        if (c) {
            m->kind = (enum slr_oob_kind)r->text.kind;
            m->comm = c;
            m->from = r->text.from;
            m->index = r->text.index;
            m->generation = r->text.generation;
            hand_over(r, &m->pieces);
            return true;
        }
        drop(r);
    }
    return false;
}

void slr_oob_done(struct slr_oob_message *m)
{
    slr_comm_put(m->comm);
    slr_pieces_close(&m->pieces);
}

void slr_oob_after_fork(void)
{
    int sock = own_socket();
    atomic_store(&oob_socket, -1);
    if (sock >= 0)
        close(sock); /* the parent's messages must not end in the child */
}
