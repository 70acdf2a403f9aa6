/* SPDX-License-Identifier: Apache-2.0 */
/* A tune file from the disk: whatever the path is, it is read without waiting and with a bound. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "plugin/tuner/tune_table.h"

/* The file as a whole is refused. */
static int broken(struct slr_tune_error *error, int rc, const char *what)
{
    error->line = 0;
    snprintf(error->text, sizeof error->text, "%s", what);
    return rc;
}

/* The system refused; errno says why. */
static int cannot(struct slr_tune_error *error, const char *what)
{
    int e = errno;
    error->line = 0;
    snprintf(error->text, sizeof error->text, "%s: %s: expected a readable text file", what, strerror(e));
    return -e;
}

/* All of it, up to one byte more than is allowed: that byte tells a file that is too long. The size
 * of fstat is not relied on, as the file may grow. */
static ssize_t read_all(int fd, char *buf)
{
    size_t have = 0;
    while (have <= SLR_TUNE_MAX_BYTES) {
        ssize_t n = read(fd, buf + have, SLR_TUNE_MAX_BYTES + 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

static int load(struct slr_tune_table *table, int fd, struct slr_tune_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return cannot(error, "can not be examined");
    /* A pipe would wait for its writer, inside of ncclCommInitRank. */
    if (!S_ISREG(st.st_mode))
        return broken(error, -EINVAL,
                      S_ISDIR(st.st_mode) ? "is a directory: expected a text file"
                                          : "is a device or a pipe: expected a text file");
    char *buf = malloc(SLR_TUNE_MAX_BYTES + 1);
    if (!buf)
        return broken(error, -ENOMEM, "no memory to read it");
    ssize_t n = read_all(fd, buf);
    int rc;
    if (n < 0)
        rc = cannot(error, "can not be read");
    else if (n == 0)
        rc = broken(error, -EINVAL, "is empty: expected rules, or a comment where there are none");
    else if ((size_t)n > SLR_TUNE_MAX_BYTES)
        rc = broken(error, -EFBIG, "is longer than 1 MiB: expected a table of at most 4096 rules");
    else
        rc = slr_tune_parse(table, buf, (size_t)n, error);
    free(buf);
    return rc;
}

int slr_tune_load(struct slr_tune_table *table, const char *path, struct slr_tune_error *error)
{
    *table = (struct slr_tune_table){0};
    /* O_NONBLOCK: opening a named pipe must not wait either. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return cannot(error, "can not be opened");
    int rc = load(table, fd, error);
    close(fd);
    return rc;
}
