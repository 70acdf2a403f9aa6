/* The part of Criterion that these tests use, for builds with ThreadSanitizer: Criterion places a memory arena at an
 * address that ThreadSanitizer's shadow occupies. Each test runs in a forked child, as with Criterion. */
#ifndef SOFTGPU_TEST_PLAIN_H
#define SOFTGPU_TEST_PLAIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct plain_options {
    void (*init)(void);
    int signal, timeout;
};
static struct plain_test {
    const char *name;
    void (*run)(void);
    struct plain_options options;
    struct plain_test *next;
} * plain_tests;

#define TestSuite(suite, ...) _Static_assert(1, "options of a suite are not needed here")
#define Test(suite, test, ...)                                                                                         \
    static void suite##_##test(void);                                                                                  \
    static struct plain_test suite##_##test##_entry = {#suite "/" #test, suite##_##test, {__VA_ARGS__}, NULL};         \
    __attribute__((constructor)) static void suite##_##test##_register(void)                                           \
    {                                                                                                                  \
        suite##_##test##_entry.next = plain_tests;                                                                     \
        plain_tests = &suite##_##test##_entry;                                                                         \
    }                                                                                                                  \
    static void suite##_##test(void)

#define cr_assert(condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #condition);                          \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b))
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b))
#define cr_assert_null(a, ...) cr_assert(!(a))
#define cr_assert_str_eq(a, b, ...) cr_assert(!strcmp(a, b))
#define cr_assert_arr_eq(a, b, n, ...) cr_assert(!memcmp(a, b, n))
#define cr_assert_arr_neq(a, b, n, ...) cr_assert(memcmp(a, b, n))

static int plain_run(const struct plain_test *t)
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        alarm(120);
        if (t->options.init)
            t->options.init();
        t->run();
        exit(0); /* not _exit: the sanitizer reports when the process ends */
    }
    waitpid(pid, &status, 0);
    if (t->options.signal ? WIFSIGNALED(status) && WTERMSIG(status) == t->options.signal
                          : WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    fprintf(stderr, "FAILED: %s (status %#x)\n", t->name, status);
    return 1;
}

int main(void)
{
    int failed = 0, count = 0;
    for (struct plain_test *t = plain_tests; t; t = t->next, count++)
        failed += plain_run(t);
    fprintf(stderr, "%d tests, %d failed\n", count, failed);
    return failed != 0;
}

#endif
