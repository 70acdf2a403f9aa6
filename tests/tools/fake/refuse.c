/* SPDX-License-Identifier: Apache-2.0 */
/* refuse CALL COMMAND...: runs COMMAND where a system call fails with EPERM, as a container's security profile does.
 * CALL: memfd_create, pidfd_open, socket. Exit status 77 when filters can not be set here. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long number_of(const char *name)
{
    return !strcmp(name, "memfd_create") ? SYS_memfd_create : !strcmp(name, "pidfd_open") ? SYS_pidfd_open : SYS_socket;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number_of(argv[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
