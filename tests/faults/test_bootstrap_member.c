/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap (plugin/bootstrap/bootstrap.h) as a member sees it: this process is a rank, and who
 * collects the ranks is not as it should be. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "test_bootstrap.h"
#include "strangers_people.h"
#include "plugin/bootstrap/bootstrap.h"
#include "plugin/comm/control.h"

static struct slr_key key;

static void make_key(void)
{
    signal(SIGPIPE, SIG_IGN);
    key = slr_key_of_all();
}

TestSuite(member, .init = make_key, .timeout = 100);

/* ---- the name is taken ---- */

static int listen_as_root(bool listens)
{
    struct sockaddr_un a;
    socklen_t len = name_socket(&key, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (const struct sockaddr *)&a, len) != 0 || (listens && listen(s, 5) != 0))
        _exit(94);
    return s;
}

/* Has taken the name first. 0: nobody has told it anything. */
static int foreign_root(int unused)
{
    struct slr_key got;
    become_foreign();
    int s = listen_as_root(true);
    tell();
    int c = accept(s, NULL, NULL);
    return recv(c, &got, sizeof got, 0) == 0 ? unused : 1;
}

Test(member, the_name_is_taken_by_another_user)
{
    struct person squatter = person(foreign_root, 0);
    struct slr_bootstrap m;
    seems_foreign(squatter.pid);
    go(&squatter);
    hear(&squatter);
    int before = count_descriptors();
    uint64_t begin = now_ms();
    cr_expect(!slr_bootstrap_begin(&m, &key));
    cr_expect_lt(now_ms() - begin, 1000);
    cr_expect_eq(count_descriptors(), before);
    cr_expect_eq(ended(&squatter), 0);
}

static int deaf_root(int unused)
{
    listen_as_root(false);
    tell();
    hold();
    return unused;
}

Test(member, the_name_is_taken_and_nobody_listens)
{
    struct person squatter = person(deaf_root, 0);
    struct slr_bootstrap m;
    go(&squatter);
    hear(&squatter);
    uint64_t begin = now_ms();
    cr_expect(!slr_bootstrap_begin(&m, &key));
    cr_expect_lt(now_ms() - begin, TIMEOUT_MS / 2);
    remove_person(&squatter);
}

/* ---- the control block that comes with the verdict ---- */

struct verdict { /* of bootstrap.c */
    uint32_t magic, word;
    char version[24];
};

enum block { SHORT, LONG, NOT_SEALED, NONE, TWO, UNASKED };

static int make_block(enum block how)
{
    size_t bytes = slr_control_bytes(2);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 ||
        ftruncate(fd, (off_t)(how == SHORT  ? bytes - 4096
                              : how == LONG ? bytes + 4096
                                            : bytes)) != 0 ||
        (how != NOT_SEALED && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0))
        _exit(94);
    return fd;
}

static void send_verdict(int to, uint32_t word, const int *fd, int n)
{
    struct verdict v = {SLR_CONTROL_MAGIC, word, SLIPRING_VERSION};
    struct iovec io = {&v, sizeof v};
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (n > 0) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof *fd);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)n * sizeof *fd)};
        memcpy(CMSG_DATA(c), fd, (size_t)n * sizeof *fd);
    }
    if (sendmsg(to, &m, MSG_NOSIGNAL) != (ssize_t)sizeof v)
        _exit(95);
}

static int unsound_root(int how)
{
    char got[256];
    int s = listen_as_root(true);
    tell();
    int c = accept(s, NULL, NULL);
    if (recv(c, got, sizeof got, 0) <= 0 || send(c, SLR_WELCOME, sizeof SLR_WELCOME, 0) <= 0 ||
        recv(c, got, sizeof got, 0) <= 0)
        return 1;
    int block[2] = {make_block((enum block)how), make_block((enum block)how)};
    send_verdict(c, how == UNASKED ? slr_refusal(SLR_R_PEER_DIED, 0) : SLR_UNDECIDED, block,
                 how == NONE  ? 0
                 : how == TWO ? 2
                              : 1);
    return 0;
}

static uint32_t member_of_unsound_root(enum block how)
{
    struct person root = person(unsound_root, (int)how);
    struct slr_bootstrap_self self = rank_of(1);
    struct slr_bootstrap m;
    int fd = -1;
    go(&root);
    hear(&root);
    int before = count_descriptors();
    cr_assert(slr_bootstrap_begin(&m, &key));
    cr_assert_eq(slr_bootstrap_hello(&m, &self), SLR_UNDECIDED);
    uint32_t word = slr_bootstrap_answer(&m, &self, now_ms() + TIMEOUT_MS, &fd);
    slr_bootstrap_end(&m);
    cr_expect_eq(fd, -1);
    cr_expect_eq(count_descriptors(), before, "a descriptor was kept");
    cr_expect_eq(ended(&root), 0);
    return word;
}

Test(member, a_block_of_another_size)
{
    cr_expect_eq(member_of_unsound_root(SHORT), slr_refusal(SLR_R_NO_CONTROL, 1));
    cr_expect_eq(member_of_unsound_root(LONG), slr_refusal(SLR_R_NO_CONTROL, 1));
}

Test(member, a_block_that_can_be_made_shorter)
{
    cr_expect_eq(member_of_unsound_root(NOT_SEALED), slr_refusal(SLR_R_NO_CONTROL, 1));
}

Test(member, no_block_or_two)
{
    cr_expect_eq(member_of_unsound_root(NONE), slr_refusal(SLR_R_NO_CONTROL, 1));
    cr_expect_eq(slr_refusal_reason(member_of_unsound_root(TWO)), SLR_R_VERSION_DIFFERS);
}

Test(member, a_descriptor_with_a_refusal)
{
    cr_expect_eq(member_of_unsound_root(UNASKED), slr_refusal(SLR_R_PEER_DIED, 0));
}
