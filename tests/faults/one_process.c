/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one process and one thread (ncclCommInitAll) when one of them goes away or the driver refuses.
 *
 *   one_process exact RANKS   gathers in groups are exact, on the ring or not
 *   one_process abort RANKS   the last communicator is aborted while the others have a gather in flight that it never
 *                             began: they get an error within 2 s, their streams drain, they can be aborted
 *   one_process turn RANKS    all are aborted while NCCL has a gather in its turn of the trials (SLIPRING_TRIALS_AFTER
 *                             is 2), behind something that ends much later: what is written then is still there
 */
#include "player.h"

#include <string.h>

static struct rank ranks[BOARD_RANKS];
static struct buffers buffers[BOARD_RANKS];
static int n;

static void open_all(void)
{
    ncclComm_t comms[BOARD_RANKS];
    NCCL(ncclCommInitAll(comms, n, NULL));
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = n, .comm = comms[i]};
        CUDA(cudaSetDevice(i));
        CUDA(cudaStreamCreateWithFlags(&ranks[i].stream, cudaStreamNonBlocking));
        buffers_make(&buffers[i], &ranks[i], 500009);
    }
}

static void fill_all(unsigned round)
{
    for (int i = 0; i < n; i++) {
        CUDA(cudaSetDevice(i));
        buffers_fill(&buffers[i], &ranks[i], round);
    }
}

static ncclResult_t call(int i)
{
    const struct buffers *b = &buffers[i];
    return ncclAllGather(b->send, b->recv, b->shard, ncclInt8, ranks[i].comm, ranks[i].stream);
}

static void exact(unsigned round)
{
    fill_all(round);
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++)
        NCCL(call(i));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < n; i++) {
        CUDA(cudaSetDevice(i));
        NCCL(player_wait(&ranks[i], 10000));
        buffers_check(&buffers[i], &ranks[i], round);
    }
}

static void aborted(void)
{
    fill_all(13);
    for (int i = 0; i < n - 1; i++)
        NCCL(call(i));
    NCCL(ncclCommAbort(ranks[n - 1].comm));
    for (int i = 0; i < n - 1; i++)
        CHECK(player_wait(&ranks[i], 2000) != ncclSuccess, "rank %d: no error", i);
    for (int i = 0; i < n - 1; i++)
        CHECK(cudaStreamQuery(ranks[i].stream) == cudaErrorNotReady, "rank %d: completes without the data", i);
    for (int i = 0; i < n - 1; i++) {
        NCCL(ncclCommAbort(ranks[i].comm));
        player_drain(&ranks[i], 2000);
    }
}

static void hang(void *word)
{
    board_wait(word, 1, 20000);
}

static void turn(void)
{
    static _Atomic uint32_t let_go;
    for (unsigned round = 3; round < 11; round++) /* two ways of the ring come first */
        exact(round);
    fill_all(13);
    NCCL(ncclGroupStart());
    for (int i = 0; i < n; i++) {
        CUDA(cudaSetDevice(i));
        CUDA(cudaLaunchHostFunc(ranks[i].stream, hang, &let_go));
        NCCL(call(i));
    }
    NCCL(ncclGroupEnd());
    for (int i = 0; i < n; i++)
        NCCL(ncclCommAbort(ranks[i].comm));
    board_sleep_ms(500); /* the rest of the communicators is cleaned up behind our back */
    atomic_store(&let_go, 1);
    for (int i = 0; i < n; i++)
        player_drain(&ranks[i], 2000);
    board_sleep_ms(300);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3, "usage: one_process exact|abort|turn RANKS");
    n = atoi(argv[2]);
    CHECK(n >= 2 && n <= BOARD_RANKS, "RANKS is %d", n);
    open_all();
    for (unsigned round = 0; round < 3; round++)
        exact(round);
    if (!strcmp(argv[1], "abort")) {
        aborted();
        return 0;
    }
    if (!strcmp(argv[1], "turn")) {
        turn();
        return 0;
    }
    for (int i = 0; i < n; i++)
        NCCL(ncclCommDestroy(ranks[i].comm));
    return 0;
}
