#include "criterion/criterion.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct forked_test *tests;
static _Atomic int failures;

void forked_register(struct forked_test *test)
{
    test->next = tests;
    tests = test;
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

static void run_here(const struct forked_test *test)
{
    const struct forked_options *o = &test->options;
    alarm(o->timeout > 0 ? (unsigned)o->timeout + 1 : 100);
    if (o->init)
        o->init();
    test->body();
    if (o->fini)
        o->fini();
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
