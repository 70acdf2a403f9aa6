/* SPDX-License-Identifier: Apache-2.0 */
/* What of the environment and of logs may go into a bundle. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/settings.h"
#include "tools/doctor/bundle.h"

#define LEFT_OUT "(left out)"
enum {
    TAIL = 256 << 10,
    LOGS = 64,
    SECRET = 8 /* characters; what is shorter, as "true", would be found everywhere */
};

extern char **environ;

/* ---- the environment ---- */

/* Their values are words of NCCL's, devices, numbers or paths. */
static const char open_variables[] =
    " NCCL_ALGO NCCL_PROTO NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_P2P_LEVEL NCCL_NET_GDR_LEVEL NCCL_NET "
    "NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_HOSTID NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_NET_PLUGIN NCCL_CONF_FILE "
    "NCCL_TOPO_FILE NCCL_GRAPH_FILE SLIPRING_LIB SLIPRING_SOFTGPU SLIPRING_TABLES SLIPRING_LAUNCHER ";

static bool is_number(const char *value)
{
    char *end;
    if (!*value)
        return true;
    strtod(value, &end);
    return !*end && strlen(value) < 12;
}

static bool sounds_secret(const char *name)
{
    static const char *const words[] = {"KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

static bool is_open(const char *name)
{
    char *word = tool_text(" %s ", name);
    const bool found = strstr(open_variables, word) != NULL;
    free(word);
    return found;
}

/* Settings have the values that they may have, or paths. */
static bool may_be_shown(const char *name, const char *value)
{
    const size_t prefix = strlen(SLR_SETTING_PREFIX);
    const bool own = strncmp(name, SLR_SETTING_PREFIX, prefix) == 0;
    const struct slr_setting_row *row = own ? slr_setting_find(name + prefix, strlen(name + prefix)) : NULL;
    uint64_t number;
    if (row)
        return row->kind == SLR_KIND_TEXT || slr_setting_value(row, value, &number) == 0;
    return is_open(name) || (!sounds_secret(name) && is_number(value));
}

static void hide(struct bundle *b, const char *value)
{
    if (strlen(value) >= SECRET)
        words_add(&b->hidden, value);
}

static void put_variable(struct bundle *b, FILE *to, const char *name, const char *value)
{
    const bool ours =
        strncmp(name, SLR_SETTING_PREFIX, strlen(SLR_SETTING_PREFIX)) == 0 || strncmp(name, "NCCL_", 5) == 0;
    const bool shown = ours && may_be_shown(name, value);
    if ((ours && !shown) || sounds_secret(name))
        hide(b, value);
    if (ours && !shown)
        words_add(&b->withheld, name);
    if (ours)
        fprintf(to, "%s=%s\n", name, shown ? value : LEFT_OUT);
}

void bundle_environment(struct bundle *b)
{
    size_t size = 0;
    FILE *to = tool_checked(open_memstream(&b->environment, &size));
    for (char **at = environ; *at; at++) {
        const char *equals = strchr(*at, '=');
        if (!equals)
            continue;
        char *name = tool_text("%.*s", (int)(equals - *at), *at);
        put_variable(b, to, name, equals + 1);
        free(name);
    }
    fclose(to);
    tool_checked(b->environment);
    for (size_t i = 0; i < b->withheld.count; i++)
        setenv(b->withheld.word[i], LEFT_OUT, 1);
}

/* ---- what is added ---- */

/* `text` with `by` for each `word`; takes `text`. */
static char *replaced(char *text, const char *word, const char *by)
{
    char *result = NULL;
    size_t size = 0;
    if (!*word || !strstr(text, word))
        return text;
    FILE *to = tool_checked(open_memstream(&result, &size));
    const char *at = text;
    for (const char *found; (found = strstr(at, word)); at = found + strlen(word))
        fprintf(to, "%.*s%s", (int)(found - at), at, by);
    fputs(at, to);
    fclose(to);
    free(text);
    return tool_checked(result);
}

void bundle_add(struct bundle *b, const char *name, const char *what, char *text)
{
    const char *home = getenv("HOME");
    for (size_t i = 0; i < b->hidden.count; i++)
        text = replaced(text, b->hidden.word[i], LEFT_OUT);
    if (home && strlen(home) > 1)
        text = replaced(text, home, "~");
    *vec_add(&b->members) = (struct bundle_member){.name = tool_copy(name), .what = what, .text = text};
}

/* ---- logs ---- */

/* What follows them in a line is nobody's business: a program's arguments; a setting's value that was refused. */
static const char *const private_marks[] = {
    "\"command\":\"", " command=\"", " command=", "\"value\":\"", " value=\"", " value="};

/* Where a value ends that begins at `at`: at its quote, or at a space. */
static const char *end_of_value(const char *at, bool quoted)
{
    if (!quoted)
        return at + strcspn(at, " \n");
    while (*at && *at != '\n' && *at != '"')
        at += *at == '\\' && at[1] && at[1] != '\n' ? 2 : 1;
    return at;
}

static void put_line(FILE *to, const char *line, size_t n)
{
    for (size_t i = 0; i < sizeof private_marks / sizeof *private_marks; i++) {
        const char *mark = private_marks[i], *found = memmem(line, n, mark, strlen(mark));
        if (found) {
            const char *value = found + strlen(mark), *end = end_of_value(value, value[-1] == '"');
            fprintf(to, "%.*s" LEFT_OUT "%.*s", (int)(value - line), line, (int)(line + n - end), end);
            return;
        }
    }
    fprintf(to, "%.*s", (int)n, line);
}

/* Takes `text`. */
static char *without_private(char *text)
{
    char *result = NULL;
    size_t size = 0;
    FILE *to = tool_checked(open_memstream(&result, &size));
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        put_line(to, line, n);
        if (line[n])
            putc('\n', to);
        line += n + (line[n] != '\0');
    }
    fclose(to);
    free(text);
    return tool_checked(result);
}

/* Its last whole lines; NULL, with errno: it can not be read. */
static char *tail_of(const char *path)
{
    struct stat st;
    FILE *in = fopen(path, "re");
    if (!in || fstat(fileno(in), &st) != 0 || !S_ISREG(st.st_mode)) {
        if (in)
            fclose(in);
        return NULL;
    }
    const bool cut = st.st_size > TAIL && fseek(in, -TAIL, SEEK_END) == 0;
    char *text = tool_alloc(TAIL + 1, 1);
    size_t n = fread(text, 1, TAIL, in);
    fclose(in);
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : '?';
    const size_t first = cut ? strcspn(text, "\n") : 0;
    char *lines = tool_copy(text + first + (cut && text[first] == '\n'));
    free(text);
    return lines;
}

static bool add_log(struct bundle *b, const char *path)
{
    char *text = tail_of(path);
    if (!text)
        return false;
    const char *slash = strrchr(path, '/');
    char *name = tool_text("logs/%zu-%.60s", b->members.n, slash ? slash + 1 : path);
    bundle_add(b, name, "the end of a log", without_private(text));
    free(name);
    return true;
}

static bool is_log(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".log") == 0);
}

/* As many as there is room for. */
static void add_folder(struct bundle *b, const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort), added = 0;
    for (int i = 0; i < n; i++) {
        char *file = tool_text("%s/%s", path, names[i]->d_name);
        added += added < LOGS && is_log(names[i]) && add_log(b, file);
        free(file);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

/* %h, %p and %r of the setting's value are any words. */
static void add_set(struct bundle *b)
{
    const char *set = slr_settings()->text[SLR_S_LOG_FILE];
    glob_t found;
    char *pattern = tool_copy(set), *to = pattern;
    for (const char *at = set; *at; at++)
        if (*at == '%' && at[1])
            *to++ = *++at == '%' ? '%' : '*';
        else
            *to++ = *at;
    *to = '\0';
    if (*set && glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && i < LOGS; i++)
            add_log(b, found.gl_pathv[i]);
        globfree(&found);
    }
    free(pattern);
}

bool bundle_logs(struct bundle *b, const struct words *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        struct stat st;
        const char *path = paths->word[i];
        const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if (folder)
            add_folder(b, path);
        else if (!add_log(b, path)) {
            fprintf(stderr, "slipring doctor: --logs: %s is no log file, nor a folder with some: %s\n", path,
                    strerror(errno));
            return false;
        }
    }
    if (!paths->count)
        add_set(b);
    return true;
}
