/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/log/log_tail.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 65536 /* far longer than any line of the library */

static void take_line(struct log_tails *t, const char *line, size_t len)
{
    json_t *event = json_loadb(line, len, JSON_DISABLE_EOF_CHECK, NULL);
    if (json_is_object(event))
        t->fn(t->ctx, event);
    else if (len > 0)
        t->unreadable++;
    json_decref(event);
}

/* The whole lines of a piece; how many bytes they are. A piece without any, full to the brim, is no
 * log. */
static size_t take_lines(struct log_tails *t, const char *piece, size_t len, bool last)
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

static void read_tail(struct log_tails *t, struct log_tail *f, bool last)
{
    char path[2 * PATH_MAX], *piece = tool_alloc(CHUNK, 1);
    snprintf(path, sizeof path, "%s/%s", t->folder, f->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = 0;
    while (fd >= 0 && (n = pread(fd, piece, CHUNK, (off_t)f->at)) > 0) {
        size_t used = take_lines(t, piece, (size_t)n, last && n < CHUNK);
        f->at += used;
        if (used == 0)
            break;
    }
    if (fd >= 0)
        close(fd);
    free(piece);
}

static struct log_tail *tail_of(struct log_tails *t, const char *name)
{
    for (size_t i = 0; i < t->files.n; i++)
        if (strcmp(t->files.at[i].name, name) == 0)
            return &t->files.at[i];
    struct log_tail *f = vec_add(&t->files);
    f->name = tool_copy(name);
    return f;
}

void log_tails_read(struct log_tails *t, bool last)
{
    DIR *dir = opendir(t->folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name != '.')
            read_tail(t, tail_of(t, e->d_name), last);
    if (dir)
        closedir(dir);
}

void log_tails_free(struct log_tails *t)
{
    for (size_t i = 0; i < t->files.n; i++)
        free(t->files.at[i].name);
    vec_free(&t->files);
}

const char *log_text(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));
    return text ? text : "";
}

bool log_number(const json_t *line, const char *name, json_int_t low, json_int_t high, json_int_t *out)
{
    const json_t *value = json_object_get(line, name);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= low && *out <= high;
}
