/* SPDX-License-Identifier: Apache-2.0 */
/* Watches of peers' processes (plugin/comm/shared.h): shared, counted, and never wrong about who lives. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "plugin/comm/shared.h"

TestSuite(peer_process, .timeout = 60);

static pid_t start(void)
{
    pid_t parent = getpid(), pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        for (;;)
            pause();
    }
    return pid;
}

/* It is a zombie from then on. */
static void stop(pid_t pid)
{
    siginfo_t info;
    kill(pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void reap(pid_t pid)
{
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

/* How many process descriptors are open; the last of them in *last. */
static int pidfds(int *last)
{
    char path[300], link[64];
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    cr_assert(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t len = readlink(path, link, sizeof link - 1);
        link[len < 0 ? 0 : len] = 0;
        if (strcmp(link, "anon_inode:[pidfd]") != 0)
            continue;
        n++;
        if (last)
            *last = atoi(e->d_name);
    }
    closedir(d);
    return n;
}

Test(peer_process, one_descriptor_however_many_watch)
{
    struct slr_peer_process *p[10];
    pid_t a = start(), b = start();
    for (int i = 0; i < 10; i++)
        p[i] = slr_peer_process_watch(i % 2 ? a : b, i % 2 ? 11 : 12);
    cr_expect_eq(pidfds(NULL), 2);
    for (int i = 0; i < 8; i++)
        slr_peer_process_unwatch(p[i]);
    cr_expect_eq(pidfds(NULL), 2);
    cr_expect(!slr_peer_process_gone(p[8]) && !slr_peer_process_gone(p[9]));
    slr_peer_process_unwatch(p[8]);
    slr_peer_process_unwatch(p[9]);
    cr_expect_eq(pidfds(NULL), 0);
}

Test(peer_process, the_end_is_seen_before_anybody_reaps_it)
{
    pid_t a = start();
    struct slr_peer_process *p = slr_peer_process_watch(a, 1);
    cr_expect(!slr_peer_process_gone(p));
    stop(a);
    cr_expect(slr_peer_process_gone(p));
    reap(a);
    cr_expect(slr_peer_process_gone(p));
    slr_peer_process_unwatch(p);
}

/* A process id comes again: here it is the same living process under two numbers. */
Test(peer_process, another_number_is_another_process)
{
    pid_t a = start();
    struct slr_peer_process *p = slr_peer_process_watch(a, 1), *q = slr_peer_process_watch(a, 2);
    cr_expect_neq(p, q);
    cr_expect_eq(pidfds(NULL), 2);
    slr_peer_process_unwatch(p);
    slr_peer_process_unwatch(q);
}

Test(peer_process, gone_before_it_is_watched)
{
    pid_t a = start();
    stop(a);
    reap(a);
    struct slr_peer_process *p = slr_peer_process_watch(a, 1);
    cr_expect(slr_peer_process_gone(p));
    cr_expect_eq(pidfds(NULL), 0);
    slr_peer_process_unwatch(p);
}

Test(peer_process, none)
{
    cr_expect(!slr_peer_process_gone(NULL));
    slr_peer_process_unwatch(NULL);
}

/* No descriptor is to be had: the process id must do, and the next watch gets a descriptor. */
Test(peer_process, no_descriptor)
{
    struct rlimit none, before;
    pid_t a = start();
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    struct slr_peer_process *p = slr_peer_process_watch(a, 1);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_expect_eq(pidfds(NULL), 0);
    struct slr_peer_process *q = slr_peer_process_watch(a, 1);
    cr_expect_eq(pidfds(NULL), 1);
    cr_expect(!slr_peer_process_gone(p) && !slr_peer_process_gone(q));
    stop(a);
    reap(a);
    cr_expect(slr_peer_process_gone(p) && slr_peer_process_gone(q));
    slr_peer_process_unwatch(p);
    slr_peer_process_unwatch(q);
}

/* The program has closed the descriptor, and `other` has its number now (-1: nothing). The process counts as alive
 * while it is, and nothing of the program's is closed. */
static void lost(pid_t a, struct slr_peer_process *p, int at, int other)
{
    close(at);
    if (other >= 0)
        cr_assert_eq(dup2(other, at), at);
    cr_expect(!slr_peer_process_gone(p));
    stop(a);
    reap(a);
    cr_expect(slr_peer_process_gone(p));
    slr_peer_process_unwatch(p);
    struct stat st;
    cr_expect_eq(fstat(at, &st) == 0, other >= 0);
}

static void lost_to(int other)
{
    int at = -1;
    pid_t a = start();
    struct slr_peer_process *p = slr_peer_process_watch(a, 1);
    pidfds(&at);
    lost(a, p, at, other);
}

Test(peer_process, its_descriptor_is_closed)
{
    lost_to(-1);
}

Test(peer_process, its_descriptor_is_something_else)
{
    lost_to(eventfd(1, 0));
}

/* Of another process, which is dead. Only since Linux 6.9 one can be told from another. */
Test(peer_process, its_descriptor_is_another_process)
{
    int at = -1;
    struct stat mine, others;
    pid_t a = start(), b = start();
    struct slr_peer_process *p = slr_peer_process_watch(a, 1);
    pidfds(&at);
    int other = (int)syscall(SYS_pidfd_open, b, 0);
    stop(b);
    cr_assert(fstat(at, &mine) == 0 && fstat(other, &others) == 0);
    if (mine.st_ino != others.st_ino)
        lost(a, p, at, other);
}

static void *comes_and_goes(void *arg)
{
    const pid_t *pid = arg;
    for (int i = 0; i < 2000; i++) {
        struct slr_peer_process *p = slr_peer_process_watch(pid[i % 2], 5 + (uint64_t)i % 2);
        if (slr_peer_process_gone(p))
            return (void *)1;
        slr_peer_process_unwatch(p);
    }
    return NULL;
}

Test(peer_process, threads)
{
    pid_t pid[2] = {start(), start()};
    pthread_t t[4];
    void *wrong;
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, comes_and_goes, pid), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &wrong);
        cr_expect_null(wrong);
    }
    cr_expect_eq(pidfds(NULL), 0);
}
