/* SPDX-License-Identifier: Apache-2.0 */
/* Whose processes, and which control blocks they hold. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/top/top.h"

#define BLOCK_LINK "/memfd:slipring-control" /* as /proc names what bootstrap.c makes */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A file of /proc/PID, as far as it fits. Empty: it is not there, or not for this user. */
static size_t read_of(pid_t pid, const char *what, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(text, 1, size - 1, in) : 0;
    if (in)
        fclose(in);
    text[n] = '\0';
    return n;
}

/* "12 (a name) S 3 ...": the name may hold anything. */
static bool read_process(pid_t pid, struct top_process *p)
{
    char text[4096];
    *p = (struct top_process){.pid = pid, .inner = pid};
    if (!read_of(pid, "stat", text, sizeof text))
        return false;
    char *name = strchr(text, '('), *behind = strrchr(text, ')');
    if (!name || !behind || sscanf(behind + 1, " %c", &p->state) != 1)
        return false;
    *behind = '\0';
    p->name = tool_copy(name + 1);
    for (char *at = p->name; *at; at++) /* it goes to a terminal */
        *at = iscntrl((unsigned char)*at) ? '?' : *at;
    read_of(pid, "status", text, sizeof text);
    const char *line = strstr(text, "\nNSpid:"); /* outermost first */
    if (line) {
        const size_t length = strcspn(line + 1, "\n") + 1;
        const char *last = memrchr(line, '\t', length);
        p->inner = last ? (pid_t)atol(last) : pid;
    }
    return true;
}

static bool has_library(pid_t pid)
{
    char path[64], line[4352];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *in = fopen(path, "re");
    while (in && !found && fgets(line, sizeof line, in))
        found = strstr(line, "/libslipring.so") != NULL;
    if (in)
        fclose(in);
    return found;
}

/* Why it can not be read; NULL: it can, and stays as large as it is. */
static const char *map_block(struct top_block *b, int fd, const struct stat *st)
{
    static const char other[] = "it is of another build of slipring, whose `slipring top` can read it";
    if (st->st_size < (off_t)sizeof(struct slr_control) || (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
        return other;
    b->bytes = (size_t)st->st_size;
    struct slr_control *control = mmap(NULL, b->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        return "it can not be mapped";
    const int nranks = control->nranks;
    if (control->magic == SLR_CONTROL_MAGIC && nranks > 1 && nranks <= SLR_MAX_RANKS &&
        b->bytes == slr_control_bytes(nranks)) {
        b->control = control;
        return NULL;
    }
    munmap(control, b->bytes);
    return other;
}

static struct top_block *block_of(struct top *t, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return NULL;
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].ino == st.st_ino && t->blocks.at[i].dev == st.st_dev)
            return &t->blocks.at[i];
    struct top_block *b = vec_add(&t->blocks);
    b->dev = st.st_dev;
    b->ino = st.st_ino;
    b->problem = map_block(b, fd, &st);
    return b;
}

/* A rank that is twice in a communicator, as one process with several ranks is, holds it twice. */
static void add_holder(struct top_block *b, uint32_t process)
{
    if (!b->holders.n || b->holders.at[b->holders.n - 1] != process)
        vec_push(&b->holders, process);
}

static bool read_blocks(struct top *t, pid_t pid, uint32_t process)
{
    char path[320], link[64];
    bool holds = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, e->d_name);
        const ssize_t n = readlink(path, link, sizeof link);
        if (n < (ssize_t)strlen(BLOCK_LINK) || memcmp(link, BLOCK_LINK, strlen(BLOCK_LINK)) != 0)
            continue;
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct top_block *b = fd < 0 ? NULL : block_of(t, fd);
        if (fd >= 0)
            close(fd);
        if (b)
            add_holder(b, process);
        holds |= b != NULL;
    }
    if (dir)
        closedir(dir);
    return holds;
}

static bool is_asked(pid_t pid, const pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static bool is_own(pid_t pid, struct stat *st)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, st) == 0 && st->st_uid == geteuid();
}

static void add_process(struct top *t, pid_t pid, bool asked)
{
    struct top_process p;
    struct stat st;
    if (!is_own(pid, &st) || !read_process(pid, &p))
        return;
    p.asked = asked;
    p.holds = read_blocks(t, pid, (uint32_t)t->processes.n);
    if (p.holds || has_library(pid))
        vec_push(&t->processes, p);
    else
        free(p.name);
}

static void free_block(struct top_block *b)
{
    if (b->control)
        munmap(b->control, b->bytes);
    vec_free(&b->holders);
}

/* Leaves the blocks of the processes that the user has named. */
static void leave_asked(struct top *t)
{
    size_t left = 0;
    for (size_t i = 0; i < t->blocks.n; i++) {
        struct top_block b = t->blocks.at[i];
        bool asked = false;
        for (size_t j = 0; j < b.holders.n; j++)
            asked |= t->processes.at[b.holders.at[j]].asked;
        if (asked)
            t->blocks.at[left++] = b;
        else
            free_block(&b);
    }
    t->blocks.n = left;
}

static void say_owner(pid_t pid, uid_t uid)
{
    const struct passwd *of = getpwuid(uid);
    fprintf(stderr, "slipring top: process %d belongs to another user, %s: only a job's own user can look at it\n",
            (int)pid, of ? of->pw_name : "who has no name here");
}

/* Of a process that the user has named. */
static bool is_shown(const struct top *t, pid_t pid)
{
    struct stat st;
    const bool own = is_own(pid, &st);
    for (size_t i = 0; own && i < t->processes.n; i++)
        if (t->processes.at[i].pid == pid && t->processes.at[i].holds)
            return true;
    if (own)
        fprintf(stderr, "slipring top: process %d has no communicator on the ring%s\n", (int)pid,
                has_library(pid)
                    ? ": it has made none yet, or NCCL has all calls, or its slipring is too old to show any"
                    : ": libslipring.so is not loaded in it");
    else if (kill(pid, 0) == 0 || errno == EPERM)
        say_owner(pid, st.st_uid);
    else
        fprintf(stderr, "slipring top: there is no process %d\n", (int)pid);
    return false;
}

/* What is there, where nothing is shown. */
static void say_none(const struct top *t)
{
    const struct passwd *of = getpwuid(geteuid());
    fprintf(stderr, "slipring top: no process of %s has a communicator on the ring", of ? of->pw_name : "this user");
    for (size_t i = 0; i < t->processes.n && i < 8; i++)
        fprintf(stderr, "%s %d %s", i ? "," : "; libslipring.so is loaded in", (int)t->processes.at[i].pid,
                t->processes.at[i].name);
    fputs(t->processes.n > 8 ? " and others\n" : "\n", stderr);
}

bool top_find(struct top *t, const pid_t *pids, size_t n)
{
    DIR *dir = opendir("/proc");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const pid_t pid = (pid_t)atol(e->d_name);
        if (isdigit((unsigned char)e->d_name[0]) && pid != getpid())
            add_process(t, pid, is_asked(pid, pids, n));
    }
    if (dir)
        closedir(dir);
    if (n)
        leave_asked(t);
    for (size_t i = 0; i < n; i++)
        is_shown(t, pids[i]);
    if (!n && !t->blocks.n)
        say_none(t);
    return t->blocks.n > 0;
}

void top_free(struct top *t)
{
    for (size_t i = 0; i < t->blocks.n; i++)
        free_block(&t->blocks.at[i]);
    for (size_t i = 0; i < t->processes.n; i++)
        free(t->processes.at[i].name);
    vec_free(&t->blocks);
    vec_free(&t->processes);
    *t = (struct top){0};
}
