/* SPDX-License-Identifier: Apache-2.0 */
/* The file is opened at the first line, and the descriptor is checked before each write: a program
 * that closes descriptors that it did not open (daemons do) must not find log lines in a file of its
 * own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/hash.h"
#include "base/settings.h"
#include "base/wait.h"

/* ---- where lines go ---- */

/* Programs count on the lowest free descriptors. */
enum { LOWEST_FD = 100 };

static struct slr_once opened;
static _Atomic int sink_fd = -1;
static _Atomic uint64_t sink_dev, sink_ino;

struct path {
    char text[PATH_MAX];
    size_t len; /* PATH_MAX: too long */
};

__attribute__((format(printf, 2, 3))) static void add(struct path *p, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    p->len += (size_t)vsnprintf(p->text + p->len, sizeof p->text - p->len, fmt, list);
    va_end(list);
    if (p->len >= sizeof p->text) {
        p->len = sizeof p->text - 1;
        errno = ENAMETOOLONG;
    }
}

static void add_rank(struct path *p)
{
    const char *starters = slr_log_starter_rank();
    if (slr_log_rank() >= 0)
        add(p, "%d", slr_log_rank());
    else
        add(p, "%s", starters ? starters : "none");
}

static void add_host(struct path *p)
{
    char host[128];
    slr_log_host(host, sizeof host);
    add(p, "%.*s", (int)strcspn(host, "/"), host);
}

static void expand_pattern(struct path *p, const char *pattern)
{
    p->len = 0;
    p->text[0] = '\0';
    for (const char *at = pattern; *at; at++) {
        char what = at[0] == '%' ? at[1] : '\0';
        if (what == 'h')
            add_host(p);
        else if (what == 'p')
            add(p, "%d", (int)getpid());
        else if (what == 'r')
            add_rank(p);
        else
            add(p, "%c", *at);
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

/* 0, or an errno value. A pipe that nobody reads raises SIGPIPE, which would end a program that never wrote to it itself:
 * the signal is held back. */
static int write_quietly(int fd, const char *line, size_t len)
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
    const int error = wrote < 0 ? errno : wrote < (ssize_t)len ? ENOSPC : 0;
    if (error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static bool is_json(void)
{
    return slr_get(SLR_S_LOG_FORMAT) == 1;
}

/* Of SLR_LOG_LINE bytes; its length. */
__attribute__((format(printf, 4, 5))) static size_t format_line(char *line, enum slr_log_level level, const char *event,
                                                                const char *fmt, ...)
{
    struct slr_args args;
    va_start(args.list, fmt);
    size_t len = slr_line_format(line, is_json(), level, event, fmt, &args);
    va_end(args.list);
    return len;
}

static void tell_unopened(const char *path, int error)
{
    char line[SLR_LOG_LINE];
    write_quietly(STDERR_FILENO, line,
                  format_line(line, SLR_LOG_ERROR, "log_file",
                              "file=%s msg=can not be opened (%s); the log goes to stderr", path, error_text(error)));
}

static void open_sink(void)
{
    const char *pattern = slr_settings()->text[SLR_S_LOG_FILE];
    struct path path;
    struct stat st;
    int fd = STDERR_FILENO;
    if (*pattern) {
        expand_pattern(&path, pattern);
        fd = path.len < sizeof path.text - 1 ? open_file(path.text) : -1;
        if (fd < 0) {
            tell_unopened(path.text, errno);
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

static _Atomic uint64_t lost; /* lines that could not be written to the file */

static void note_lost(int error)
{
    char text[200];
    if (atomic_fetch_add(&lost, 1) > 0)
        return;
    snprintf(text, sizeof text, "lines of the log can not be written (%s)", error_text(error));
    slr_log_tell(STDERR_FILENO, "log_file", text);
}

void slr_log_tell_lost(void)
{
    char text[200];
    const unsigned long long n = atomic_load(&lost);
    const bool ranked = slr_log_rank() >= 0;
    if (n == 0)
        return;
    snprintf(text, sizeof text, "%s %d: %llu line%s of the log could not be written", ranked ? "rank" : "process",
             ranked ? slr_log_rank() : (int)getpid(), n, n > 1 ? "s" : "");
    slr_log_tell(STDERR_FILENO, "log_file", text);
}

/* Whether it went to a file. */
static bool sink_write(const char *line, size_t len)
{
    int fd = ready_sink();
    if (fd >= 0 && !is_still_ours(fd)) {
        forget_sink(fd);
        fd = ready_sink();
    }
    const int error = fd >= 0 ? write_quietly(fd, line, len) : 0;
    if (error && fd != STDERR_FILENO)
        note_lost(error);
    return fd != STDERR_FILENO;
}

static void sink_after_fork(void)
{
    int fd = atomic_load_explicit(&sink_fd, memory_order_relaxed);
    /* %p in the name means another file for the child. */
    if (fd > STDERR_FILENO && is_still_ours(fd))
        close(fd);
    atomic_store_explicit(&sink_fd, -1, memory_order_relaxed);
    atomic_store_explicit(&opened.word, 0, memory_order_release);
}

/* ---- levels and lines ---- */

enum { FIRST_KEYS = 4096 };

static _Atomic int known_level = -1;            /* SLIPRING_LOG, once it has been asked for */
static _Atomic uint64_t first_keys[FIRST_KEYS]; /* 0: free */
static _Atomic unsigned first_used;
/* A line written while one is being written on this thread (from a signal handler, or a hook under
 * write) is dropped. */
static _Thread_local bool writing __attribute__((tls_model("initial-exec")));

/* Told by the log and not where the settings are parsed: settings know nothing of the log. */
static void tell_problems(void)
{
    const struct slr_setting_problem *p;
    for (int i = 0; (p = slr_settings_problem(i)); i++)
        if (*p->nearest)
            slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s nearest=%s from=%s msg=%s", p->name,
                    p->value, p->expected, p->nearest, p->from, "ignored");
        else
            slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s from=%s msg=%s", p->name, p->value,
                    p->expected, p->from, "ignored");
}

/* The level is known before the problems are told, so telling them does not come back here. */
static enum slr_log_level first_level(void)
{
    static _Atomic bool told;
    enum slr_log_level level = (enum slr_log_level)slr_get(SLR_S_LOG);
    atomic_store_explicit(&known_level, (int)level, memory_order_relaxed);
    if (!atomic_exchange(&told, true))
        tell_problems();
    return level;
}

static enum slr_log_level level_now(void)
{
    int level = atomic_load_explicit(&known_level, memory_order_relaxed);
    return __builtin_expect(level >= 0, 1) ? (enum slr_log_level)level : first_level();
}

bool slr_log_enabled(enum slr_log_level level)
{
    return level != SLR_LOG_OFF && level <= level_now();
}

static void write_line(enum slr_log_level level, const char *event, const char *fmt, struct slr_args *args)
{
    char line[SLR_LOG_LINE];
    struct slr_args again;
    /* The line may be written inside a hook, whose caller reads the errno of the vendor's
     * function. */
    int saved = errno;
    if (writing)
        return;
    writing = true;
    va_copy(again.list, args->list);
    size_t len = slr_line_format(line, is_json(), level, event, fmt, args);
    if (sink_write(line, len) && level == SLR_LOG_ERROR)
        write_quietly(STDERR_FILENO, line, slr_line_format(line, false, level, event, fmt, &again));
    va_end(again.list);
    writing = false;
    errno = saved;
}

void slr_log(enum slr_log_level level, const char *event, const char *fmt, ...)
{
    struct slr_args args;
    if (!slr_log_enabled(level))
        return;
    va_start(args.list, fmt);
    write_line(level, event, fmt, &args);
    va_end(args.list);
}

void slr_log_asked(const char *event, const char *fmt, ...)
{
    struct slr_args args;
    if (level_now() == SLR_LOG_OFF)
        return;
    va_start(args.list, fmt);
    write_line(SLR_LOG_INFO, event, fmt, &args);
    va_end(args.list);
}

void slr_log_tell(int fd, const char *event, const char *text)
{
    char line[SLR_LOG_LINE];
    const bool json = is_json() && !*slr_settings()->text[SLR_S_LOG_FILE];
    if (!slr_log_enabled(SLR_LOG_WARN))
        return;
    size_t len = json ? format_line(line, SLR_LOG_INFO, event, "msg=%s", text)
                      : (size_t)snprintf(line, sizeof line, "slipring: %.*s\n", SLR_LOG_LINE - 16, text);
    write_quietly(fd, line, len);
}

/* Open addressing; keys never leave, so a free slot ends the search. */
bool slr_log_first(uint64_t key)
{
    /* 0 means free; that two keys share a word is not worth a flag. */
    uint64_t word = key ? key : UINT64_MAX;
    if (atomic_load_explicit(&first_used, memory_order_relaxed) >= FIRST_KEYS)
        return false; /* full: none is new any more, and a search would be long */
    size_t slot = slr_mix(word, 0) % FIRST_KEYS;
    for (int tries = 0; tries < FIRST_KEYS; tries++, slot = (slot + 1) % FIRST_KEYS) {
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong_explicit(&first_keys[slot], &seen, word, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            atomic_fetch_add_explicit(&first_used, 1, memory_order_relaxed);
            return true;
        }
        if (seen == word)
            return false;
    }
    return false;
}

void slr_log_after_fork(void)
{
    writing = false;
    sink_after_fork();
}
