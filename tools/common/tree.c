/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "tools/common/vec.h"

struct process {
    pid_t pid, parent;
    bool ended, ours;
};

VEC_TYPE(processes, struct process);

/* "12 (a name) S 3 ...": the name may hold anything. */
static bool read_process(const char *pid, struct process *p)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(line, 1, sizeof line - 1, in) : 0;
    if (in)
        fclose(in);
    line[n] = '\0';
    const char *behind = strrchr(line, ')');
    char state;
    int parent;
    if (!behind || sscanf(behind + 1, " %c %d", &state, &parent) != 2)
        return false;
    *p = (struct process){.pid = (pid_t)atol(pid), .parent = parent, .ended = state == 'Z' || state == 'X'};
    return true;
}

static void read_all(struct processes *all)
{
    DIR *dir = opendir("/proc");
    struct process p;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (isdigit((unsigned char)e->d_name[0]) && read_process(e->d_name, &p))
            vec_push(all, p);
    if (dir)
        closedir(dir);
}

static bool is_ours(const struct processes *all, pid_t pid)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].pid == pid)
            return all->at[i].ours;
    return false;
}

/* Parents may stand behind their children. */
static void mark_ours(struct processes *all)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < all->n; i++) {
            struct process *p = &all->at[i];
            bool new = !p->ours && p->pid != getpid() && (p->parent == getpid() || is_ours(all, p->parent));
            p->ours |= new;
            more |= new;
        }
    }
}

size_t tree_signal(int number)
{
    struct processes all = {NULL, 0, 0};
    size_t alive = 0;
    read_all(&all);
    mark_ours(&all);
    for (size_t i = 0; i < all.n; i++) {
        if (!all.at[i].ours)
            continue;
        alive += !all.at[i].ended || all.at[i].parent == getpid();
        if (number)
            kill(all.at[i].pid, number);
    }
    vec_free(&all);
    return alive;
}
