/* The logs of all ranks, one JSON object a line. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/tune_names.h"
#include "tools/tune/tune.h"

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static bool number_of(const json_t *line, const char *key, json_int_t low, json_int_t high, json_int_t *out)
{
    const json_t *value = json_object_get(line, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= low && *out <= high;
}

static bool int_of(const json_t *line, const char *key, int low, int high, int *out)
{
    json_int_t n;
    bool good = number_of(line, key, low, high, &n);
    *out = good ? (int)n : 0;
    return good;
}

static bool name_of(const json_t *line, const char *key, int (*number)(const char *, size_t), int least, int *out)
{
    const char *text = text_of(line, key);
    *out = number(text, strlen(text));
    return *out >= least;
}

/* FNV-1a */
static uint64_t comm_id(const char *comm)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *comm; comm++)
        h = (h ^ (unsigned char)*comm) * 0x100000001b3u;
    return h;
}

static uint64_t rank_id(uint64_t comm, int crank)
{
    return (comm ^ (uint64_t)crank) * 0x100000001b3u;
}

static bool parse_sample(const json_t *line, struct sample *s)
{
    json_int_t ns;
    int crank;
    *s = (struct sample){0};
    bool good = name_of(line, "func", slr_tune_func_number, 0, &s->func) &&
                name_of(line, "algo", slr_tune_algo_number, -1, &s->algo) &&
                name_of(line, "proto", slr_tune_proto_number, -1, &s->proto) &&
                int_of(line, "size_class", 0, 63, &s->size_class) && int_of(line, "registered", 0, 1, &s->registered) &&
                int_of(line, "nranks", 1, INT32_MAX, &s->nranks) && int_of(line, "nnodes", 1, INT32_MAX, &s->nnodes) &&
                int_of(line, "channels", 0, SLR_NCCL_MAX_CHANNELS, &s->channels) &&
                int_of(line, "candidates", 1, INT32_MAX, &s->candidates) &&
                int_of(line, "crank", 0, INT32_MAX, &crank) && number_of(line, "ns", 0, INT64_MAX, &ns);
    if (good) {
        s->comm = comm_id(text_of(line, "comm"));
        s->rank = rank_id(s->comm, crank);
        s->ns = (uint64_t)ns;
    }
    return good;
}

static int add(struct samples *s, const struct sample *one)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        struct sample *more = realloc(s->list, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        s->list = more;
        s->room = room;
    }
    s->list[s->count++] = *one;
    return 0;
}

static void note_machine(struct samples *s, const json_t *line)
{
    int v;
    if (int_of(line, "nccl", 1, INT32_MAX, &v))
        snprintf(s->nccl, sizeof s->nccl, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    snprintf(s->device, sizeof s->device, "%s", text_of(line, "device"));
}

static int take_line(struct samples *s, const json_t *line)
{
    const char *event = text_of(line, "event");
    struct sample one;
    if (!strcmp(event, "explored")) {
        if (parse_sample(line, &one))
            return add(s, &one);
        s->bad_lines++;
    } else if (!strcmp(event, "explore")) {
        note_machine(s, line);
    } else if (!s->trouble[0] && (!strcmp(event, "tune_differs") || !strcmp(event, "tune_off"))) {
        snprintf(s->trouble, sizeof s->trouble, "%s: %s", event, text_of(line, "msg"));
    }
    return 0;
}

static int read_file(struct samples *s, FILE *f)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;
    while (!rc && (len = getline(&text, &room, f)) > 0) {
        json_t *line = json_loadb(text, (size_t)len, 0, NULL);
        if (json_is_object(line))
            rc = take_line(s, line);
        else
            s->bad_lines++;
        json_decref(line);
    }
    free(text);
    return rc;
}

int samples_read(struct samples *s, const char *folder)
{
    DIR *dir = opendir(folder);
    int rc = dir ? 0 : -errno;
    for (struct dirent *e; dir && !rc && (e = readdir(dir));) {
        char path[4096];
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path)
            continue;
        FILE *f = fopen(path, "re");
        if (!f)
            continue;
        s->files++;
        rc = read_file(s, f);
        fclose(f);
    }
    if (dir)
        closedir(dir);
    return rc;
}

void samples_free(struct samples *s)
{
    free(s->list);
    *s = (struct samples){0};
}

static uint64_t count_in(const char *path)
{
    char *text = NULL;
    size_t room = 0;
    uint64_t n = 0;
    FILE *f = fopen(path, "re");
    while (f && getline(&text, &room, f) > 0)
        n += strstr(text, "\"explored\"") != NULL;
    if (f)
        fclose(f);
    free(text);
    return n;
}

uint64_t samples_count(const char *folder)
{
    uint64_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[4096];
        if (e->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            n += count_in(path);
    }
    if (dir)
        closedir(dir);
    return n;
}
