/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing a tune file while other processes read it, or replace it, too.
 *
 * The new text goes into a temporary file beside it, which is then renamed: who reads the file has the old text or the
 * new one, also when this process is killed or the disk is full. Who replaces it holds a lock (flock) on the file that
 * the name stands for at that time, from reading to renaming, so nothing that another one has added is lost. (On file
 * systems without such locks it may be.) A file that is not there yet is made by a link, which fails when another
 * process was faster. A symbolic link stays: what it points to is replaced. Mode and group stay as they are. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/wait.h"
#include "plugin/tuner/tune_impl.h"

#define TRIES 8 /* while others replace it as well */

struct job {
    const char *path; /* no symbolic link, if it exists */
    const struct slr_tune_site *rules;
    size_t count;
    struct slr_tune_error *error;
};

static int cannot(const struct job *job, int e, const char *what)
{
    job->error->line = 0;
    snprintf(job->error->text, sizeof job->error->text, "%s: %s", what, strerror(e));
    return -e;
}

/* errno, or EIO where a call has failed without one. */
static int why(void)
{
    return errno ? errno : EIO;
}

static bool write_whole(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Beyond the limit a write would end the program with SIGXFSZ. */
static bool is_allowed(size_t len)
{
    struct rlimit limit;
    bool good = getrlimit(RLIMIT_FSIZE, &limit) != 0 || len <= limit.rlim_cur;
    errno = EFBIG;
    return good;
}

/* As the file that it will replace; a group that this user is not in becomes that of new files. */
static bool take_mode(int fd, const struct stat *old)
{
    if (fchown(fd, (uid_t)-1, old->st_gid) != 0)
        errno = 0;
    return fchmod(fd, old->st_mode & 0777) == 0;
}

/* A temporary file with the text. 0, or a negative errno value and nothing is left. `old`: of the file
 * that it will replace; NULL: there is none. */
static int make_temporary(const struct job *job, const char *text, size_t len, const struct stat *old, char *name,
                          size_t size)
{
    if (snprintf(name, size, "%s.%d-%llx", job->path, (int)getpid(), (unsigned long long)slr_now_ns()) >= (int)size)
        return cannot(job, ENAMETOOLONG, "the name is too long");
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return cannot(job, why(), "no temporary file can be made beside it");
    bool good = (!old || take_mode(fd, old)) && is_allowed(len) && write_whole(fd, text, len) && fsync(fd) == 0;
    int e = why();
    if (close(fd) != 0 && good) {
        e = why();
        good = false;
    }
    if (good)
        return 0;
    unlink(name);
    return cannot(job, e, "a temporary file beside it can not be written");
}

/* -EEXIST: another process has made it. */
static int create(const struct job *job)
{
    char name[PATH_MAX], *text;
    size_t len;
    int rc = slr_tune_merge("", 0, job->rules, job->count, &text, &len, job->error);
    if (rc)
        return rc;
    rc = make_temporary(job, text, len, NULL, name, sizeof name);
    free(text);
    if (rc)
        return rc;
    if (link(name, job->path) != 0)
        rc = errno == EEXIST ? -EEXIST : rename(name, job->path) != 0 ? cannot(job, why(), "can not be made") : 0;
    unlink(name);
    return rc;
}

/* Locked, and still what the name stands for. */
static int replace(const struct job *job, int fd, const struct stat *old)
{
    char name[PATH_MAX], *text = NULL, *buf = malloc(SLR_TUNE_MAX_BYTES + 1);
    size_t len = 0;
    ssize_t n = buf ? slr_tune_read_whole(fd, buf, SLR_TUNE_MAX_BYTES + 1) : -1;
    int rc;
    if (n < 0)
        rc = cannot(job, buf ? why() : ENOMEM, "can not be read");
    else if ((size_t)n > SLR_TUNE_MAX_BYTES)
        rc = cannot(job, EFBIG, "is longer than 1 MiB");
    else
        rc = slr_tune_merge(buf, (size_t)n, job->rules, job->count, &text, &len, job->error);
    free(buf);
    if (!rc)
        rc = make_temporary(job, text, len, old, name, sizeof name);
    free(text);
    if (!rc && rename(name, job->path) != 0) {
        rc = cannot(job, why(), "can not be replaced");
        unlink(name);
    }
    return rc;
}

/* -ESTALE: it has been replaced meanwhile. */
static int lock_and_replace(const struct job *job, int fd)
{
    struct stat own, now;
    if (fstat(fd, &own) != 0)
        return cannot(job, why(), "can not be examined");
    if (!S_ISREG(own.st_mode))
        return cannot(job, EINVAL, "is no file");
    /* Any other answer: the file system has no locks. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return -EAGAIN;
    if (stat(job->path, &now) != 0 || now.st_ino != own.st_ino || now.st_dev != own.st_dev)
        return -ESTALE;
    return replace(job, fd, &own);
}

static int try_once(const struct job *job)
{
    /* For writing as well: a file that may not be written stays, though its folder may be. Opening a
     * device must not wait. */
    int fd = open(job->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? create(job) : cannot(job, why(), "can not be opened for writing");
    int rc = lock_and_replace(job, fd);
    close(fd); /* and gives the lock back */
    return rc;
}

int slr_tune_write(const char *path, const struct slr_tune_site *rules, size_t count, struct slr_tune_error *error)
{
    char *real = realpath(path, NULL);
    struct job job = {real ? real : path, rules, count, error};
    int rc = -ESTALE;
    *error = (struct slr_tune_error){0};
    for (int i = 0; i < TRIES && (rc == -ESTALE || rc == -EEXIST); i++)
        rc = try_once(&job);
    if (rc == -EEXIST) /* the name of a symbolic link that points nowhere */
        cannot(&job, EEXIST, "can not be made");
    free(real);
    return rc == -ESTALE ? -EAGAIN : rc;
}

static const char head[] =
    "# Rules for SLIPRING_TUNE_FILE (docs/tuning.md, docs/trials.md). The first that fits decides.\n"
    "# Lines that end with \"kept by slipring\" may be replaced; without that comment they stay.\n";

static bool is_replaced(const struct slr_tune_site *old, const struct slr_tune_site *rules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slr_tune_site_same(old, &rules[i], true) ||
            (slr_tune_site_same(old, &rules[i], false) && old->nccl != rules[i].nccl))
            return true;
    return false;
}

/* Marks the first kept rule that is not marked yet, by its line: 0. False: there is none. */
static bool drop_oldest(struct slr_tune_table *t)
{
    for (size_t i = 0; i < t->sites; i++)
        if (t->site[i].kept) {
            t->site[i].kept = false;
            t->site[i].line = -t->site[i].line;
            return true;
        }
    return false;
}

/* Which lines go: their rules get a negative number. Returns how many kept rules stay. */
static size_t drop(struct slr_tune_table *t, const struct slr_tune_site *rules, size_t count)
{
    size_t kept = 0, stay = t->count;
    for (size_t i = 0; i < t->sites; i++) {
        struct slr_tune_site *s = &t->site[i];
        if (s->kept && is_replaced(s, rules, count)) {
            s->line = -s->line;
            s->kept = false;
        }
        kept += s->kept;
        stay += s->line > 0;
    }
    while ((kept + count > SLR_TUNE_MOST_KEPT || stay + count > SLR_TUNE_MAX_RULES) && drop_oldest(t))
        kept--, stay--;
    return stay;
}

static bool is_dropped(const struct slr_tune_table *t, int line, size_t *at)
{
    while (*at < t->sites && abs(t->site[*at].line) < line)
        ++*at;
    return *at < t->sites && t->site[*at].line == -line;
}

/* The text without the lines that go, and the rules. */
static void join(FILE *out, const struct slr_tune_table *t, const char *text, size_t len,
                 const struct slr_tune_site *rules, size_t count)
{
    char line[SLR_TUNE_MAX_LINE + 1];
    const char *end = text + len;
    size_t at = 0;
    if (len == 0)
        fputs(head, out);
    for (int n = 1; text < end; n++) {
        const char *feed = memchr(text, '\n', (size_t)(end - text)), *next = feed ? feed + 1 : end;
        if (!is_dropped(t, n, &at)) {
            fwrite(text, 1, (size_t)(next - text), out);
            if (!feed)
                fputc('\n', out);
        }
        text = next;
    }
    for (size_t i = 0; i < count; i++)
        if (slr_tune_site_write(&rules[i], line, sizeof line))
            fprintf(out, "%s\n", line);
}

/* Until it is short enough. */
static int fit(struct slr_tune_table *t, const char *text, size_t len, const struct slr_tune_site *rules, size_t count,
               char **out, size_t *out_len)
{
    do {
        free(*out);
        *out = NULL;
        FILE *stream = open_memstream(out, out_len);
        if (!stream)
            return -ENOMEM;
        join(stream, t, text, len, rules, count);
        bool bad = ferror(stream) != 0;
        if (fclose(stream) != 0 || bad)
            return -ENOMEM;
    } while (*out_len > SLR_TUNE_MAX_BYTES && drop_oldest(t));
    return *out_len > SLR_TUNE_MAX_BYTES ? -EFBIG : 0;
}

int slr_tune_merge(const char *text, size_t len, const struct slr_tune_site *rules, size_t count, char **out,
                   size_t *out_len, struct slr_tune_error *error)
{
    struct slr_tune_table t;
    *out = NULL;
    int rc = slr_tune_parse(&t, text, len, error);
    if (rc)
        return rc;
    rc = drop(&t, rules, count) + count > SLR_TUNE_MAX_RULES ? -EFBIG : fit(&t, text, len, rules, count, out, out_len);
    if (rc) {
        free(*out);
        *out = NULL;
        snprintf(error->text, sizeof error->text, "%s",
                 rc == -EFBIG ? "no room for more rules: a file has at most 4096, and 1 MiB" : "no memory");
    }
    slr_tune_free(&t);
    return rc;
}
