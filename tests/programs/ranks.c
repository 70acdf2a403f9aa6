/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

UNWATCHED void hash_fill(uint8_t *host, size_t bytes, uint64_t seed)
{
    const size_t last = bytes - bytes % 8;
    for (size_t i = 0; i < last; i += 8) {
        uint64_t v = hash64(seed, i);
        memcpy(host + i, &v, sizeof v); /* of a constant size: no call, which a sanitizer would look at */
    }
    uint64_t v = hash64(seed, last);
    memcpy(host + last, &v, bytes - last);
}

UNWATCHED size_t hash_differs(const uint8_t *host, size_t bytes, uint64_t seed)
{
    size_t i = 0;
    for (uint64_t have; i + 8 <= bytes; i += 8) {
        memcpy(&have, host + i, sizeof have);
        if (have != hash64(seed, i))
            return i;
    }
    const uint64_t v = hash64(seed, i);
    return memcmp(host + i, &v, bytes - i) ? i : bytes;
}

static void share_id(struct rank *r, int (*pipes)[2])
{
    if (r->rank == 0) {
        NCCL(ncclGetUniqueId(&r->id));
        for (int p = 1; p < r->nranks; p++)
            CHECK(write(pipes[p][1], &r->id, sizeof r->id) == (ssize_t)sizeof r->id, "id to rank %d: %s", p,
                  strerror(errno));
        return;
    }
    CHECK(read(pipes[r->rank][0], &r->id, sizeof r->id) == (ssize_t)sizeof r->id, "id at rank %d: %s", r->rank,
          strerror(errno));
}

static int device_count(void)
{
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    return devices;
}

int rank_device(int rank)
{
    return rank % device_count();
}

/* NCCL refuses two ranks on one device of one host: they claim hosts of their own, and talk over sockets. */
static void share_device(int rank)
{
    char host[32];
    snprintf(host, sizeof host, "rank%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

void rank_place(int rank, int nranks)
{
    CUDA(cudaSetDevice(rank_device(rank)));
    if (device_count() < nranks)
        share_device(rank);
}

void (*ranks_begin)(int rank);

void rank_name_host(int rank)
{
    const char *hosts = getenv("TEST_HOSTS"), *of_rank = hosts;
    char host[32];
    if (!hosts)
        return;
    const bool list = strchr(hosts, ',');
    for (int r = 0; list && r < rank; r++)
        of_rank += strcspn(of_rank, ",") + 1;
    snprintf(host, sizeof host, "host%d", list ? atoi(of_rank) : rank / atoi(hosts));
    setenv("SLIPRING_HOST", host, 1);
}

/* With TEST_RANK_ENV=RANK:NAME=VALUE in the environment that rank has this besides. */
static void set_own(int rank)
{
    const char *of = getenv("TEST_RANK_ENV"), *set = of ? strchr(of, ':') : NULL;
    if (set && atoi(of) == rank)
        putenv((char *)set + 1);
}

static void child(struct rank *r, int (*pipes)[2], rank_body body)
{
    set_own(r->rank);
    rank_name_host(r->rank);
    if (ranks_begin)
        ranks_begin(r->rank);
    rank_place(r->rank, r->nranks);
    share_id(r, pipes);
    body(r);
    fflush(NULL);
    exit(0);
}

static int status_of(int rank, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status))
        fprintf(stderr, "rank %d: exit status %d\n", rank, WEXITSTATUS(status));
    else
        fprintf(stderr, "rank %d: signal %d\n", rank, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reaps all; after the deadline the rest is killed. That comes soon when a rank has failed: its peers may wait for it
 * for ever, and it is the one that has something to say. */
#define FAILED_SECONDS 20
static int reap(const pid_t *pid, int n, int seconds)
{
    const char *less = getenv("RANKS_SECONDS");
    time_t end = time(NULL) + (less ? atoi(less) : seconds);
    int worst = 0, left = n;
    bool done[64] = {false};
    while (left > 0) {
        for (int r = 0; r < n; r++) {
            int status, s;
            if (done[r] || waitpid(pid[r], &status, WNOHANG) != pid[r])
                continue;
            done[r] = true;
            left--;
            s = status_of(r, status);
            worst = s > worst ? s : worst;
            if (s != 0 && WIFEXITED(status) && time(NULL) + FAILED_SECONDS < end)
                end = time(NULL) + FAILED_SECONDS;
        }
        if (left && time(NULL) >= end) {
            for (int r = 0; r < n; r++)
                if (!done[r]) {
                    fprintf(stderr, "rank %d: not finished %s, killed\n", r,
                            worst ? "though another has failed" : "in time");
                    kill(pid[r], SIGKILL);
                    waitpid(pid[r], NULL, 0);
                }
            return worst ? worst : 4;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return worst;
}

int ranks_run(int nranks, int seconds, rank_body body, void *arg)
{
    int pipes[64][2];
    pid_t pid[64];
    for (int r = 0; r < nranks; r++)
        if (pipe(pipes[r]) != 0)
            DIE(3, "pipe: %s", strerror(errno));
    for (int r = 0; r < nranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            struct rank me = {.rank = r, .nranks = nranks, .arg = arg};
            child(&me, pipes, body);
        }
    }
    return reap(pid, nranks, seconds);
}

void to_device(void *device, const void *host, size_t bytes)
{
    CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

void rank_open(struct rank *r)
{
    NCCL(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
}

void rank_close(struct rank *r)
{
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaStreamDestroy(r->stream));
    NCCL(ncclCommDestroy(r->comm));
}
