/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/log/log_read.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/log/log_record.h"
#include "tools/common/vec.h"

enum {
    LINE_MOST = 64 << 10, /* slipring's own lines have at most 2048 bytes */
};

/* One line without its newline into `buf` of LINE_MOST + 1 bytes. False at the end. *whole: it
 * ended with a newline; *len may be more than LINE_MOST, when the rest of a longer line has been
 * skipped. */
static bool next_line(FILE *in, char *buf, size_t *len, bool *whole)
{
    int c;
    *len = 0;
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        if (*len < LINE_MOST)
            buf[*len] = (char)c;
        ++*len;
    }
    *whole = c == '\n';
    buf[*len < LINE_MOST ? *len : LINE_MOST] = '\0';
    return *whole || *len > 0;
}

static void not_json(struct log_reader *r, size_t line, const char *text, size_t len, bool whole,
                     const json_error_t *error)
{
    char shown[40], why[80];
    size_t blank = strspn(text, " \t\r");
    log_printable(shown, sizeof shown, text, len);
    log_printable(why, sizeof why, error->text, strlen(error->text));
    if (strncmp(text + blank, "slipring[", 9) == 0)
        log_problem(r, line, "a line of a log in text form, expected JSON (SLIPRING_LOG_FORMAT=json)");
    else if (text[blank] != '{')
        log_problem(r, line, "\"%s\" is not JSON, expected one JSON object a line", shown);
    else if (!whole)
        log_problem(r, line, "the file ends within this line, expected a whole JSON object");
    else
        log_problem(r, line, "not valid JSON at byte %d (%s), expected one JSON object a line", error->position, why);
}

static void note_unknown(struct log_problems *p, const struct log_record *record)
{
    char name[40];
    log_printable(name, sizeof name, record->text[F_EVENT], strlen(record->text[F_EVENT]));
    if (p->unknown++ == 0)
        snprintf(p->unknown_first, sizeof p->unknown_first, "%.140s:%zu: event \"%s\"", p->file, record->line, name);
}

/* Events that the library writes and the reader has no use for. */
static bool known_elsewhere(const char *event)
{
    static const char *const names[] = {
#define X(name) name,
#include "tools/log/log_other_events.def"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], event) == 0)
            return true;
    return false;
}

/* False: the rest of the file is to be left out. */
static bool one_line(struct log_reader *r, size_t line, const char *text, size_t len, bool whole)
{
    struct log_record record = {.line = line, .json = text};
    struct log_record_texts texts;
    json_error_t error;
    if (len > LINE_MOST) {
        log_problem(r, line, "a line of %zu bytes, expected one JSON object of at most 2048", len);
        return true;
    }
    if (strspn(text, " \t\r") == len)
        return true;
    json_t *json = json_loadb(text, len, 0, &error);
    bool on = true;
    if (!json || !json_is_object(json))
        not_json(r, line, text, len, whole, &error);
    else if (log_record_parse(r, json, &record, &texts)) {
        if (record.event == E_OTHER && !known_elsewhere(record.text[F_EVENT]))
            note_unknown(&r->problems, &record);
        on = r->fn(r->ctx, &record);
        r->first_line = false;
        r->used++;
    }
    json_decref(json);
    return on;
}

void log_read_stream(struct log_reader *r, FILE *in, const char *name)
{
    char *buf = tool_alloc(LINE_MOST + 1, 1);
    size_t len, line = 0, before = r->used + r->problems.lines;
    bool whole, on = true;
    r->problems.file = name;
    r->first_line = true;
    while (on && next_line(in, buf, &len, &whole))
        on = one_line(r, ++line, buf, len, whole);
    if (ferror(in))
        log_file_problem(r, name, "reading failed");
    else if (on && r->used + r->problems.lines == before)
        log_file_problem(r, name, "empty, expected JSON log lines");
    log_file_end(&r->problems);
    free(buf);
}

static void read_file(struct log_reader *r, const char *path)
{
    FILE *in = fopen(path, "re");
    char what[160];
    if (!in) {
        snprintf(what, sizeof what, "can not be read: %s", strerror(errno));
        log_file_problem(r, path, what);
        return;
    }
    log_read_stream(r, in, path);
    fclose(in);
}

struct found {
    char *path;
    off_t size;
    size_t order;
};
VEC_TYPE(found_list, struct found);

static void add_file(struct found_list *list, const char *path, off_t size)
{
    struct found *f = vec_add(list);
    *f = (struct found){tool_copy(path), size, list->n};
}

static bool ends_in(const struct dirent *entry, const char *end)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, end) == 0;
}

static int select_log(const struct dirent *entry)
{
    return ends_in(entry, ".jsonl") || ends_in(entry, ".log");
}

static int select_json(const struct dirent *entry)
{
    return ends_in(entry, ".json");
}

static void add_folder(struct log_reader *r, struct found_list *list, const char *path)
{
    struct dirent **entries;
    struct stat st;
    char what[300];
    int n = scandir(path, &entries, select_log, alphasort);
    if (n == 0) {
        free(entries);
        n = scandir(path, &entries, select_json, alphasort); /* or what else was written there, as trace.json */
    }
    if (n <= 0) {
        snprintf(what, sizeof what,
                 n < 0 ? "can not be read: %s"
                       : "a folder without logs (*.jsonl, *.log, *.json): no process made an NCCL communicator with "
                         "libslipring.so and a log there; `slipring doctor -- COMMAND` says what can keep it out",
                 strerror(errno));
        log_file_problem(r, path, what);
    }
    r->empty |= n == 0;
    for (int i = 0; i < n; i++) {
        char *file = tool_text("%s/%s", path, entries[i]->d_name);
        if (stat(file, &st) != 0 || !S_ISDIR(st.st_mode))
            add_file(list, file, st.st_size);
        free(file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static int larger_first(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

void log_read_paths(struct log_reader *r, char *const *paths, size_t n)
{
    struct found_list list = {0};
    for (size_t i = 0; i < n; i++) {
        struct stat st = {0};
        if (stat(paths[i], &st) == 0 && S_ISDIR(st.st_mode))
            add_folder(r, &list, paths[i]);
        else
            add_file(&list, paths[i], st.st_size);
    }
    if (list.n)
        qsort(list.at, list.n, sizeof *list.at, larger_first);
    for (size_t i = 0; i < list.n; i++) {
        read_file(r, list.at[i].path);
        free(list.at[i].path);
    }
    vec_free(&list);
}

void log_read_end(struct log_reader *r)
{
    struct log_problems *p = &r->problems;
    if (p->unknown && p->to)
        fprintf(p->to, "%s is not known here; %zu such %s left out\n", p->unknown_first, p->unknown,
                p->unknown == 1 ? "line was" : "lines were");
}
