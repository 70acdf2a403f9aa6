/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process do to ranks: memory that runs out, and processes that are frozen. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/doctor/cgroup.h"

#define MIB (1ull << 20)
#define ENOUGH (1024 * MIB)   /* of the host's memory, for each device */
#define NO_LIMIT (1ull << 60) /* version 1 writes the largest number of pages that there is */

/* The group that leaves the least room. */
struct room {
    uint64_t limit, left;
    char dir[PATH_MAX];
};

/* The kernel takes the pages of files back before it ends anybody; what lies in /dev/shm is not among these lists. */
static uint64_t used_by(const struct cgroup_place *p)
{
    uint64_t used = 0, active = 0, inactive = 0;
    cgroup_number(p, p->v2 ? "memory.current" : "memory.usage_in_bytes", &used);
    cgroup_field(p, "memory.stat", p->v2 ? "active_file" : "total_active_file", &active);
    cgroup_field(p, "memory.stat", p->v2 ? "inactive_file" : "total_inactive_file", &inactive);
    return used > active + inactive ? used - active - inactive : 0;
}

static uint64_t limit_of(const struct cgroup_place *p)
{
    uint64_t most = UINT64_MAX, high = UINT64_MAX;
    cgroup_number(p, p->v2 ? "memory.max" : "memory.limit_in_bytes", &most);
    if (p->v2)
        cgroup_number(p, "memory.high", &high);
    return most < high ? most : high;
}

static struct room least_room(const char *root, struct cgroup_place at)
{
    struct room r = {.limit = UINT64_MAX, .left = UINT64_MAX};
    do {
        const uint64_t limit = limit_of(&at), used = used_by(&at), left = limit > used ? limit - used : 0;
        if (limit < NO_LIMIT && left < r.left) {
            r.limit = limit;
            r.left = left;
            snprintf(r.dir, sizeof r.dir, "%s", at.dir + strlen(root));
        }
    } while (cgroup_up(&at));
    return r;
}

/* A rank that the kernel has ended is a dead peer, and one that it has stopped a silent one: neither says why. */
static void check_killed(struct doctor *d, const char *root, const struct cgroup_place *p, bool limited)
{
    uint64_t killed = 0, stops = 0;
    const char *dir = p->dir + strlen(root);
    cgroup_field(p, p->v2 ? "memory.events" : "memory.oom_control", "oom_kill", &killed);
    if (!p->v2)
        cgroup_field(p, "memory.oom_control", "oom_kill_disable", &stops);
    if (killed) {
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_WARN,
                   "the kernel has ended %llu processes of %s for want of memory: to the others such a rank is a dead "
                   "peer",
                   (unsigned long long)killed, dir);
        doctor_advise(d, "dmesg names them, and when it was. If they were ranks, raise the limit of memory: docker run "
                         "--memory, Slurm --mem, Kubernetes resources.limits.memory.");
    }
    if (stops && limited) {
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_WARN,
                   "a process of %s that needs more memory is stopped, not ended: its peers wait for it", dir);
        doctor_advise(d, "Leave out docker run --oom-kill-disable; by hand: 0 into memory.oom_control.");
    }
}

static void check_memory(struct doctor *d, const char *root)
{
    const int devices = doctor_known_devices(d->devices) > 0 ? doctor_known_devices(d->devices) : 1;
    struct cgroup_place p;
    if (!cgroup_find(root, "self", "memory", &p)) {
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no control group that limits memory is to be seen from here");
        return;
    }
    const struct room r = least_room(root, p);
    if (r.limit == UINT64_MAX)
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no limit is to be seen from here (%s)", p.dir + strlen(root));
    else if (r.left < (uint64_t)devices * ENOUGH)
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_WARN,
                   "%llu MiB for all processes of %s together, %llu MiB of them free: less than 1 GiB for each of %d "
                   "devices",
                   (unsigned long long)(r.limit / MIB), r.dir, (unsigned long long)(r.left / MIB), devices);
    else
        doctor_add(d, DOCTOR_MEMORY_LIMIT, DOCTOR_OK,
                   "%llu MiB for all processes of %s together, %llu MiB of them free",
                   (unsigned long long)(r.limit / MIB), r.dir, (unsigned long long)(r.left / MIB));
    check_killed(d, root, &p, r.limit != UINT64_MAX);
}

/* ---- frozen processes ---- */

static bool is_frozen(const struct cgroup_place *p)
{
    char state[32] = "", name[PATH_MAX + 32];
    uint64_t frozen = 0;
    if (p->v2)
        return cgroup_field(p, "cgroup.events", "frozen", &frozen) && frozen;
    snprintf(name, sizeof name, "%s/freezer.state", p->dir);
    FILE *f = fopen(name, "re");
    if (!f)
        return false;
    const bool read = fgets(state, sizeof state, f) != NULL;
    fclose(f);
    return read && strcmp(state, "THAWED\n") != 0;
}

static bool of_this_user(const char *root, const char *pid)
{
    char name[PATH_MAX];
    struct stat s;
    snprintf(name, sizeof name, "%s/proc/%s", root, pid);
    return stat(name, &s) == 0 && s.st_uid == geteuid();
}

static void command_of(const char *root, const char *pid, char *out, size_t size)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/proc/%s/comm", root, pid);
    FILE *f = fopen(name, "re");
    if (!f || !fgets(out, (int)size, f))
        snprintf(out, size, "?");
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

/* This process runs, so its own group is not frozen: another's of this user may be. */
static void check_frozen(struct doctor *d, const char *root)
{
    char proc[PATH_MAX], first[16] = "", command[64] = "";
    struct cgroup_place p, of_first = {.v2 = false};
    unsigned frozen = 0;
    snprintf(proc, sizeof proc, "%s/proc", root);
    DIR *all = opendir(proc);
    for (const struct dirent *e; all && (e = readdir(all));) {
        if (strspn(e->d_name, "0123456789") != strlen(e->d_name) || strlen(e->d_name) >= sizeof first ||
            !of_this_user(root, e->d_name) || !cgroup_find(root, e->d_name, "freezer", &p) || !is_frozen(&p))
            continue;
        if (frozen++ == 0) {
            snprintf(first, sizeof first, "%.*s", (int)sizeof first - 1, e->d_name);
            command_of(root, first, command, sizeof command);
            of_first = p;
        }
    }
    if (all)
        closedir(all);
    if (!frozen)
        doctor_add(d, DOCTOR_FROZEN, DOCTOR_OK, "no process of this user, as far as is to be seen from here");
    else
        doctor_add(d, DOCTOR_FROZEN, DOCTOR_WARN,
                   "%u process%s of this user, e.g. %s (%s) in %s: if it is a rank, the others wait for it", frozen,
                   frozen == 1 ? "" : "es", first, command, of_first.dir + strlen(root));
}

void doctor_check_cgroups(struct doctor *d, const char *root)
{
    check_memory(d, root);
    check_frozen(d, root);
}
