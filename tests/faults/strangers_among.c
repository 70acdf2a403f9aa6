/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks make a communicator and gather while a stranger is connected to the bootstrap's socket,
 * which it has found in /proc/net/unix as anybody can. Rank 1 begins when the stranger is there.
 *
 *   among CONNECTIONS [other]   so many connections that say nothing; of another user, if this one is root
 *   among N other flood         messages without end to rank 0's process, from N processes, while the ranks map each other's
 *                               memory
 */
#include "player.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_USER 65534
#define IN_TIME_MS 10000 /* half of SLIPRING_AGREE_TIMEOUT */

static bool holds_socket(int pid, unsigned long inode)
{
    char path[300], link[64], want[64];
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        found = !strcmp(link, want);
    }
    if (d)
        closedir(d);
    return found;
}

/* The name of that process's socket, without the leading zero: of the bootstrap, or (oob) for messages. */
static bool find_socket(int pid, bool oob, char name[100])
{
    char line[300];
    unsigned long inode;
    FILE *f = fopen("/proc/net/unix", "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%*s %*s %*s %*s %*s %*s %lu @%99s", &inode, name) == 2 &&
                !strncmp(name, "slipring-", 9) && !strncmp(name, "slipring-oob-", 13) == oob &&
                holds_socket(pid, inode);
    if (f)
        fclose(f);
    return found;
}

static void connect_to(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(a.sun_path + 1, name, n);
    int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    while (s >= 0 &&
           connect(s, (const struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)))
        if (errno != EINTR && errno != EAGAIN)
            _exit(1);
}

/* As fast as it can; of the length that messages had, or have. */
static void flood(const char *name)
{
    static const char rubbish[56];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const size_t n = strlen(name);
    memcpy(a.sun_path + 1, name, n);
    for (int s = socket(AF_UNIX, SOCK_DGRAM, 0);;)
        sendto(s, rubbish, sizeof rubbish, MSG_DONTWAIT, (const struct sockaddr *)&a,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
}

static void stranger(int connections, bool other, bool floods, int told)
{
    char name[100];
    struct rlimit most;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    while (!find_socket(board()->pid[0], floods, name))
        board_sleep_ms(2);
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
    if (other && geteuid() == 0 && setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
        _exit(2);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user has taken it back */
    for (int i = 0; i < connections && !floods; i++)
        connect_to(name);
    for (int i = 1; i < connections && floods; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(60);
            flood(name);
        }
    if (write(told, "", 1) != 1)
        _exit(3);
    if (floods)
        flood(name);
    for (;;)
        pause();
}

/* Forked before anything of CUDA begins. */
static pid_t let_in_stranger(int connections, bool other, bool floods, int *told)
{
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0)
        stranger(connections, other, floods, ends[1]);
    close(ends[1]);
    *told = ends[0];
    return pid;
}

/* Memory that a peer maps by a descriptor, which it asks for. The log tells when that has taken too long. */
static void use_registered(const struct rank *r, const struct buffers *b)
{
    struct buffers m = *b;
    void *handle[2];
    NCCL(ncclMemAlloc((void **)&m.send, m.shard));
    NCCL(ncclMemAlloc((void **)&m.recv, m.all));
    NCCL(ncclCommRegister(r->comm, m.send, m.shard, &handle[0]));
    NCCL(ncclCommRegister(r->comm, m.recv, m.all, &handle[1]));
    for (unsigned round = 1; round < 5; round++) {
        buffers_fill(&m, r, round);
        NCCL(player_gather(r, &m, 10000));
        buffers_check(&m, r, round);
    }
    NCCL(ncclCommDeregister(r->comm, handle[0]));
    NCCL(ncclCommDeregister(r->comm, handle[1]));
    NCCL(ncclMemFree(m.send));
    NCCL(ncclMemFree(m.recv));
}

static void await_stranger(int told)
{
    char c;
    CHECK(read(told, &c, 1) == 1, "the stranger does not find the socket");
}

int main(int argc, char **argv)
{
    struct buffers b;
    const bool first = board_env(BOARD_RANK_ENV, -1) == 1, floods = argc > 3;
    int told = -1;
    pid_t pid = first ? let_in_stranger(atoi(argv[1]), argc > 2, floods, &told) : -1;
    struct rank r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, 100000);
    if (first && !floods)
        await_stranger(told);
    int64_t begin = player_ms();
    NCCL(ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank));
    CHECK(!first || player_ms() - begin < IN_TIME_MS, "the stranger was waited for: %lld ms",
          (long long)(player_ms() - begin));
    if (first && floods)
        await_stranger(told);
    buffers_fill(&b, &r, 0);
    NCCL(player_gather(&r, &b, 10000));
    buffers_check(&b, &r, 0);
    if (floods)
        use_registered(&r, &b);
    NCCL(ncclCommDestroy(r.comm));
    if (first) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    buffers_free(&b);
    CUDA(cudaStreamDestroy(r.stream));
    return 0;
}
