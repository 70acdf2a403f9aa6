/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks make a communicator and gather while a stranger is connected to the bootstrap's socket,
 * which it has found in /proc/net/unix as anybody can. Rank 1 begins when the stranger is there.
 *
 *   among CONNECTIONS [other]   so many connections that say nothing; of another user, if this one is root
 */
#include "../faults/player.h"

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

/* The name of the bootstrap's socket of that process, without the leading zero. */
static bool find_socket(int pid, char name[100])
{
    char line[300];
    unsigned long inode;
    FILE *f = fopen("/proc/net/unix", "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%*s %*s %*s %*s %*s %*s %lu @%99s", &inode, name) == 2 &&
                !strncmp(name, "slipring-", 9) && strncmp(name, "slipring-oob-", 13) != 0 && holds_socket(pid, inode);
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

static void stranger(int connections, bool other, int told)
{
    char name[100];
    struct rlimit most;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    while (!find_socket(board()->pid[0], name))
        board_sleep_ms(2);
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
    }
    if (other && geteuid() == 0 && setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
        _exit(2);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user has taken it back */
    for (int i = 0; i < connections; i++)
        connect_to(name);
    if (write(told, "", 1) != 1)
        _exit(3);
    for (;;)
        pause();
}

/* Forked before anything of CUDA begins. */
static pid_t let_in_stranger(int connections, bool other, int *told)
{
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0)
        stranger(connections, other, ends[1]);
    close(ends[1]);
    *told = ends[0];
    return pid;
}

int main(int argc, char **argv)
{
    struct buffers b;
    char c;
    int told = -1, first = board_env(BOARD_RANK_ENV, -1) == 1;
    pid_t pid = first ? let_in_stranger(atoi(argv[1]), argc > 2, &told) : -1;
    struct rank r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, 100000);
    CHECK(!first || read(told, &c, 1) == 1, "the stranger does not find the socket");
    int64_t begin = player_ms();
    NCCL(ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank));
    CHECK(!first || player_ms() - begin < IN_TIME_MS, "the stranger was waited for: %lld ms",
          (long long)(player_ms() - begin));
    buffers_fill(&b, &r, 0);
    NCCL(player_gather(&r, &b, 10000));
    buffers_check(&b, &r, 0);
    NCCL(ncclCommDestroy(r.comm));
    if (first) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    buffers_free(&b);
    CUDA(cudaStreamDestroy(r.stream));
    return 0;
}
