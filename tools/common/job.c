/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked, child;

/* The terminal sends its signals to the command as well; what comes from a process, only to us. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    asked = number;
    if (child > 0 && info->si_code <= 0)
        kill((pid_t)child, number);
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

static int wait_for(pid_t pid, void (*tick)(void *), void *ctx)
{
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (got < 0 && errno != EINTR)
            return 127;
        if (tick)
            tick(ctx);
        /* Ends early when the child ends: SIGCHLD is blocked while a command runs. */
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = JOB_TICK_MS * 1000000L});
    }
}

int job_run(char *const argv[], int out, int err, void (*tick)(void *), void *ctx)
{
    struct sigaction old[WATCHED];
    sigset_t chld, before;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &before);
    child = 0;
    watch(old);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        unwatch(old);
        sigprocmask(SIG_SETMASK, &before, NULL);
        become(argv, out, err);
    }
    int status = 127;
    if (pid < 0)
        fprintf(stderr, "%s: no process: %s\n", argv[0], strerror(errno));
    child = pid;
    if (pid > 0)
        status = wait_for(pid, tick, ctx);
    child = 0;
    unwatch(old);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

int job_interrupted(void)
{
    return asked;
}

int job_folder(char *path, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/slipring-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    return mkdtemp(path) ? 0 : -errno;
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
