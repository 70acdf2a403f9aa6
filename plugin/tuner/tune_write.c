/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/tuner/tune_write.h"

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
#include "plugin/tuner/tune_merge.h"

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

static ssize_t read_whole(int fd, char *buf, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t n = read(fd, buf + have, size - have);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return -1;
        have += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)have;
}

/* Locked, and still what the name stands for. */
static int replace(const struct job *job, int fd, const struct stat *old)
{
    char name[PATH_MAX], *text = NULL, *buf = malloc(SLR_TUNE_MAX_BYTES + 1);
    size_t len = 0;
    ssize_t n = buf ? read_whole(fd, buf, SLR_TUNE_MAX_BYTES + 1) : -1;
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

static int add(const struct job *job)
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
        rc = add(&job);
    if (rc == -EEXIST) /* the name of a symbolic link that points nowhere */
        cannot(&job, EEXIST, "can not be made");
    free(real);
    return rc == -ESTALE ? -EAGAIN : rc;
}
