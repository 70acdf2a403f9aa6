/* SPDX-License-Identifier: Apache-2.0 */
#include "zero.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AFTER_DEATH_S 10

/* Shared by the processes of one program. */
struct meeting {
    ncclUniqueId id;
    _Atomic int id_made, came, round, sum;
};
static struct meeting *meeting;

static struct meeting *map_meeting(int fd)
{
    struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED)
        DIE(3, "no shared memory");
    return m;
}

static void set_own_environment(const char *rank)
{
    char name[32], *rest;
    snprintf(name, sizeof name, "ZERO_SET_%s", rank);
    const char *set = getenv(name);
    if (!set)
        return;
    char *copy = strdup(set);
    for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest))
        putenv(strdup(one));
    free(copy);
}

static pid_t start(int rank, int fd, char **argv)
{
    char text[2][16];
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", fd);
    setenv("RANK", text[0], 1);
    setenv("ZERO_FD", text[1], 1);
    set_own_environment(text[0]);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static int be_rank(int nranks, rank_body body, void *arg)
{
    struct rank r = {.rank = atoi(getenv("RANK")), .nranks = nranks, .arg = arg};
    int devices = 0;
    meeting = map_meeting(atoi(getenv("ZERO_FD")));
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(r.rank % devices));
    if (r.rank == 0) {
        NCCL(ncclGetUniqueId(&meeting->id));
        meeting->id_made = 1;
    }
    while (!meeting->id_made)
        sleep_ms(1);
    r.id = meeting->id;
    body(&r);
    return wrong_count() ? 1 : 0;
}

static int reap(const pid_t *pid, int n, int seconds)
{
    const char *less = getenv("RANKS_SECONDS"); /* as programs/ranks.h has it */
    time_t end = time(NULL) + (less ? atoi(less) : seconds);
    int worst = 0, left = n, status;
    bool gone[64] = {false};
    while (left > 0 && time(NULL) < end) {
        for (int r = 0; r < n; r++) {
            if (gone[r] || waitpid(pid[r], &status, WNOHANG) != pid[r])
                continue;
            gone[r] = true;
            left--;
            int s = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (s)
                fprintf(stderr, "rank %d: status %d\n", r, s);
            worst = s > worst ? s : worst;
            if (s > 1 && end > time(NULL) + AFTER_DEATH_S)
                end = time(NULL) + AFTER_DEATH_S; /* the others may wait for it for ever */
        }
        sleep_ms(5);
    }
    for (int r = 0; r < n; r++)
        if (!gone[r]) {
            fprintf(stderr, "rank %d: not finished in time, killed\n", r);
            kill(pid[r], SIGKILL);
            waitpid(pid[r], NULL, 0);
            worst = 4;
        }
    return worst;
}

int zero_run(int nranks, int seconds, char **argv, rank_body body, void *arg)
{
    if (getenv("ZERO_FD"))
        return be_rank(nranks, body, arg);
    pid_t pid[64];
    int fd = memfd_create("zero", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct meeting)) != 0)
        return 2;
    for (int r = 0; r < nranks; r++)
        pid[r] = start(r, fd, argv);
    return reap(pid, nranks, seconds);
}

void zero_barrier(struct rank *r)
{
    int round = meeting->round;
    if (++meeting->came == r->nranks) {
        meeting->came = 0;
        meeting->round++;
    }
    while (meeting->round == round)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int zero_sum(struct rank *r, int n)
{
    meeting->sum += n;
    zero_barrier(r);
    return meeting->sum;
}

void zero_host(struct gather *g, const struct rank *r, size_t shard)
{
    *g = (struct gather){.rank = r->rank, .nranks = r->nranks, .shard = shard};
    CUDA(cudaMallocHost((void **)&g->host, shard * (size_t)r->nranks));
}

void zero_alloc(struct gather *g, size_t extra)
{
    CUDA(cudaMalloc((void **)&g->send, g->shard + extra));
    CUDA(cudaMalloc((void **)&g->recv, g->shard * (size_t)g->nranks));
}

void zero_free(struct gather *g)
{
    CUDA(cudaFree(g->send));
    CUDA(cudaFree(g->recv));
}

void zero_round(struct rank *r, struct gather *g, uint64_t seed, const char *what)
{
    gather_load(g, seed, r->stream);
    zero_barrier(r);
    gather_call(g, r->comm, r->stream);
    gather_check(g, seed, r->stream, what);
}

void zero_warm_up(struct rank *r, struct gather *g)
{
    for (int i = 0; i < 8; i++) {
        zero_round(r, g, 1000000 + (uint64_t)i, "warm-up");
        sleep_ms(60);
    }
}

size_t zero_wait_free(size_t want, unsigned ms)
{
    size_t have = 0, total;
    for (unsigned t = 0; t <= ms; t += 20) {
        CUDA(cudaMemGetInfo(&have, &total));
        if (have >= want)
            break;
        sleep_ms(20);
    }
    return have;
}
