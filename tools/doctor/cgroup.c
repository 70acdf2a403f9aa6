/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether `word` is one of a list with commas. */
static bool listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* A line of /proc/PID/cgroup is number:controllers:path, of version 2 0::path. */
static bool path_of(const char *root, const char *pid, const char *controller, bool *v2, char path[PATH_MAX])
{
    char name[64], line[PATH_MAX + 256];
    bool found = false;
    *v2 = true;
    snprintf(name, sizeof name, "/proc/%s/cgroup", pid);
    FILE *f = doctor_open(root, name);
    while (f && *v2 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = '\0';
        const bool first = listed(list + 1, controller);
        if (!first && list[1])
            continue;
        *v2 = !first;
        found = true;
        snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, at);
    }
    if (f)
        fclose(f);
    return found;
}

/* Where the hierarchy is mounted, and which of its groups is there. A line of mountinfo:
 * id parent device GROUP MOUNT options [fields] - TYPE source OPTIONS */
static bool mount_of(const char *root, const char *controller, bool v2, char group[PATH_MAX], char mount[PATH_MAX])
{
    char line[3 * PATH_MAX], type[32], options[512];
    bool found = false;
    FILE *f = doctor_open(root, "/proc/self/mountinfo");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *behind = strstr(line, " - ");
        if (!behind || sscanf(behind, " - %31s %*s %511s", type, options) != 2 ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", group, mount) != 2)
            continue;
        found = v2 ? !strcmp(type, "cgroup2") : !strcmp(type, "cgroup") && listed(options, controller);
    }
    if (f)
        fclose(f);
    return found;
}

/* What is left of `path` below `group`; NULL: it is not below. */
static const char *below(const char *path, const char *group)
{
    const size_t n = strcmp(group, "/") == 0 ? 0 : strlen(group);
    if (strncmp(path, group, n) != 0 || (path[n] != '/' && path[n] != '\0') || strncmp(path, "/..", 3) == 0)
        return NULL;
    return strcmp(path + n, "/") == 0 ? "" : path + n;
}

bool cgroup_find(const char *root, const char *pid, const char *controller, struct cgroup_place *p)
{
    char path[PATH_MAX], group[PATH_MAX], mount[PATH_MAX];
    if (!path_of(root, pid, controller, &p->v2, path) || !mount_of(root, controller, p->v2, group, mount))
        return false;
    const char *rest = below(path, group);
    /* A container may be shown its own group at a place of which its own paths say nothing. */
    if (!rest && strcmp(pid, "self") != 0)
        return false;
    const int top = snprintf(p->dir, sizeof p->dir, "%s%s", root, mount);
    if (top < 0 || (size_t)top >= sizeof p->dir)
        return false;
    p->top = (size_t)top;
    const int more = snprintf(p->dir + p->top, sizeof p->dir - p->top, "%s", rest ? rest : "");
    return more >= 0 && (size_t)more < sizeof p->dir - p->top;
}

static FILE *open_in(const struct cgroup_place *p, const char *file)
{
    char name[PATH_MAX + 64];
    snprintf(name, sizeof name, "%s/%s", p->dir, file);
    return fopen(name, "re");
}

bool cgroup_number(const struct cgroup_place *p, const char *file, uint64_t *value)
{
    char line[64] = "", *end = line;
    FILE *f = open_in(p, file);
    if (!f)
        return false;
    if (!fgets(line, sizeof line, f))
        *line = '\0';
    fclose(f);
    const bool max = strcmp(line, "max\n") == 0;
    const uint64_t number = max ? UINT64_MAX : strtoull(line, &end, 10);
    if (!max && end == line)
        return false;
    *value = number;
    return true;
}

bool cgroup_field(const struct cgroup_place *p, const char *file, const char *key, uint64_t *value)
{
    char line[256], name[128];
    unsigned long long number;
    bool found = false;
    FILE *f = open_in(p, file);
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%127s %llu", name, &number) == 2 && strcmp(name, key) == 0;
    if (f)
        fclose(f);
    if (found)
        *value = number;
    return found;
}

bool cgroup_up(struct cgroup_place *p)
{
    char *slash = strrchr(p->dir + p->top, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}
