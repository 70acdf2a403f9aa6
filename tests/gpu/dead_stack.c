/* SPDX-License-Identifier: Apache-2.0 */
#include "dead_stack.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DEEP = 64, PAUSE_MS = 30 };

static void show_own(int signal)
{
    void *frames[DEEP];
    const int saved = errno;
    (void)signal;
    backtrace_symbols_fd(frames, backtrace(frames, DEEP), STDERR_FILENO);
    errno = saved;
}

void dead_stack_ready(void)
{
    void *frame;
    const struct sigaction action = {.sa_handler = show_own, .sa_flags = SA_RESTART};
    backtrace(&frame, 1); /* the first one loads a library, which a handler must not */
    sigaction(SIGUSR2, &action, NULL);
}

static void show_line(const char *task, const char *what)
{
    char path[128], line[256] = "";
    snprintf(path, sizeof path, "%s/%s", task, what);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(line, sizeof line, f))
        fprintf(stderr, " %s: %.*s", what, (int)strcspn(line, "\n"), line);
    fclose(f);
}

void dead_stack_show(pid_t pid)
{
    char tasks[64], task[96];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(tasks);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int tid = atoi(e->d_name);
        if (tid <= 0)
            continue;
        snprintf(task, sizeof task, "%s/%d", tasks, tid);
        fprintf(stderr, "dead: pid %d thread %d", (int)pid, tid);
        show_line(task, "comm");
        show_line(task, "wchan");
        show_line(task, "syscall");
        fputc('\n', stderr);
        syscall(SYS_tgkill, pid, tid, SIGUSR2);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL); /* one after another on stderr */
    }
    if (dir)
        closedir(dir);
}
