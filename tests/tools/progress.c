/* SPDX-License-Identifier: Apache-2.0 */
/* tools/common/progress.c on a pseudo terminal and on a pipe, with a clock of the test's own. */
#include "tools/common/progress.h"

#include <errno.h>
#include <pty.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t now_ms;
static uint64_t test_clock(void)
{
    return now_ms;
}

static char seen[65536]; /* what the child wrote to stderr */
static int failures;

#define CHECK(ok)                                                                                                      \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            printf("%s:%d: not so: %s\nseen:\n%s\n", __FILE__, __LINE__, #ok, seen);                                   \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static void read_all(int fd)
{
    size_t used = 0;
    ssize_t n;
    while ((n = read(fd, seen + used, sizeof seen - 1 - used)) > 0 || (n < 0 && errno == EINTR))
        used += n > 0 ? (size_t)n : 0;
    seen[used] = '\0'; /* a terminal whose last user ended reads as EIO */
    close(fd);
}

static void finish(pid_t child, int fd)
{
    int status = 0;
    read_all(fd);
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Runs `job` in a child whose stderr is a terminal of `width` columns; 0: a pipe. */
static void run(unsigned short width, const char *term, void (*job)(void))
{
    struct winsize size = {.ws_row = 24, .ws_col = width};
    int fd = -1, ends[2] = {-1, -1};
    if (!width && pipe(ends) != 0)
        exit(2);
    pid_t child = width ? forkpty(&fd, NULL, NULL, &size) : fork();
    if (child < 0 && width) {
        fputs("no pseudo-terminal here (/dev/pts): what goes to a terminal was not tested\n", stderr);
        exit(failures ? 1 : 77);
    }
    if (child < 0)
        exit(2);
    if (child == 0) {
        if (!width)
            dup2(ends[1], STDERR_FILENO);
        setenv("TERM", term, 1);
        progress_clock_ms = test_clock;
        job();
        _exit(0);
    }
    if (!width)
        close(ends[1]);
    finish(child, width ? fd : ends[0]);
}

/* A thousand steps of 10 ms. */
static void thousand(void)
{
    struct progress *p = progress_begin("work", 1000);
    for (unsigned i = 1; i <= 1000; i++) {
        now_ms += 10;
        progress_at(p, i, i == 500 ? "half \033[31mred\n of it" : NULL);
    }
    progress_end(p, "all good");
}

static void unknown_total(void)
{
    struct progress *p = progress_begin("work", 0);
    for (unsigned i = 1; i <= 300; i++) {
        now_ms += 100;
        progress_at(p, i, "reading");
    }
    progress_end(p, NULL);
}

static void long_words(void)
{
    struct progress *p = progress_begin("work", 10);
    now_ms += 1000;
    progress_at(p, 5,
                "g\303\266ttliche W\303\266rter, viel l\303\244nger als das Fenster breit ist, und noch mehr davon");
    progress_clear(p);
    fputs("said in between\n", stderr);
    now_ms += 100;
    progress_at(p, 6, NULL);
    progress_end(p, NULL);
}

static void plain(void)
{
    struct progress *p = progress_begin("work", 0);
    progress_plain(p);
    now_ms += 10000;
    progress_at(p, 1, NULL);
    progress_end(p, NULL);
}

static unsigned count(const char *what)
{
    unsigned n = 0;
    for (const char *at = seen; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* The widest piece between carriage returns and newlines, in characters, escape sequences aside. */
static unsigned widest(void)
{
    unsigned most = 0, now = 0;
    for (const char *at = seen; *at; at++) {
        if (*at == '\033') {
            at += strcspn(at, "K");
            continue;
        }
        now = *at == '\r' || *at == '\n' ? 0 : now + ((*at & 0xc0) != 0x80);
        most = now > most ? now : most;
    }
    return most;
}

static void check_terminal(void)
{
    run(60, "xterm", thousand);
    CHECK(count("\033[K") >= 90 && count("\033[K") <= 103); /* 10 s, ten times a second */
    CHECK(strstr(seen, "\rwork: 510 of 1000 (51 %), 0:05, about 0:04 left: half ?"));
    CHECK(count("\033[") == count("\033[K"));
    CHECK(widest() <= 59);
    CHECK(strstr(seen, "\r\033[Kwork: all good (0:10)\r\n"));
    CHECK(count("\n") == 1);
}

static void check_narrow(void)
{
    run(56, "xterm", long_words);
    CHECK(widest() == 55);
    CHECK(strstr(seen, "\033[Ksaid in between\r\n"));
    CHECK(strstr(seen, "work: 6 of 10 (60 %)"));
    CHECK(strstr(seen, "g\303\266"));
}

static void check_plain(void)
{
    run(60, "xterm", plain);
    CHECK(count("\033[K") == 2); /* drawn once, and taken off */
    CHECK(strstr(seen, "\033[Kwork: 1, 0:10\r\nwork: done (0:10)\r\n"));
}

static void check_log(void)
{
    run(0, "xterm", thousand);
    CHECK(!strchr(seen, '\033') && !strchr(seen, '\r'));
    CHECK(strstr(seen, "work: begins, 1000 to do\n") == seen);
    CHECK(strstr(seen, "\nwork: 100 of 1000 (10 %), 0:01, about 0:09 left\n"));
    CHECK(strstr(seen, "\nwork: 500 of 1000 (50 %), 0:05, about 0:05 left: half ?[31mred? of it\n"));
    CHECK(strstr(seen, "\nwork: all good (0:10)\n"));
    CHECK(count("\n") == 11); /* begin, 10 % to 90 %, end */
    run(0, "xterm", unknown_total);
    CHECK(count("\n") == 5); /* begin, after 10, 20 and 30 s, end */
    CHECK(strstr(seen, "\nwork: 100, 0:10: reading\n") && strstr(seen, "\nwork: done (0:30)\n"));
}

static void check_dumb(void)
{
    run(80, "dumb", thousand);
    CHECK(!strchr(seen, '\033') && count("\n") == 11);
    run(80, "", thousand);
    CHECK(!strchr(seen, '\033') && count("\n") == 11);
}

int main(void)
{
    check_log(); /* the others want a terminal */
    check_terminal();
    check_narrow();
    check_plain();
    check_dumb();
    progress_at(NULL, 1, "x");
    progress_plain(NULL);
    progress_clear(NULL);
    progress_end(NULL, NULL);
    return failures ? 1 : 0;
}
