/* Reading logs that are being written. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/verify/verify.h"

#define CHUNK 65536 /* far longer than any line of the library */

static void take_line(struct tally *t, const char *line, size_t len)
{
    json_t *event = json_loadb(line, len, JSON_DISABLE_EOF_CHECK, NULL);
    if (json_is_object(event))
        tally_event(t, event);
    else if (len > 0)
        t->unreadable++;
    json_decref(event);
}

/* The whole lines of a piece; how many bytes they are. A piece without any, full to the brim, is no log. */
static size_t take_lines(struct tally *t, const char *piece, size_t len, bool last)
{
    size_t used = 0;
    for (const char *end; used < len && (end = memchr(piece + used, '\n', len - used));) {
        take_line(t, piece + used, (size_t)(end - piece) - used);
        used = (size_t)(end - piece) + 1;
    }
    if (used < len && (last || (used == 0 && len == CHUNK))) {
        take_line(t, piece + used, len - used);
        used = len;
    }
    return used;
}

static void read_tail(struct logs *l, struct tail *f, bool last)
{
    char path[2 * PATH_MAX], *piece = malloc(CHUNK);
    snprintf(path, sizeof path, "%s/%s", l->folder, f->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = 0;
    while (piece && fd >= 0 && (n = pread(fd, piece, CHUNK, (off_t)f->at)) > 0) {
        size_t used = take_lines(&l->tally, piece, (size_t)n, last && n < CHUNK);
        f->at += used;
        if (used == 0)
            break;
    }
    if (fd >= 0)
        close(fd);
    free(piece);
}

static struct tail *tail_of(struct logs *l, const char *name)
{
    for (size_t i = 0; i < l->tails; i++)
        if (strcmp(l->tail[i].name, name) == 0)
            return &l->tail[i];
    struct tail *more = realloc(l->tail, (l->tails + 1) * sizeof *more);
    char *copy = strdup(name);
    if (more)
        l->tail = more;
    if (!more || !copy) {
        free(copy);
        return NULL;
    }
    l->tail[l->tails] = (struct tail){.name = copy};
    l->tally.logs++;
    return &l->tail[l->tails++];
}

static void read_all(struct logs *l, bool last)
{
    DIR *dir = opendir(l->folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct tail *f = *e->d_name == '.' ? NULL : tail_of(l, e->d_name);
        if (f)
            read_tail(l, f, last);
    }
    if (dir)
        closedir(dir);
}

void logs_read(struct logs *l)
{
    read_all(l, false);
}

void logs_finish(struct logs *l)
{
    read_all(l, true);
}

void logs_free(struct logs *l)
{
    for (size_t i = 0; i < l->tails; i++)
        free(l->tail[i].name);
    free(l->tail);
    l->tail = NULL;
    l->tails = 0;
}
