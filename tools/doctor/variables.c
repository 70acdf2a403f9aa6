/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of CUDA, NCCL and PyTorch (variables.def), in the environment and in NCCL's files. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "tools/doctor/doctor.h"

enum when { WHEN_TRUE, WHEN_IS, WHEN_ELSE, WHEN_SET };

struct variable {
    const char *name;
    enum when when;
    const char *word;
    enum doctor_result result;
    const char *text, *advice;
};
static const struct variable variables[] = {
#define V(name, when, word, result, text, advice) {name, WHEN_##when, word, DOCTOR_##result, text, advice},
#include "tools/doctor/variables.def"
#undef V
};
#define VARIABLES (sizeof variables / sizeof *variables)

static bool is_false(const char *value)
{
    return !strcmp(value, "0") || !strcasecmp(value, "no") || !strcasecmp(value, "off") || !strcasecmp(value, "false");
}

static bool applies(const struct variable *v, const char *value)
{
    switch (v->when) {
    case WHEN_TRUE:
        return *value && !is_false(value);
    case WHEN_IS:
        return strcasecmp(value, v->word) == 0;
    case WHEN_ELSE: /* NCCL's own words for "the one that is loaded already" and "none" */
        return *value && !strcasestr(value, v->word) && strcmp(value, "STATIC_PLUGIN") != 0 &&
               strcmp(value, "none") != 0;
    case WHEN_SET:
        return *value;
    }
    return false;
}

static void take_trimmed(const char *text, char *value, size_t size)
{
    snprintf(value, size, "%s", text + strspn(text, " \t"));
    for (size_t len = strlen(value); len > 0 && strchr(" \t", value[len - 1]); len--)
        value[len - 1] = '\0';
}

/* NAME=VALUE lines, '#' begins a comment. The first of the lines that names it counts. */
static bool in_file(const char *path, const char *name, char *value, size_t size)
{
    char line[4096];
    FILE *in = fopen(path, "re");
    bool found = false;
    while (in && !found && fgets(line, sizeof line, in)) {
        char *at = line + strspn(line, " \t"), *equals = strchr(at, '=');
        at[strcspn(at, "#\r\n")] = '\0';
        if (!equals || *at == '\0')
            continue;
        *equals = '\0';
        at[strcspn(at, " \t")] = '\0';
        found = strcmp(at, name) == 0;
        if (found)
            take_trimmed(equals + 1, value, size);
    }
    if (in)
        fclose(in);
    return found;
}

/* Where NCCL takes a variable from; NULL: nowhere. Others' variables come from the environment
 * only. */
static const char *source_of(const char *name, char *value, size_t size)
{
    static char user[PATH_MAX];
    const char *env = getenv(name), *home = getenv("HOME"), *conf = getenv("NCCL_CONF_FILE");
    if (env) {
        snprintf(value, size, "%s", env);
        return "";
    }
    if (strncmp(name, "NCCL_", 5) != 0)
        return NULL;
    if (conf && *conf)
        snprintf(user, sizeof user, "%s", conf);
    else
        snprintf(user, sizeof user, "%s/.nccl.conf", home ? home : "");
    if (in_file(user, name, value, size))
        return user;
    return in_file("/etc/nccl.conf", name, value, size) ? "/etc/nccl.conf" : NULL;
}

static void check_visible(struct doctor *d)
{
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    int named = value && *value ? 1 : 0;
    if (!value)
        return;
    for (const char *at = value; *at; at++)
        named += *at == ',';
    if (d->devices->count < 0)
        doctor_add(d, DOCTOR_VISIBLE_DEVICES, DOCTOR_UNKNOWN, "CUDA_VISIBLE_DEVICES=%s: no driver to ask", value);
    else if (named == 0 || d->devices->count < named)
        doctor_add(d, DOCTOR_VISIBLE_DEVICES, DOCTOR_WARN,
                   "CUDA_VISIBLE_DEVICES=%s names %d devices, the driver shows %d", value, named, d->devices->count);
    else
        doctor_add(d, DOCTOR_VISIBLE_DEVICES, DOCTOR_OK, "CUDA_VISIBLE_DEVICES=%s", value);
}

void doctor_check_variables(struct doctor *d)
{
    char value[1024];
    for (size_t i = 0; i < VARIABLES; i++) {
        const struct variable *v = &variables[i];
        const char *from = source_of(v->name, value, sizeof value);
        if (!from || !applies(v, value))
            continue;
        doctor_add(d, DOCTOR_VARIABLES, v->result, "%s=%.200s%s%s%s: %s", v->name, value, *from ? " (" : "", from,
                   *from ? ")" : "", v->text);
        doctor_advise(d, v->advice);
    }
    if (!doctor_has(d, DOCTOR_VARIABLES))
        doctor_add(d, DOCTOR_VARIABLES, DOCTOR_OK, "none of those that get in the way is set");
    check_visible(d);
}

void doctor_print_variables(FILE *out)
{
    static const char *const forms[] = {"set, and not `0`", "is", "set to another", "set"};
    fputs("| Variable | When | Result | Meaning | What to do |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < VARIABLES; i++) {
        const struct variable *v = &variables[i];
        bool word = v->when == WHEN_IS;
        fprintf(out, "| `%s` | %s%s%s%s | %s | %s | %s |\n", v->name, forms[v->when], word ? " `" : "",
                word ? v->word : "", word ? "`" : "", doctor_result_name(v->result), v->text, v->advice);
    }
}
