/* SPDX-License-Identifier: Apache-2.0 */
/* The network adapters that NCCL's rails between hosts go over (docs/hosts.md): one for each device is what they are for. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "tools/doctor/rails.h"

#define ADAPTERS 64
#define VERBS "/sys/class/infiniband" /* InfiniBand, RoCE, and what else has verbs, as EFA */

struct adapter {
    char name[64], path[PATH_MAX]; /* path: among the PCI devices */
    double rate;                   /* Gb/s of its active ports; 0: none is */
};

/* The first line of a file of the root. */
static bool line_of(const char *root, const char *path, char *line, size_t size)
{
    FILE *f = doctor_open(root, path);
    const bool read = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    return read;
}

static double rate_of(const char *root, const char *name)
{
    char path[PATH_MAX], line[64];
    double rate = 0;
    for (int port = 1; port <= 4; port++) {
        snprintf(path, sizeof path, VERBS "/%s/ports/%d/state", name, port);
        if (!line_of(root, path, line, sizeof line) || !strstr(line, "ACTIVE"))
            continue;
        snprintf(path, sizeof path, VERBS "/%s/ports/%d/rate", name, port);
        if (line_of(root, path, line, sizeof line))
            rate += strtod(line, NULL);
    }
    return rate;
}

static void resolve(const char *root, const char *path, char out[PATH_MAX])
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name || !realpath(name, out))
        *out = '\0';
}

/* Those with an active port. */
static int find_adapters(const char *root, struct adapter list[ADAPTERS])
{
    char folder[PATH_MAX], path[PATH_MAX];
    int n = 0;
    snprintf(folder, sizeof folder, "%s" VERBS, root);
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && n < ADAPTERS && (e = readdir(dir));) {
        struct adapter *a = &list[n];
        if (*e->d_name == '.' || strlen(e->d_name) >= sizeof a->name)
            continue;
        strcpy(a->name, e->d_name);
        a->rate = rate_of(root, a->name);
        snprintf(path, sizeof path, VERBS "/%s/device", a->name);
        resolve(root, path, a->path);
        n += a->rate > 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* How many folders two paths have in common from the beginning: of PCI devices, bridges and switches above both. */
static int shared_folders(const char *a, const char *b)
{
    int n = 0;
    for (; *a && *a == *b; a++, b++)
        n += *a == '/';
    return n + (!*a && !*b);
}

/* The nearest of them, or -1: it is not known, or several are as near. */
static int nearest(const char *root, const struct doctor_device *g, const struct adapter *list, int n)
{
    char path[PATH_MAX], at[64] = "";
    int best = -1, most = 0;
    snprintf(at, sizeof at, "/sys/bus/pci/devices/%.31s", g->pci);
    for (char *c = at; *c; c++) /* CUDA writes it in capital letters */
        *c = (char)tolower((unsigned char)*c);
    resolve(root, at, path);
    for (int i = 0; *path && i < n; i++) {
        const int common = shared_folders(path, list[i].path);
        if (common >= most) {
            best = common > most ? i : -1;
            most = common;
        }
    }
    return best;
}

/* Two devices that have one nearest adapter. */
static bool any_shared(const struct doctor *d, const char *root, const struct adapter *list, int n, int pair[3])
{
    int of[DOCTOR_MAX_DEVICES];
    for (int i = 0; i < doctor_known_devices(d->devices); i++) {
        of[i] = nearest(root, &d->devices->device[i], list, n);
        for (int j = 0; j < i; j++)
            if (of[i] >= 0 && of[j] == of[i]) {
                pair[0] = j, pair[1] = i, pair[2] = of[i];
                return true;
            }
    }
    return false;
}

void doctor_check_rails(struct doctor *d, const char *root, bool hosts)
{
    static struct adapter list[ADAPTERS];
    const int devices = doctor_known_devices(d->devices), n = hosts ? find_adapters(root, list) : 0;
    int pair[3];
    double rate = 0;
    for (int i = 0; i < n; i++)
        rate += list[i].rate;
    if (!hosts)
        doctor_add(d, DOCTOR_RAILS, DOCTOR_OK, "SLIPRING_HOSTS is off");
    else if (n == 0)
        doctor_add(d, DOCTOR_RAILS, DOCTOR_WARN,
                   "no active adapter of InfiniBand, RoCE or the like: NCCL goes over sockets");
    else if (n < devices)
        doctor_add(d, DOCTOR_RAILS, DOCTOR_WARN, "%d active adapter%s, %.0f Gb/s together, for %d devices", n,
                   n > 1 ? "s" : "", rate, devices);
    else if (any_shared(d, root, list, n, pair))
        doctor_add(d, DOCTOR_RAILS, DOCTOR_WARN, "device %d and device %d have the same nearest adapter, %s", pair[0],
                   pair[1], list[pair[2]].name);
    else
        doctor_add(d, DOCTOR_RAILS, DOCTOR_OK, "%d active adapters, %.0f Gb/s together, for %d devices", n, rate,
                   devices);
}
