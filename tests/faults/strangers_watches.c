/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of the same ranks share the process descriptors on their peers: each rank counts what is open. NCCL
 * opens some too, so a communicator that slipring does not see (pncclCommSplit) shows how many.
 */
#include "player.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define COMMS 4

static int pidfds(void)
{
    char path[300], link[64];
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    CHECK(d, "/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t len = readlink(path, link, sizeof link - 1);
        link[len < 0 ? 0 : len] = 0;
        n += !strcmp(link, "anon_inode:[pidfd]");
    }
    closedir(d);
    return n;
}

static void gather(struct rank *r, const struct buffers *b, ncclComm_t comm, unsigned round)
{
    r->comm = comm;
    buffers_fill(b, r, round);
    NCCL(player_gather(r, b, 20000));
    buffers_check(b, r, round);
}

int main(void)
{
    struct buffers b;
    ncclComm_t comm[COMMS], plain;
    struct rank r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, 10000);
    int others = r.nranks - 1;
    NCCL(ncclCommInitRank(&comm[0], r.nranks, r.id, r.rank));
    gather(&r, &b, comm[0], 0);
    int first = pidfds();
    NCCL(pncclCommSplit(comm[0], 0, r.rank, &plain, NULL));
    int nccl = pidfds() - first;
    CHECK(first - nccl == others,
          "rank %d: the first communicator has %d process descriptors beside NCCL's %d, for %d peers", r.rank,
          first - nccl, nccl, others);
    for (int i = 1; i < COMMS; i++) {
        int before = pidfds();
        NCCL(ncclCommSplit(comm[0], 0, r.rank, &comm[i], NULL));
        gather(&r, &b, comm[i], (unsigned)i);
        int now = pidfds();
        CHECK(now - before == nccl, "rank %d: communicator %d has %d process descriptors more than NCCL's %d", r.rank,
              i, now - before - nccl, nccl);
    }
    for (int i = COMMS - 1; i >= 0; i--)
        NCCL(ncclCommDestroy(comm[i]));
    NCCL(pncclCommDestroy(plain));
    for (int ms = 0; ms < 20000 && pidfds() > 0; ms += 10)
        board_sleep_ms(10);
    CHECK(pidfds() == 0, "rank %d: %d process descriptors are left", r.rank, pidfds());
    buffers_free(&b);
    CUDA(cudaStreamDestroy(r.stream));
    return 0;
}
