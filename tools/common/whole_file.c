/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/common/vec.h"

static bool failed(const char *path, const char *what, int error)
{
    fprintf(stderr, "slipring: %s %s: %s\n", path, what, strerror(error));
    return false;
}

static void forget(struct whole_file *f)
{
    free(f->path);
    free(f->beside);
    *f = (struct whole_file){0};
}

/* With the rights of a file that is made here. */
static FILE *open_beside(const char *beside, int fd)
{
    const mode_t mask = umask(0);
    umask(mask);
    FILE *to = fd >= 0 && fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "w") : NULL;
    if (!to && fd >= 0) {
        close(fd);
        unlink(beside);
    }
    return to;
}

bool whole_file_open(struct whole_file *f, const char *path)
{
    struct stat st;
    *f = (struct whole_file){.to = stdout};
    if (strcmp(path, "-") == 0)
        return true;
    char *resolved = realpath(path, NULL); /* what a link names is replaced, not the link */
    f->path = resolved ? resolved : tool_copy(path);
    f->beside = tool_text("%s.XXXXXX", f->path);
    if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        f->to = NULL;
    } else {
        f->to = open_beside(f->beside, mkostemp(f->beside, O_CLOEXEC));
    }
    if (f->to)
        return true;
    failed(path, "can not be written", errno);
    forget(f);
    return false;
}

bool whole_file_close(struct whole_file *f, bool keep)
{
    errno = EIO;
    bool good = !ferror(f->to);
    if (!f->path)
        return fflush(f->to) == 0 && good ? true : failed("stdout", "could not be written", errno);
    good &= fclose(f->to) == 0;
    if (good && keep && rename(f->beside, f->path) == 0) {
        forget(f);
        return true;
    }
    const int error = errno;
    unlink(f->beside);
    if (keep)
        failed(f->path, "could not be written", error);
    forget(f);
    return !keep;
}
