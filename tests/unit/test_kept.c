/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that the process keeps (plugin/comm/shared.h), in a program that closes what it did not open. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>
#include "plugin/comm/shared.h"

static int opened(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

Test(kept, own_one_is_closed)
{
    int fd = opened("/");
    struct slr_kept k = slr_keep(fd);
    cr_assert(slr_kept_is_there(&k) && k.fd == fd);
    slr_kept_close(&k);
    cr_assert(!is_open(fd) && k.fd == -1 && !slr_kept_is_there(&k));
    slr_kept_close(&k); /* nothing */
}

Test(kept, program_has_closed_it)
{
    int fd = opened("/");
    struct slr_kept k = slr_keep(fd);
    close(fd);
    cr_assert(!slr_kept_is_there(&k));
    slr_kept_close(&k);
}

Test(kept, number_is_the_programs_now)
{
    int fd = opened("/");
    struct slr_kept k = slr_keep(fd);
    close(fd);
    cr_assert_eq(opened("/dev/null"), fd);
    cr_assert(!slr_kept_is_there(&k));
    slr_kept_close(&k);
    cr_assert(is_open(fd), "a file of the program's is closed");
}

Test(kept, none)
{
    struct slr_kept k = slr_keep(-1);
    cr_assert(k.fd == -1 && !slr_kept_is_there(&k));
    slr_kept_close(&k);
}
