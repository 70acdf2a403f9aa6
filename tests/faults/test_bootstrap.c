/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator's ranks find each other (plugin/bootstrap/bootstrap.h) among strangers. This
 * process is the rank that collects the others, unless a test says otherwise. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "test_bootstrap.h"
#include "strangers_people.h"
#include "plugin/comm/control.h"

#define FOREIGN 0x10000 /* in the number of connections: of another user */
#define FLOOD 4300      /* more than the kernel queues for a listening socket */

static struct slr_key key;

static void make_key(void)
{
    signal(SIGPIPE, SIG_IGN);
    key = slr_key_of_all();
}

TestSuite(bootstrap, .init = make_key, .timeout = 100);

/* ---- who comes ---- */

/* 0: it met, and has the block; else the reason of the refusal. */
static int member(int rank)
{
    struct slr_bootstrap m;
    struct slr_bootstrap_self self = rank_of(rank);
    int fd = -1;
    if (!slr_bootstrap_begin(&m, &key))
        return SLR_R_NO_CONTROL;
    tell();
    proceed();
    uint64_t deadline = now_ms() + TIMEOUT_MS;
    uint32_t word = slr_bootstrap_hello(&m, &self);
    if (word == SLR_UNDECIDED)
        word = slr_bootstrap_answer(&m, &self, deadline, &fd);
    slr_bootstrap_end(&m);
    return word != SLR_UNDECIDED ? (int)slr_refusal_reason(word) : fd >= 0 ? 0 : 98;
}

static int silent(int connections)
{
    struct rlimit most;
    if (connections & FOREIGN)
        become_foreign();
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
    for (int i = 0; i < (connections & ~FOREIGN); i++)
        if (connect_raw(&key) < 0)
            return 95;
    tell();
    hold();
    return 0;
}

static int restless(int unused)
{
    tell();
    for (;;)
        close(connect_raw(&key));
    return unused;
}

/* Sends `bytes` bytes, and a descriptor. */
static void send_rubbish(int s, size_t bytes)
{
    static const char rubbish[4096];
    struct iovec io = {(void *)(uintptr_t)rubbish, bytes};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = STDIN_FILENO;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(s, &m, 0) != (ssize_t)bytes)
        _exit(96);
}

static int talks_rubbish(int unused)
{
    static const size_t lengths[] = {0, 1, 31, sizeof(struct slr_key), 33, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        send_rubbish(connect_raw(&key), lengths[i]);
    tell();
    hold();
    return unused;
}

/* The token, without having begun as a rank does. */
static int connect_with_token(void)
{
    const struct slr_key token = slr_key_token(&key);
    int s = connect_raw(&key);
    if (s < 0 || send(s, &token, sizeof token, 0) != (ssize_t)sizeof token)
        _exit(97);
    return s;
}

/* ---- the collecting rank ---- */

struct root {
    struct slr_bootstrap bootstrap;
    int descriptors;
};

static struct root root_begins(void)
{
    struct root h = {.descriptors = count_descriptors()};
    cr_assert(slr_bootstrap_begin(&h.bootstrap, &key));
    cr_assert(h.bootstrap.root >= 0 && h.bootstrap.member < 0);
    return h;
}

/* Of two ranks, this one being rank 0. */
static uint32_t root_decides(struct root *h)
{
    struct slr_bootstrap_self self = rank_of(0);
    uint64_t begin = now_ms();
    int fd = -1;
    uint32_t word = slr_bootstrap_collect(&h->bootstrap, &self, begin + TIMEOUT_MS, &fd);
    cr_expect_lt(now_ms() - begin, TIMEOUT_MS / 2, "a stranger was waited for");
    cr_expect_eq(fd >= 0, word == SLR_UNDECIDED);
    slr_bootstrap_end(&h->bootstrap);
    if (fd >= 0)
        close(fd);
    cr_expect_eq(count_descriptors(), h->descriptors, "descriptors are left");
    return word;
}

static void expect_ring(struct root *h, const struct person *rank1)
{
    go(rank1); /* NCCL's initialisation is over */
    uint32_t word = root_decides(h);
    cr_expect_eq(word, SLR_UNDECIDED, "refused: reason %d, rank %d", (int)slr_refusal_reason(word),
                 slr_refusal_rank(word));
    cr_expect_eq(ended(rank1), 0);
}

/* Whoever `first` is, the ranks meet as if it were not there. */
static void ranks_meet_in_spite_of(int (*first)(int), int arg)
{
    struct person stranger = person(first, arg), rank1 = person(member, 1);
    seems_foreign(arg & FOREIGN ? stranger.pid : 0);
    struct root h = root_begins();
    go(&stranger);
    hear(&stranger);
    go(&rank1);
    hear(&rank1);
    expect_ring(&h, &rank1);
    remove_person(&stranger);
}

Test(bootstrap, two_ranks)
{
    struct person rank1 = person(member, 1);
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1);
    expect_ring(&h, &rank1);
}

Test(bootstrap, a_silent_process_of_another_user)
{
    ranks_meet_in_spite_of(silent, 1 | FOREIGN);
}

Test(bootstrap, a_silent_process_of_the_same_user)
{
    ranks_meet_in_spite_of(silent, 1);
}

Test(bootstrap, silent_processes_fill_the_queue)
{
    ranks_meet_in_spite_of(silent, FLOOD);
}

Test(bootstrap, another_user_fills_the_queue)
{
    ranks_meet_in_spite_of(silent, FLOOD | FOREIGN);
}

Test(bootstrap, a_process_that_connects_without_end)
{
    ranks_meet_in_spite_of(restless, 0);
}

/* However fast: there is always one more of another user's. */
Test(bootstrap, another_user_connects_without_end)
{
    struct person rank1 = person(member, 1);
    never_alone();
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1);
    expect_ring(&h, &rank1);
}

Test(bootstrap, rubbish)
{
    ranks_meet_in_spite_of(talks_rubbish, 0);
}

/* Ranks that have shown the token stay, however many come after them and say nothing. */
Test(bootstrap, strangers_after_the_rank)
{
    struct person crowd = person(silent, FLOOD), rank1 = person(member, 1);
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1);
    go(&crowd);
    hear(&crowd);
    expect_ring(&h, &rank1);
    remove_person(&crowd);
}

/* A rank that has connected, and is pushed out before it sends its token. */
static int late_member(int rank)
{
    send_late();
    return member(rank);
}

Test(bootstrap, who_is_pushed_out_comes_again)
{
    struct person rank1 = person(late_member, 1), crowd = person(silent, 200);
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1); /* it is connected */
    go(&crowd);
    hear(&crowd);
    go(&rank1); /* sends in vain */
    hear(&rank1);
    hear(&rank1); /* has begun */
    expect_ring(&h, &rank1);
    remove_person(&crowd);
}

/* The same, and its token comes at the very end, when nobody looks any more. */
Test(bootstrap, a_token_that_comes_too_late)
{
    struct person rank1 = person(late_member, 1), crowd = person(silent, 200);
    let_send_before_the_end(&rank1);
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1);
    go(&crowd);
    hear(&crowd);
    wait_until_it_has(); /* and then it comes again */
    hear(&rank1);
    expect_ring(&h, &rank1);
    remove_person(&crowd);
}

/* Even a process that knows the key is nobody when it is another user's; here it waits for its being shown the door. */
static int foreign_rank(int unused)
{
    become_foreign();
    struct pollfd p = {.fd = connect_raw(&key), .events = POLLIN};
    const struct slr_key token = slr_key_token(&key);
    send(p.fd, &token, sizeof token, MSG_NOSIGNAL);
    tell();
    poll(&p, 1, TIMEOUT_MS);
    char c;
    return recv(p.fd, &c, 1, MSG_DONTWAIT) > 0 ? 1 : unused; /* the end, or a reset: it has been told nothing */
}

Test(bootstrap, another_user_with_the_key_is_nobody)
{
    struct person foreigner = person(foreign_rank, 0), rank1 = person(member, 1);
    seems_foreign(foreigner.pid);
    struct root h = root_begins();
    go(&foreigner);
    hear(&foreigner);
    cr_expect_eq(ended(&foreigner), 0); /* at once, not when the ranks have met */
    go(&rank1);
    hear(&rank1);
    expect_ring(&h, &rank1);
}

Test(bootstrap, nobody_is_waited_for_when_a_rank_is_missing)
{
    struct person same = person(silent, 3), other = person(silent, 3 | FOREIGN);
    seems_foreign(other.pid);
    struct root h = root_begins();
    go(&same);
    hear(&same);
    go(&other);
    hear(&other);
    cr_expect_eq(root_decides(&h), slr_refusal(SLR_R_RANK_ABSENT, 1));
    remove_person(&same);
    remove_person(&other);
}

/* ---- ranks that do not do as they should ---- */

struct hello { /* of bootstrap.c */
    uint32_t magic;
    char version[24];
    int32_t rank, nranks, pid;
    uint64_t process;
};

static int says_hello_twice(int rank)
{
    struct hello h = {SLR_CONTROL_MAGIC, SLIPRING_VERSION, rank, 2, getpid(), 1};
    for (int i = 0; i < 2; i++) {
        int s = connect_with_token();
        if (send(s, &h, sizeof h, 0) != (ssize_t)sizeof h)
            return 1;
    }
    tell();
    hold();
    return 0;
}

Test(bootstrap, two_that_say_they_are_one_rank)
{
    struct person twins = person(says_hello_twice, 1);
    struct root h = root_begins();
    go(&twins);
    hear(&twins);
    cr_expect_eq(root_decides(&h), slr_refusal(SLR_R_NO_CONTROL, 1));
    remove_person(&twins);
}

/* What the ranks get is sealed, has its size, and holds the processes. */
static int looks_at_the_block(int rank)
{
    struct slr_bootstrap m;
    struct slr_bootstrap_self self = rank_of(rank);
    struct stat st;
    int fd = -1;
    if (!slr_bootstrap_begin(&m, &key))
        return 1;
    tell();
    proceed();
    if (slr_bootstrap_hello(&m, &self) != SLR_UNDECIDED ||
        slr_bootstrap_answer(&m, &self, now_ms() + TIMEOUT_MS, &fd) != SLR_UNDECIDED)
        return 2;
    if (ftruncate(fd, 0) == 0 || fstat(fd, &st) != 0 || st.st_size != (off_t)slr_control_bytes(2))
        return 3;
    const struct slr_control *c = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (c == MAP_FAILED || c->magic != SLR_CONTROL_MAGIC || c->post[0].pid != getppid() || c->post[1].pid != getpid())
        return 4;
    return c->post[0].process == 1000 && c->post[1].process == 1001 ? 0 : 5;
}

Test(bootstrap, the_block)
{
    struct person rank1 = person(looks_at_the_block, 1);
    struct root h = root_begins();
    go(&rank1);
    hear(&rank1);
    expect_ring(&h, &rank1);
}
