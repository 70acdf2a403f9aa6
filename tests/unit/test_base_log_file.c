/* SPDX-License-Identifier: Apache-2.0 */
/* Where lines go: file names, failures, several threads, fork. */
#include "base/log.h"
#include "log_helpers.h"
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *folder;

static char *in_folder(const char *name)
{
    static char paths[4][300];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void begin(const char *pattern)
{
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        unsetenv(ranks[i]);
    folder = make_folder();
    use_file(in_folder(pattern), "info", "text");
}

static void line(void)
{
    slr_log(SLR_LOG_INFO, "event", "a=%d", 1);
}

Test(file, nothing_logged_leaves_no_file)
{
    begin("log");
    slr_log(SLR_LOG_DEBUG, "event", "a=%d", 1);
    cr_expect_not(slr_log_enabled(SLR_LOG_DEBUG));
    slr_log_set_rank(1);
    cr_expect_not(exists("log"));
    line();
    cr_expect(exists("log"));
    remove_folder(folder);
}

Test(file, host_and_process_in_the_name)
{
    char host[100], want[200];
    begin("%h.%p.%%.%x.%");
    line();
    gethostname(host, sizeof host);
    snprintf(want, sizeof want, "%s.%d.%%.%%x.%%", host, getpid());
    cr_expect(exists(want), "%s", want);
    remove_folder(folder);
}

Test(file, rank_of_the_communicator_goes_before_the_environment)
{
    begin("log.%r");
    setenv("RANK", "7", 1);
    slr_log_set_rank(12);
    line();
    cr_expect(exists("log.12"));
    remove_folder(folder);
}

Test(file, rank_of_the_job_starter)
{
    begin("log.%r");
    setenv("SLURM_PROCID", "4", 1);
    setenv("RANK", "../x", 1);
    line();
    cr_expect(exists("log.4"), "a RANK that is not a number is not used");
    remove_folder(folder);
}

Test(file, no_rank_at_all)
{
    begin("log.%r");
    line();
    cr_expect(exists("log.none"));
    remove_folder(folder);
}

Test(file, mode_and_descriptor)
{
    struct stat file, st;
    int found = 0;
    begin("log");
    umask(022);
    line();
    cr_assert_eq(stat(in_folder("log"), &file), 0);
    cr_expect_eq(file.st_mode & 0777, 0644);
    for (int fd = 0; fd < 200; fd++) {
        if (fstat(fd, &st) != 0 || st.st_ino != file.st_ino || st.st_dev != file.st_dev)
            continue;
        found++;
        cr_expect_geq(fd, 100, "low descriptors stay free");
        cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    cr_expect_eq(found, 1);
    remove_folder(folder);
}

Test(file, it_is_appended_to)
{
    begin("log");
    FILE *out = fopen(in_folder("log"), "w");
    fputs("before\n", out);
    fclose(out);
    line();
    char *text = slurp(in_folder("log"));
    cr_expect_eq(strncmp(text, "before\nslipring[", 16), 0, "%s", text);
    free(text);
    remove_folder(folder);
}

Test(file, a_file_that_can_not_be_opened_is_told_and_stderr_used)
{
    begin("no/such/log.%p");
    char *err = in_folder("err");
    redirect_stderr(err);
    line();
    line();
    char want[100], *text = slurp(err), *first = strstr(text, "error log_file file=");
    snprintf(want, sizeof want, "no/such/log.%d", getpid());
    cr_assert_not_null(first, "%s", text);
    cr_expect_not_null(strstr(first, want));
    cr_expect_not_null(strstr(first, "No such file or directory"));
    cr_expect_null(strstr(first + 1, "error log_file"), "told once");
    char *event = strstr(first, "info event a=1\n");
    cr_assert_not_null(event);
    cr_expect_not_null(strstr(event + 1, "info event a=1\n"));
    free(text);
    remove_folder(folder);
}

Test(file, stderr_is_the_default_and_stdout_stays_empty)
{
    begin("log");
    unsetenv("SLIPRING_LOG_FILE");
    int out = open(in_folder("out"), O_WRONLY | O_CREAT, 0600);
    dup2(out, STDOUT_FILENO);
    redirect_stderr(in_folder("err"));
    line();
    struct stat st;
    fstat(out, &st);
    cr_expect_eq(st.st_size, 0);
    char *text = slurp(in_folder("err"));
    cr_expect_not_null(strstr(text, "info event a=1\n"));
    free(text);
    remove_folder(folder);
}

Test(file, settings_problems_are_logged)
{
    begin("log");
    setenv("SLIPRING_STRICKT", "1", 1);
    setenv("SLIPRING_CHUNKS", "many", 1);
    line();
    char *text = slurp(in_folder("log"));
    cr_expect_not_null(strstr(text, "warn setting name=SLIPRING_STRICKT value=1"));
    cr_expect_not_null(strstr(text, "nearest=SLIPRING_STRICT "));
    cr_expect_not_null(strstr(text, "name=SLIPRING_CHUNKS value=many expected=\"a whole number from 0 to 64\""));
    free(text);
    remove_folder(folder);
}

/* Daemons close all descriptors; the number may then belong to a file of the program. */
Test(file, a_closed_descriptor_is_noticed)
{
    begin("log");
    line();
    for (int fd = 100; fd < 110; fd++)
        close(fd);
    int own = open(in_folder("own"), O_WRONLY | O_CREAT, 0600);
    for (int fd = 100; fd < 110; fd++)
        dup2(own, fd);
    line();
    char *text = slurp(in_folder("own"));
    cr_expect_str_eq(text, "", "a line in the program's own file: %s", text);
    free(text);
    text = slurp(in_folder("log"));
    char *first = strstr(text, "info event");
    cr_expect_not_null(first);
    cr_expect_not_null(strstr(first + 1, "info event"), "the second line is in the log as well");
    free(text);
    remove_folder(folder);
}

/* A reader that went away (`program 2>&1 | head`) must not end the program. */
Test(file, a_broken_pipe_does_not_kill)
{
    int ends[2];
    begin("log");
    unsetenv("SLIPRING_LOG_FILE");
    cr_assert_eq(pipe(ends), 0);
    int keep = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    signal(SIGPIPE, SIG_DFL);
    line();
    sigset_t pending, mask;
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    dup2(keep, STDERR_FILENO);
    cr_expect_not(sigismember(&pending, SIGPIPE));
    cr_expect_not(sigismember(&mask, SIGPIPE));
    remove_folder(folder);
}

enum { THREADS = 8, LINES = 500 };

static void *write_lines(void *arg)
{
    char filler[200];
    memset(filler, 'a' + (int)(intptr_t)arg, sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    for (int i = 0; i < LINES; i++)
        slr_log(SLR_LOG_INFO, "event", "thread=%d line=%d s=%s", (int)(intptr_t)arg, i, filler);
    return NULL;
}

/* Every line is whole, and each thread's lines are all there, in order. */
static void check_lines(char *text)
{
    int next[THREADS] = {0}, total = 0;
    for (char *at = text, *newline; *at; at = newline + 1, total++) {
        char filler[201];
        int thread, number;
        newline = strchr(at, '\n');
        cr_assert_not_null(newline);
        *newline = '\0';
        char *fields = strstr(at, "] info event ");
        cr_assert_eq(strncmp(at, "slipring[", 9), 0, "%s", at);
        cr_assert_not_null(fields, "%s", at);
        cr_assert_eq(sscanf(fields, "] info event thread=%d line=%d s=%200s", &thread, &number, filler), 3, "%s", at);
        cr_assert_eq(number, next[thread]++);
        cr_assert_eq(strlen(filler), 199);
        cr_assert_eq(filler[198], 'a' + thread);
    }
    cr_expect_eq(total, THREADS * LINES);
}

Test(file, lines_of_threads_do_not_interleave)
{
    pthread_t threads[THREADS];
    begin("log");
    for (intptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_lines, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = slurp(in_folder("log"));
    check_lines(text);
    free(text);
    remove_folder(folder);
}

static void *count_firsts(void *arg)
{
    int *mine = arg;
    for (uint64_t key = 1; key <= 3000; key++)
        *mine += slr_log_first(key);
    return NULL;
}

Test(file, only_one_thread_is_first)
{
    pthread_t threads[THREADS];
    int counts[THREADS] = {0}, total = 0;
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, count_firsts, &counts[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += counts[i];
    }
    cr_expect_eq(total, 3000);
}

Test(file, a_child_has_its_own_file)
{
    char name[40];
    int status;
    begin("log.%p");
    line();
    cr_expect(slr_log_first(77));
    pid_t child = fork();
    if (child == 0) {
        slr_log_after_fork();
        line();
        _exit(slr_log_first(77) ? 1 : 0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0, "seen keys are kept");
    snprintf(name, sizeof name, "log.%d", child);
    char *text = slurp(in_folder(name));
    cr_assert_not_null(text);
    snprintf(name, sizeof name, ":%d] info event a=1\n", child);
    cr_expect_not_null(strstr(text, name));
    free(text);
    line();
    snprintf(name, sizeof name, "log.%d", getpid());
    text = slurp(in_folder(name));
    cr_expect_not_null(strstr(strstr(text, "event") + 1, "event"), "the parent still has its own");
    free(text);
    remove_folder(folder);
}

Test(file, a_full_disk_is_told)
{
    begin("log");
    use_file("/dev/full", "info", "json");
    redirect_stderr(in_folder("err"));
    line();
    line();
    slr_log_set_rank(3);
    slr_log_tell_lost();
    char *text = slurp(in_folder("err"));
    cr_expect_str_eq(text, "slipring: lines of the log can not be written (No space left on device)\n"
                           "slipring: rank 3: 2 lines of the log could not be written\n");
    free(text);
    remove_folder(folder);
}

Test(file, errors_reach_stderr_as_well)
{
    begin("log");
    use_file(in_folder("log"), "info", "json");
    redirect_stderr(in_folder("err"));
    line();
    slr_log(SLR_LOG_WARN, "event", "a=%d", 2);
    slr_log(SLR_LOG_ERROR, "event", "a=%d b=%s", 3, "x");
    slr_log_tell_lost();
    char *text = slurp(in_folder("err")), *log = slurp(in_folder("log"));
    cr_expect(strstr(text, " error event a=3 b=x\n"), "%s", text);
    cr_expect_null(strstr(text, "a=1"), "%s", text);
    cr_expect_null(strstr(text, "a=2"), "%s", text);
    cr_expect_null(strstr(text, "could not be written"), "%s", text);
    cr_expect(strstr(log, "\"level\":\"error\",\"event\":\"event\",\"a\":3,\"b\":\"x\"}"), "%s", log);
    free(text);
    free(log);
    remove_folder(folder);
}
