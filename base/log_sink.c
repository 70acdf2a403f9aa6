/* SPDX-License-Identifier: Apache-2.0 */
/* Where lines go. The file is opened at the first line, and the descriptor is checked before each
 * write: a program that closes descriptors that it did not open (daemons do) must not find log
 * lines in a file of its own. */
#include "base/log_internal.h"
#include "base/once.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Programs count on the lowest free descriptors. */
enum { LOWEST_FD = 100 };

static struct slr_once opened;
static _Atomic int sink_fd = -1;
static _Atomic uint64_t sink_dev, sink_ino;

struct path {
    char text[PATH_MAX];
    size_t len; /* PATH_MAX: too long */
};

static void put(struct path *p, const char *text, size_t len)
{
    if (len >= sizeof p->text - p->len) {
        p->len = sizeof p->text - 1;
        p->text[p->len] = '\0';
        errno = ENAMETOOLONG;
        return;
    }
    memcpy(p->text + p->len, text, len);
    p->len += len;
    p->text[p->len] = '\0';
}

static void put_number(struct path *p, unsigned n)
{
    char buf[12];
    size_t at = sizeof buf;
    do
        buf[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    put(p, buf + at, sizeof buf - at);
}

static void put_rank(struct path *p)
{
    const char *starters = slr_log_starter_rank();
    if (slr_log_rank() >= 0)
        put_number(p, (unsigned)slr_log_rank());
    else if (starters)
        put(p, starters, strlen(starters));
    else
        put(p, "none", 4);
}

static void put_host(struct path *p)
{
    char host[128];
    slr_log_host(host, sizeof host);
    put(p, host, strcspn(host, "/"));
}

static void expand(struct path *p, const char *pattern)
{
    p->len = 0;
    p->text[0] = '\0';
    for (const char *at = pattern; *at; at++) {
        char what = at[0] == '%' ? at[1] : '\0';
        if (what == 'h')
            put_host(p);
        else if (what == 'p')
            put_number(p, (unsigned)getpid());
        else if (what == 'r')
            put_rank(p);
        else
            put(p, at, 1);
        at += what == 'h' || what == 'p' || what == 'r' || what == '%';
    }
}

/* O_NONBLOCK: a FIFO that nobody reads must not stop the program; taken off again so that a slow
 * reader loses no lines. */
static int open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

static const char *error_text(int error)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
    const char *text = strerrordesc_np(error); /* strerror may allocate, for its translation */
    return text ? text : "unknown error";
#else
    return strerror(error);
#endif
}

/* A pipe that nobody reads raises SIGPIPE, which would end a program that never wrote to it itself:
 * the signal is held back. */
void slr_write_quietly(int fd, const char *line, size_t len)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t wrote;
    do
        wrote = write(fd, line, len);
    while (wrote < 0 && errno == EINTR);
    if (wrote < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

__attribute__((format(printf, 1, 2))) static void tell_stderr(const char *fmt, ...)
{
    char line[SLR_LOG_LINE];
    struct slr_args args;
    va_start(args.list, fmt);
    size_t len = slr_line_format(line, SLR_LOG_ERROR, "log_file", fmt, &args);
    va_end(args.list);
    slr_write_quietly(STDERR_FILENO, line, len);
}

static void open_sink(void)
{
    const char *pattern = slr_settings()->text[SLR_S_LOG_FILE];
    struct path path;
    struct stat st;
    int fd = STDERR_FILENO;
    if (*pattern) {
        expand(&path, pattern);
        fd = path.len < sizeof path.text - 1 ? open_file(path.text) : -1;
        if (fd < 0) {
            tell_stderr("file=%s msg=can not be opened (%s); the log goes to stderr", path.text, error_text(errno));
            fd = STDERR_FILENO;
        }
    }
    /* Before the descriptor is published: is_still_ours compares with them. */
    if (fstat(fd, &st) == 0) {
        atomic_store_explicit(&sink_dev, st.st_dev, memory_order_relaxed);
        atomic_store_explicit(&sink_ino, st.st_ino, memory_order_relaxed);
    }
    atomic_store_explicit(&sink_fd, fd, memory_order_relaxed);
}

/* stderr is the program's own to redirect. */
static bool is_still_ours(int fd)
{
    struct stat st;
    return fd == STDERR_FILENO ||
           (fstat(fd, &st) == 0 && st.st_dev == atomic_load_explicit(&sink_dev, memory_order_relaxed) &&
            st.st_ino == atomic_load_explicit(&sink_ino, memory_order_relaxed));
}

static void forget_sink(int fd)
{
    /* Only by who sees the old descriptor: another thread may have opened anew already. */
    if (atomic_compare_exchange_strong(&sink_fd, &fd, -1))
        atomic_store_explicit(&opened.word, 0, memory_order_release);
}

static int ready_sink(void)
{
    if (slr_once_begin(&opened)) {
        open_sink();
        slr_once_end(&opened);
    }
    return atomic_load_explicit(&sink_fd, memory_order_relaxed);
}

void slr_sink_write(const char *line, size_t len)
{
    int fd = ready_sink();
    if (fd >= 0 && !is_still_ours(fd)) {
        forget_sink(fd);
        fd = ready_sink();
    }
    if (fd >= 0)
        slr_write_quietly(fd, line, len);
}

void slr_sink_after_fork(void)
{
    int fd = atomic_load_explicit(&sink_fd, memory_order_relaxed);
    /* %p in the name means another file for the child. */
    if (fd > STDERR_FILENO && is_still_ours(fd))
        close(fd);
    atomic_store_explicit(&sink_fd, -1, memory_order_relaxed);
    atomic_store_explicit(&opened.word, 0, memory_order_release);
}
