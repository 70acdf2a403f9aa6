/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is frozen and thawed as a whole in the middle of a gather: all ranks stop themselves, and launch.c
 * continues them. Rank 0 has not called yet, and does so late, so that the others see no progress when they look for
 * the first time. With a SLIPRING_STALL_TIMEOUT that is shorter than the stop everything has to be exact. */
#include "player.h"

#include <signal.h>
#include <unistd.h>

#define A_FEW_LOOKS 300000 /* us, of the watchdog */

static void gather(const struct rank *r, const struct buffers *b)
{
    NCCL(ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream));
}

int main(void)
{
    struct buffers b;
    struct rank r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, 100003);
    NCCL(ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank));
    buffers_fill(&b, &r, 0);
    NCCL(player_gather(&r, &b, 10000)); /* connects them */
    buffers_check(&b, &r, 0);
    buffers_fill(&b, &r, 1);
    if (r.rank != 0)
        gather(&r, &b);
    atomic_store(&board()->mark[r.rank], 1);
    CHECK(board_wait_all(r.nranks, -1, 1, 10000), "rank %d: the others have not come", r.rank);
    usleep(A_FEW_LOOKS); /* the call is progress itself */
    raise(SIGSTOP);
    if (r.rank == 0) {
        usleep(A_FEW_LOOKS);
        gather(&r, &b);
    }
    NCCL(player_wait(&r, 10000));
    buffers_check(&b, &r, 1);
    buffers_free(&b);
    rank_close(&r);
    return 0;
}
