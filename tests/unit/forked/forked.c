/* SPDX-License-Identifier: Apache-2.0 */
#include "criterion/criterion.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct forked_test *tests;
static struct forked_suite *suites;
static _Atomic int failures;

void forked_register(struct forked_test *test)
{
    test->next = tests;
    tests = test;
}

void forked_register_suite(struct forked_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

void forked_fail(bool fatal, const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s:%d: failed: %s ", file, line, what);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    failures++;
    if (fatal)
        exit(1);
}

static const struct forked_options *suite_options(const struct forked_test *test)
{
    static const struct forked_options none;
    for (const struct forked_suite *s = suites; s; s = s->next)
        if (strcmp(s->name, test->suite) == 0)
            return &s->options;
    return &none;
}

static void call(void (*fn)(void))
{
    if (fn)
        fn();
}

/* Time limits are for programs at full speed; a sanitizer's are several times slower. */
#define SLOWER 5

static void run_here(const struct forked_test *test)
{
    const struct forked_options *o = &test->options, *suite = suite_options(test);
    double limit = o->timeout > 0 ? o->timeout : suite->timeout;
    alarm(limit > 0 ? (unsigned)(SLOWER * limit) + 1 : 100);
    call(suite->init);
    call(o->init);
    test->body();
    call(o->fini);
    call(suite->fini);
    exit(failures > 0 ? 1 : o->exit_code); /* not _exit: the sanitizer reports at exit */
}

static bool passes(const struct forked_test *test)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_here(test);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    if (test->options.signal)
        return WIFSIGNALED(status) && WTERMSIG(status) == test->options.signal;
    return WIFEXITED(status) && WEXITSTATUS(status) == test->options.exit_code;
}

int main(void)
{
    int run = 0, bad = 0;
    for (const struct forked_test *test = tests; test; test = test->next) {
        if (test->options.disabled)
            continue;
        run++;
        if (!passes(test)) {
            fprintf(stderr, "FAIL %s::%s\n", test->suite, test->name);
            bad++;
        }
    }
    fprintf(stderr, "tests: %d, failed: %d\n", run, bad);
    return bad > 0 || run == 0;
}
