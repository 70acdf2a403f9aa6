/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between processes (plugin/bootstrap/oob.h): only those of the rank that they name are delivered, and no other costs
 * anything. This process is rank 0 of two; another one is rank 1, or seems to be. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "strangers_people.h"
#include "plugin/comm/comm.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/control.h"

#define QUIET_MS 300

/* ---- what oob.c calls ---- */

static struct slr_comm comm; /* as both processes see it; the control block is shared */

static struct {
    int asked, given;
    int rank, index;
    unsigned descriptors, open; /* of GIVE */
    uint64_t last;              /* bytes of the last one */
    uint64_t generation;
} came;

struct slr_comm *slr_comm_find_id(const struct slr_label *id, int rank)
{
    return memcmp(id, &comm.id, sizeof *id) == 0 && rank == 0 ? &comm : NULL;
}

void slr_pieces_close(struct slr_pieces *pieces)
{
    while (pieces->count > 0)
        close(pieces->fd[--pieces->count]);
}

void slr_comm_put(struct slr_comm *c)
{
    (void)c;
}

/* ---- the two processes ---- */

/* Of this process's socket, as anybody finds it in /proc/net/unix; for all. */
static struct known {
    struct sockaddr_un name;
    socklen_t len;
} * at;

static void make_comm(void)
{
    struct slr_key key = slr_key_of_all();
    comm.id = slr_key_public(&key);
    comm.pass = SLR_R_RING;
    comm.nranks = 2;
    comm.shared.control = mmap(NULL, slr_control_bytes(2), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(comm.shared.control != MAP_FAILED && at != MAP_FAILED);
}

TestSuite(oob, .init = make_comm, .timeout = 60);

struct message { /* of oob.c */
    uint64_t receiver;
    uint32_t magic, kind;
    struct slr_label comm;
    int32_t from, to, index;
    uint64_t generation, bytes[SLR_PIECES];
};

static struct message ask(void)
{
    return (struct message){
        comm.shared.control->post[0].process, SLR_CONTROL_MAGIC, SLR_OOB_ASK, comm.id, 1, 0, 3, 77, {0}};
}

static void find_name(void)
{
    for (int fd = 0; fd < 1000 && !at->len; fd++) {
        socklen_t len = sizeof at->name;
        if (getsockname(fd, (struct sockaddr *)&at->name, &len) == 0 && at->name.sun_family == AF_UNIX &&
            !memcmp(at->name.sun_path, "\0slipring-oob-", 14))
            at->len = len;
    }
    cr_assert(at->len, "no socket");
}

/* Sends the first `bytes` bytes, and so many descriptors. */
static void post(const struct message *text, size_t bytes, int descriptors)
{
    struct iovec io = {(void *)(uintptr_t)text, bytes};
    union {
        char bytes[CMSG_SPACE((SLR_PIECES + 1) * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr m = {.msg_name = &at->name, .msg_namelen = at->len, .msg_iov = &io, .msg_iovlen = 1};
    if (descriptors) {
        size_t all = (size_t)descriptors * sizeof(int);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(all);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(all)};
        for (int i = 0, fd = memfd_create("test", 0); i < descriptors; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof fd, &fd, sizeof fd);
    }
    if (sendmsg(socket(AF_UNIX, SOCK_DGRAM, 0), &m, 0) != (ssize_t)bytes)
        _exit(96);
}

static int says(const struct message *text, size_t bytes, int descriptors)
{
    post(text, bytes, descriptors);
    tell();
    hold();
    return 0;
}

/* As the house-keeping thread does it. */
static void take_all(void)
{
    struct slr_oob_message m;
    while (slr_oob_next(&m)) {
        came.asked += m.kind == SLR_OOB_ASK;
        came.given += m.kind == SLR_OOB_GIVE;
        came.rank = m.from, came.index = m.index, came.generation = m.generation;
        came.descriptors = m.pieces.count;
        came.open = 0;
        for (unsigned i = 0; i < m.pieces.count; i++)
            came.open += lseek(m.pieces.fd[i], 0, SEEK_CUR) == 0;
        came.last = m.pieces.count ? m.pieces.bytes[m.pieces.count - 1] : 0;
        slr_oob_done(&m);
    }
}

static void know(pid_t rank1)
{
    struct slr_post *post = comm.shared.control->post;
    post[0].pid = getpid();
    post[0].process = slr_oob_process();
    post[1].pid = rank1;
    find_name();
}

/* Lets it say what it has to say; rank 1's process is `rank1`. */
static void listen_to(const struct person *p, pid_t rank1)
{
    know(rank1);
    int before = count_descriptors();
    go(p);
    hear(p);
    slr_oob_wait(QUIET_MS);
    take_all();
    cr_expect_eq(count_descriptors(), before, "descriptors are left");
    remove_person(p);
}

static void is_delivered(int (*body)(int), int arg)
{
    struct person p = person(body, arg);
    listen_to(&p, p.pid);
    cr_expect_eq(came.asked + came.given, 1);
    cr_expect(came.rank == 1 && came.index == 3 && came.generation == 77);
}

static void is_dropped(int (*body)(int), int arg)
{
    struct person p = person(body, arg);
    seems_foreign(p.pid);
    listen_to(&p, p.pid);
    cr_expect_eq(came.asked + came.given, 0);
}

/* ---- rank 1 ---- */

static int asks(int unused)
{
    struct message m = ask();
    return says(&m, sizeof m, unused);
}

static int gives(int descriptors)
{
    struct message m = ask();
    m.kind = SLR_OOB_GIVE;
    for (int i = 0; i < descriptors && i < SLR_PIECES; i++)
        m.bytes[i] = 100 + (uint64_t)i;
    return says(&m, sizeof m, descriptors);
}

/* By oob.c itself. */
static int sends(int unused)
{
    comm.rank = 1;
    slr_oob_process();
    if (!slr_oob_send(&comm, 0, SLR_OOB_ASK, 3, 77, NULL))
        return 1;
    tell();
    hold();
    return unused;
}

Test(oob, a_question)
{
    is_delivered(asks, 0);
}

Test(oob, a_question_as_it_is_sent)
{
    is_delivered(sends, 0);
}

Test(oob, an_answer)
{
    is_delivered(gives, 1);
    cr_expect(came.given == 1 && came.descriptors == 1 && came.open == 1 && came.last == 100);
}

Test(oob, an_answer_of_many_pieces)
{
    is_delivered(gives, SLR_PIECES);
    cr_expect(came.descriptors == SLR_PIECES && came.open == SLR_PIECES && came.last == 99 + SLR_PIECES);
}

/* ---- others ---- */

static int foreign(int kind)
{
    struct message m = ask();
    m.kind = (uint32_t)kind;
    become_foreign();
    return says(&m, sizeof m, kind == SLR_OOB_GIVE);
}

Test(oob, another_user_asks)
{
    is_dropped(foreign, SLR_OOB_ASK);
}

Test(oob, another_user_gives)
{
    is_dropped(foreign, SLR_OOB_GIVE);
}

/* Nor does it wake the house-keeping thread's work. */
Test(oob, another_user_says_look)
{
    uint64_t begin = now_ms();
    is_dropped(foreign, SLR_OOB_WAKE);
    cr_expect_geq(now_ms() - begin, QUIET_MS);
}

Test(oob, another_process_asks_for_the_rank)
{
    struct person p = person(gives, 1);
    listen_to(&p, getppid());
    cr_expect_eq(came.asked + came.given, 0);
}

Test(oob, more_descriptors_than_pieces)
{
    is_dropped(gives, SLR_PIECES + 1);
}

enum wrong {
    MAGIC,
    RECEIVER,
    COMM,
    TO,
    FROM_NEGATIVE,
    FROM_LARGE,
    FROM_SELF,
    ENTRY_NEGATIVE,
    ENTRY_LARGE,
    SHORT,
    LONG,
    EMPTY,
    WRONGS
};

static int wrong(int how)
{
    struct message m = ask();
    m.kind = SLR_OOB_GIVE;
    m.magic += how == MAGIC;
    m.receiver += how == RECEIVER;
    m.comm.byte[15] ^= how == COMM;
    m.to = how == TO;
    m.from = how == FROM_NEGATIVE ? -1 : how == FROM_LARGE ? 2 : how == FROM_SELF ? 0 : 1;
    m.index = how == ENTRY_NEGATIVE ? -1 : how == ENTRY_LARGE ? SLR_EXPORTS : 3;
    struct message two[2] = {m, m};
    return says(two, how == SHORT ? sizeof m - 1 : how == LONG ? sizeof m + 1 : how == EMPTY ? 0 : sizeof m, 1);
}

Test(oob, what_makes_no_sense)
{
    refuse_filters();
    for (int how = 0; how < WRONGS; how++)
        is_dropped(wrong, how);
}

/* ---- floods ---- */

enum { FLOODERS = 3, QUESTIONS = 50, BURST = 1000 };

/* As fast as it can, what any user may send: it has read the name, not the number. */
static int floods(int unused)
{
    struct message m = ask();
    m.receiver++;
    const int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    become_foreign();
    alarm(20);
    for (int sent = 0;; sent++) {
        sendto(s, &m, sent % 2 ? sizeof m : 3, MSG_DONTWAIT, (const struct sockaddr *)&at->name, at->len);
        if (sent == BURST)
            tell();
    }
    return unused;
}

/* None is lost, and none is sent twice. */
static int sends_many(int unused)
{
    comm.rank = 1;
    slr_oob_process();
    for (int i = 0; i < QUESTIONS; i++) {
        if (!slr_oob_send(&comm, 0, SLR_OOB_ASK, 3, 77, NULL))
            return 1;
        tell();
        proceed();
    }
    return unused;
}

static void flood(struct person crowd[FLOODERS])
{
    for (int i = 0; i < FLOODERS; i++) {
        go(&crowd[i]);
        hear(&crowd[i]);
    }
}

/* The kernel throws it away: the socket is neither full nor readable for it, and ours come as ever. */
Test(oob, a_flood, .timeout = 30)
{
    struct person rank1 = person(sends_many, 0), crowd[FLOODERS];
    for (int i = 0; i < FLOODERS; i++)
        crowd[i] = person(floods, 0);
    know(rank1.pid);
    flood(crowd);
    go(&rank1);
    for (int i = 0; i < QUESTIONS; i++) {
        hear(&rank1);
        slr_oob_wait(QUIET_MS);
        take_all();
        cr_assert_eq(came.asked, i + 1);
        go(&rank1);
    }
    cr_expect_eq(ended(&rank1), 0);
    for (int i = 0; i < FLOODERS; i++)
        remove_person(&crowd[i]);
}

/* Where the kernel takes no filter the wait ends in time all the same. */
Test(oob, a_flood_without_end, .timeout = 3)
{
    struct person p = person(wrong, RECEIVER);
    refuse_filters();
    know(p.pid);
    go(&p);
    hear(&p);
    never_empty();
    slr_oob_wait(QUIET_MS);
    take_all();
    cr_expect_eq(came.asked, 0);
    remove_person(&p);
}

/* Nor is what the filter would have kept out taken for ours. */
Test(oob, another_number)
{
    struct person p = person(wrong, RECEIVER);
    refuse_filters();
    listen_to(&p, p.pid);
    cr_expect_eq(came.asked + came.given, 0);
}
