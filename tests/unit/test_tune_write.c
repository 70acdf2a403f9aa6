/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/tuner/tune_impl.h: files, locks, and calls of the system that fail. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The n-th call from here fails so; 0: none. */
static struct {
    int write, fsync, rename, link, error;
} fail;

static bool fails(int *left)
{
    return *left > 0 && --*left == 0;
}

static ssize_t faulty_write(int fd, const void *at, size_t n)
{
    if (fails(&fail.write)) {
        errno = fail.error;
        return -1;
    }
    return write(fd, at, n > 7 ? n / 2 : n); /* in pieces, as a system may */
}

static int faulty_fsync(int fd)
{
    if (!fails(&fail.fsync))
        return fsync(fd);
    errno = fail.error;
    return -1;
}

static int faulty_rename(const char *from, const char *to)
{
    if (!fails(&fail.rename))
        return rename(from, to);
    errno = fail.error;
    return -1;
}

static int faulty_link(const char *from, const char *to)
{
    if (!fails(&fail.link))
        return link(from, to);
    errno = fail.error;
    return -1;
}

#define write faulty_write
#define fsync faulty_fsync
#define rename faulty_rename
#define link faulty_link
#include "plugin/tuner/tune_write.c"
#undef write
#undef fsync
#undef rename
#undef link

static char folder[64], path[128];

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/tune_write.XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/t", folder);
    memset(&fail, 0, sizeof fail);
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(tune_write, .init = begin, .fini = end, .timeout = 60);

static struct slr_tune_site rule(uint64_t bytes)
{
    return (struct slr_tune_site){.bytes = {bytes, bytes}, .ranks = {2, 2}, .gpu = "g", .ways = 1, .setup = 1};
}

static int add_rule(uint64_t bytes)
{
    struct slr_tune_site r = rule(bytes);
    struct slr_tune_error error;
    int rc = slr_tune_write(path, &r, 1, &error);
    cr_assert(rc == 0 || rc == -EAGAIN || error.text[0], "no reason");
    return rc;
}

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool holds(const char *part)
{
    static char text[SLR_TUNE_MAX_BYTES];
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return strstr(text, part) != NULL;
}

/* A table, and so many rules for sites. */
static void expect_rules(size_t n)
{
    struct slr_tune_table t;
    struct slr_tune_error e;
    cr_assert_eq(slr_tune_load(&t, path, &e), 0, "line %d: %s", e.line, e.text);
    cr_expect_eq(t.sites, n, "%zu rules", t.sites);
    slr_tune_free(&t);
}

static int files(void)
{
    char command[128];
    int n = -1;
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *p = popen(command, "r");
    cr_assert(p && fscanf(p, "%d", &n) == 1 && pclose(p) == 0);
    return n;
}

Test(tune_write, makes_a_file_and_adds_to_it)
{
    mode_t old = umask(027);
    struct stat st;
    cr_assert_eq(add_rule(1), 0);
    umask(old);
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640, "mode %o", st.st_mode);
    cr_assert_eq(chmod(path, 0604), 0);
    cr_assert_eq(add_rule(2), 0);
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0604, "mode %o", st.st_mode);
    expect_rules(2);
    cr_assert_eq(files(), 1);
}

/* Whatever fails, the file is as it was, or is not there, and nothing else is left. */
Test(tune_write, what_fails_leaves_the_file_as_it_was)
{
    for (int there = 0; there < 2; there++)
        for (int which = 0; which < 5; which++) {
            unlink(path);
            if (there)
                put("# mine\n");
            memset(&fail, 0, sizeof fail);
            fail.error = ENOSPC;
            fail.write = which == 0 ? 1 : which == 1 ? 3 : 0;
            fail.fsync = which == 2;
            fail.rename = which == 3 || which == 4;
            fail.link = which == 3 && !there;
            const bool harmless = which == 4 && !there; /* a new file needs no renaming */
            cr_assert_eq(add_rule(1), harmless ? 0 : -ENOSPC, "there %d, which %d", there, which);
            cr_expect_eq(holds("site"), harmless);
            cr_expect_eq(holds("# mine\n"), there == 1);
            cr_expect_eq(files(), there || harmless, "there %d, which %d", there, which);
        }
}

/* Without links a new file is renamed into its place. */
Test(tune_write, a_file_system_without_links)
{
    fail.link = 1;
    fail.error = EPERM;
    cr_assert_eq(add_rule(1), 0);
    expect_rules(1);
    cr_assert_eq(files(), 1);
}

Test(tune_write, interrupted_and_partial_writes_go_on)
{
    fail.write = 2;
    fail.error = EINTR;
    cr_assert_eq(add_rule(1), 0);
    expect_rules(1);
}

Test(tune_write, a_limit_of_file_sizes)
{
    struct rlimit limit = {64, 64};
    put("# mine\n");
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(add_rule(1), -EFBIG);
    cr_assert(holds("# mine\n") && files() == 1);
}

Test(tune_write, a_symbolic_link_stays)
{
    char target[128];
    struct stat st;
    snprintf(target, sizeof target, "%s/real", folder);
    cr_assert_eq(symlink("real", path), 0);
    cr_assert_eq(add_rule(1), -EEXIST, "it points nowhere");
    cr_assert_eq(files(), 1);
    FILE *f = fopen(target, "w");
    cr_assert(f && fputs("# real\n", f) >= 0 && fclose(f) == 0);
    cr_assert_eq(add_rule(1), 0);
    cr_assert(lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && holds("# real\n") && holds("site"));
    cr_assert(lstat(target, &st) == 0 && S_ISREG(st.st_mode) && files() == 2);
}

Test(tune_write, what_is_no_file_or_has_no_folder)
{
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(add_rule(1), -EISDIR);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(add_rule(1), -EINVAL, "and it does not wait");
    snprintf(path, sizeof path, "%s/none/t", folder);
    cr_assert_eq(add_rule(1), -ENOENT);
    snprintf(path, sizeof path, "/dev/full");
    cr_assert_eq(add_rule(1), -EINVAL);
}

Test(tune_write, a_broken_file_stays)
{
    put("# x\nfly\n");
    struct slr_tune_site r = rule(1);
    struct slr_tune_error error;
    cr_assert_eq(slr_tune_write(path, &r, 1, &error), -EINVAL);
    cr_assert(error.line == 2 && holds("# x\nfly\n") && files() == 1);
}

Test(tune_write, a_lock_is_not_waited_for)
{
    put("# mine\n");
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
    cr_assert_eq(add_rule(1), -EAGAIN);
    close(fd);
    cr_assert_eq(add_rule(1), 0);
}

enum { WRITERS = 6, EACH = 25 };

static void write_many(int writer)
{
    for (int i = 0; i < EACH;) {
        struct slr_tune_site r = rule((uint64_t)(writer * EACH + i + 1));
        struct slr_tune_error error;
        int rc = slr_tune_write(path, &r, 1, &error);
        i += rc == 0;
        if (rc && rc != -EAGAIN)
            _exit(1);
        if (rc)
            usleep(200);
    }
    _exit(0);
}

/* Nothing that one of them adds is lost, whether there is a file when they begin or not; and who reads
 * meanwhile has a whole table. */
Test(tune_write, several_processes_at_once)
{
    for (int there = 0; there < 2; there++) {
        int running = WRITERS, status;
        if (there)
            put("# mine\n");
        for (int w = 0; w < WRITERS; w++)
            if (fork() == 0)
                write_many(w);
        while (running) {
            struct slr_tune_table t;
            struct slr_tune_error e;
            int rc = slr_tune_load(&t, path, &e);
            cr_assert(rc == 0 || rc == -ENOENT, "line %d: %s", e.line, e.text);
            slr_tune_free(&t);
            if (waitpid(-1, &status, WNOHANG) > 0) {
                cr_assert_eq(status, 0);
                running--;
            }
        }
        expect_rules(WRITERS * EACH);
        cr_assert_eq(files(), 1);
        unlink(path);
    }
}

/* The old table or the new one, at whatever moment a writer is killed. */
Test(tune_write, killed_in_the_middle)
{
    put("# mine\n");
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0)
            write_many(i);
        usleep((useconds_t)(i * 7 % 900));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct slr_tune_table t;
        struct slr_tune_error e;
        cr_assert_eq(slr_tune_load(&t, path, &e), 0, "line %d: %s", e.line, e.text);
        slr_tune_free(&t);
        cr_assert(holds("# mine\n"));
    }
    cr_assert_eq(add_rule(1), 0, "a lock of a process that is gone is none");
}
