/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/output.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/common/vec.h"

static bool fail(const struct output *o, const char *what, int error)
{
    fprintf(stderr, "slipring: %s %s: %s\n", o->path, what, strerror(error));
    return false;
}

/* As fopen() would make it, or as the one that it replaces. */
static mode_t mode_of(const struct stat *old)
{
    const mode_t mask = umask(0);
    umask(mask);
    return old ? old->st_mode & 07777 : 0666 & ~mask;
}

/* NULL: where no file can be made beside it. */
static FILE *open_beside(struct output *o, const struct stat *old)
{
    char *real = old ? realpath(o->path, NULL) : NULL;
    o->place = real ? real : tool_copy(o->path);
    o->temporary = tool_text("%s.XXXXXX", o->place);
    const int fd = mkstemp(o->temporary);
    if (fd >= 0 && fchmod(fd, mode_of(old)) == 0)
        return fdopen(fd, "w");
    if (fd >= 0)
        close(fd);
    if (fd >= 0)
        unlink(o->temporary);
    return NULL;
}

static void forget(struct output *o)
{
    free(o->place);
    free(o->temporary);
    o->place = o->temporary = NULL;
}

bool output_open(struct output *o, const char *path)
{
    struct stat old;
    *o = (struct output){.path = path};
    if (strcmp(path, "-") == 0) {
        o->to = stdout;
        return true;
    }
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of its write */
    const bool there = stat(path, &old) == 0;
    if (!there || (S_ISREG(old.st_mode) && access(path, W_OK) == 0))
        o->to = open_beside(o, there ? &old : NULL);
    if (o->to)
        return true;
    forget(o);
    o->to = fopen(path, "we");
    return o->to || fail(o, "can not be written", errno);
}

static bool put_in_place(const struct output *o)
{
    char *beside = o->temporary;
    if (!beside || rename(beside, o->place) == 0)
        return true;
    return fail(o, "can not be written", errno);
}

/* Everything has gone to the file. */
static bool is_whole(const struct output *o)
{
    errno = 0;
    const bool flushed = fflush(o->to) == 0, good = flushed && !ferror(o->to);
    const int error = errno ? errno : EIO;
    const bool closed = o->to == stdout || fclose(o->to) == 0;
    return (good && closed) || fail(o, "could not be written", good ? errno : error);
}

bool output_end(struct output *o, bool keep)
{
    const bool placed = is_whole(o) && keep && put_in_place(o);
    if (!placed && o->temporary)
        unlink(o->temporary);
    forget(o);
    return placed || !keep;
}

bool output_close(struct output *o)
{
    const bool file = o->to != stdout;
    const long bytes = file ? ftell(o->to) : 0;
    const bool good = output_end(o, true);
    if (good && file)
        fprintf(stderr, "slipring: %s: %ld bytes written\n", o->path, bytes);
    return good;
}
