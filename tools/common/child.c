/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILL_GRACE_MS 2000 /* a process that hangs inside a driver does not end even then, and is left */

#define WIDOW_MS 1000 /* what others get when one has died: they may be waiting for it */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

void *child_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("slipring: no memory");
        exit(CHILD_NO_MEMORY);
    }
    return p;
}

static pid_t start(void (*job)(void *, int), void *data, int index)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    job(data, index);
    _exit(0);
}

static struct child_end end_of(int status)
{
    if (WIFSIGNALED(status))
        return (struct child_end){CHILD_SIGNALLED, WTERMSIG(status)};
    return (struct child_end){CHILD_ENDED, WEXITSTATUS(status)};
}

/* Takes those of `pid` that have ended (and sets them to 0); how many are left. */
static int reap(pid_t *pid, int n, struct child_end *end)
{
    int left = 0;
    for (int i = 0; i < n; i++) {
        int status = 0;
        if (pid[i] <= 0)
            continue;
        if (waitpid(pid[i], &status, WNOHANG) == pid[i]) {
            pid[i] = 0;
            if (end[i].how != CHILD_TIMED_OUT)
                end[i] = end_of(status);
        } else {
            left++;
        }
    }
    return left;
}

static bool one_died(const struct child_end *end, int n)
{
    for (int i = 0; i < n; i++)
        if (end[i].how != CHILD_ENDED)
            return true;
    return false;
}

static void wait_all(pid_t *pid, int n, unsigned limit_ms, struct child_end *end)
{
    uint64_t deadline = now_ms() + limit_ms;
    for (unsigned tries = 0; reap(pid, n, end) && now_ms() < deadline; tries++) {
        if (one_died(end, n) && deadline > now_ms() + WIDOW_MS)
            deadline = now_ms() + WIDOW_MS;
        pause_ms(tries < 100 ? 1 : 10);
    }
    for (int i = 0; i < n; i++) {
        if (pid[i] <= 0)
            continue;
        end[i].how = CHILD_TIMED_OUT;
        kill(pid[i], SIGKILL);
    }
    deadline = now_ms() + KILL_GRACE_MS;
    while (reap(pid, n, end) && now_ms() < deadline)
        pause_ms(1);
}

void child_run(void (*job)(void *data, int index), void *data, int n, unsigned limit_ms, struct child_end *end)
{
    pid_t pid[CHILDREN];
    for (int i = 0; i < n; i++) {
        pid[i] = start(job, data, i);
        end[i] = (struct child_end){pid[i] < 0 ? CHILD_NOT_STARTED : CHILD_ENDED, 0};
    }
    wait_all(pid, n, limit_ms, end);
}

static void become(char *const argv[], int out, bool both)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(both ? out : nowhere, STDERR_FILENO);
    setpgid(0, 0); /* what it starts ends with it */
    execvp(argv[0], argv);
    _exit(127);
}

/* Reads to the end of file; false when the time is up first. What does not fit is read and
 * dropped. */
static bool drain(int fd, char *out, size_t size, uint64_t deadline)
{
    size_t used = 0;
    char rest[4096];
    for (;;) {
        uint64_t now = now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= deadline)
            return false;
        if (poll(&p, 1, (int)(deadline - now)) <= 0)
            continue;
        bool room = used + 1 < size;
        ssize_t n = read(fd, room ? out + used : rest, room ? size - 1 - used : sizeof rest);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true;
        used += room ? (size_t)n : 0;
        out[used] = '\0';
    }
}

struct child_end child_capture(char *const argv[], int both, char *out, size_t size, unsigned limit_ms)
{
    struct child_end end = {CHILD_NOT_STARTED, 0};
    int ends[2];
    *out = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return end;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(argv, ends[1], both);
    close(ends[1]);
    if (pid > 0) {
        uint64_t deadline = now_ms() + limit_ms;
        bool whole = drain(ends[0], out, size, deadline);
        end.how = CHILD_ENDED;
        if (!whole)
            kill(-pid, SIGKILL);
        wait_all(&pid, 1, whole ? limit_ms : 0, &end);
        if (!whole)
            end.how = CHILD_TIMED_OUT;
    }
    close(ends[0]);
    return end;
}
