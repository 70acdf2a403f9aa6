/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tools/common/tree.h"

#define KILL_MS 2000 /* a process that hangs inside a driver does not end even when killed, and is left */

static volatile sig_atomic_t asked, to_pass_on;

/* The terminal sends its signals to the command as well; what comes from a process, only to us. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    asked = number;
    if (info->si_code <= 0)
        to_pass_on = number;
}

static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
#define WATCHED (sizeof watched / sizeof *watched)

static void watch(struct sigaction old[WATCHED])
{
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &old[i]);
        if (old[i].sa_handler != SIG_IGN) /* nohup */
            sigaction(watched[i], &a, NULL);
    }
}

static void unwatch(const struct sigaction old[WATCHED])
{
    for (size_t i = 0; i < WATCHED; i++)
        sigaction(watched[i], &old[i], NULL);
}

static void become(char *const argv[], int out, int err)
{
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    if (err >= 0)
        dup2(err, STDERR_FILENO);
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct watch {
    pid_t pid; /* 0: it has ended, with `status` */
    int status;
    uint64_t asked_at; /* 0: not yet */
};

/* Also takes what the command left behind when it ended: we are its subreaper. */
static void reap(struct watch *w)
{
    int status = 0;
    pid_t got;
    while ((got = waitpid(-1, &status, WNOHANG)) > 0)
        if (got == w->pid) {
            w->pid = 0;
            w->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
    if (got < 0 && w->pid && errno == ECHILD) /* whoever started us ignores SIGCHLD: the status is lost */
        *w = (struct watch){.status = 127, .asked_at = w->asked_at};
}

/* A command whose first process ends at a signal may leave its ranks, which may be in groups and
 * sessions of their own: the signal goes to all of them. True: none is left, or nothing more can be
 * done. */
static bool end_all(struct watch *w)
{
    uint64_t now = now_ms();
    int number = to_pass_on;
    to_pass_on = 0;
    w->asked_at = w->asked_at ? w->asked_at : now;
    if (now < w->asked_at + JOB_GRACE_MS)
        return tree_signal(number) == 0 && !w->pid;
    w->status = w->pid ? 128 + asked : w->status;
    return tree_signal(SIGKILL) == 0 || now >= w->asked_at + JOB_GRACE_MS + KILL_MS;
}

static int wait_for(pid_t pid, void (*tick)(void *), void *ctx)
{
    struct watch w = {.pid = pid};
    for (;;) {
        reap(&w);
        if (asked ? end_all(&w) : !w.pid)
            return w.status;
        if (tick)
            tick(ctx);
        /* Ends early when the child ends: SIGCHLD is blocked while a command runs. */
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = JOB_TICK_MS * 1000000L});
    }
}

/* In the child a signal must not reach our handler, which would forget it there. */
static pid_t start(char *const argv[], int out, int err, const struct sigaction old[WATCHED], const sigset_t *before)
{
    sigset_t all, blocked;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &blocked);
    pid_t pid = fork();
    if (pid == 0) {
        unwatch(old);
        sigprocmask(SIG_SETMASK, before, NULL);
        become(argv, out, err);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    return pid;
}

int job_run(char *const argv[], int out, int err, void (*tick)(void *), void *ctx)
{
    struct sigaction old[WATCHED];
    sigset_t chld, before;
    if (asked)
        return 128 + asked;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    watch(old);
    fflush(NULL);
    pid_t pid = start(argv, out, err, old, &before);
    int status = 127;
    if (pid < 0)
        fprintf(stderr, "%s: no process: %s\n", argv[0], strerror(errno));
    if (pid > 0)
        status = wait_for(pid, tick, ctx);
    unwatch(old);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

int job_interrupted(void)
{
    return asked;
}

int job_folder(const char *who, char *path, size_t size)
{
    const char *named = getenv("TMPDIR"), *tmp = named && *named ? named : "/tmp";
    int n = snprintf(path, size, "%s/slipring-XXXXXX", tmp);
    int error = n < 0 || (size_t)n >= size ? ENAMETOOLONG : mkdtemp(path) ? 0 : errno;
    if (error)
        fprintf(stderr, "%s: no folder for temporary files in %s%s: %s; TMPDIR can name another place\n", who, tmp,
                tmp == named ? " (TMPDIR)" : "", strerror(error));
    return -error;
}

bool job_can_write(const char *who, const char *path)
{
    const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags | O_CREAT | O_EXCL, 0666);
    const bool made = fd >= 0;
    if (!made && errno == EEXIST)
        fd = open(path, flags);
    const int error = fd >= 0 || errno == ENXIO ? 0 : errno; /* ENXIO: a pipe that nobody reads yet */
    if (fd >= 0)
        close(fd);
    if (made)
        unlink(path);
    if (error)
        fprintf(stderr, "%s: %s can not be written: %s\n", who, path, strerror(error));
    return !error;
}

void job_folder_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(path);
}
