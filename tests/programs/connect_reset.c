/* SPDX-License-Identifier: Apache-2.0 */
/* cudaDeviceReset: what slipring still holds of the old context goes with it, and is not freed later by its address.
 *
 *   reset retired   rank 0 destroys its communicator, resets its device and fills the memory again, while rank 1 still
 *                   has rank 0's staging open; then rank 1 destroys. What stands at the old addresses must live on
 *   reset imports   rank 0 resets its device while it has rank 1's blocks open, with its communicator not destroyed,
 *                   and gathers from the same blocks in a new one
 */
#include "../faults/player.h"

#include <string.h>
#include <unistd.h>

#define SHARD ((size_t)2 << 20)
#define BLOCKS 64

static struct rank r;
static struct buffers b;
static uint32_t phase;

static void meet(void)
{
    atomic_store(&board()->mark[r.rank], ++phase);
    CHECK(board_wait_all(r.nranks, -1, phase, 20000), "rank %d: the others have not come to %u", r.rank, phase);
}

static void gathers(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        buffers_fill(&b, &r, i);
        NCCL(player_gather(&r, &b, 20000));
        buffers_check(&b, &r, i);
        board_sleep_ms(60); /* blocks are offered in the background */
    }
}

static void start(void)
{
    CUDA(cudaSetDevice(r.rank));
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
}

static void open_comm(void)
{
    NCCL(ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank));
}

/* Every address that was in use is in use again. */
static void live_on(void)
{
    void *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CUDA(cudaMalloc(&block[i], 96 << 10));
        CUDA(cudaMemset(block[i], i, 96 << 10));
    }
    CUDA(cudaDeviceSynchronize());
    meet(); /* rank 1 destroys now */
    meet();
    board_sleep_ms(400);
    for (int i = 0; i < BLOCKS; i++) {
        uint8_t byte = 255;
        CUDA(cudaMemcpy(&byte, (char *)block[i] + (40 << 10), 1, cudaMemcpyDeviceToHost));
        CHECK(byte == i, "block %d holds %d", i, byte);
        CUDA(cudaFree(block[i]));
    }
}

static void retired(void)
{
    buffers_make(&b, &r, SHARD);
    open_comm();
    gathers(0, 2);
    meet();
    if (r.rank == 0) {
        NCCL(ncclCommDestroy(r.comm));
        CUDA(cudaDeviceReset());
        CUDA(cudaSetDevice(0));
        live_on();
        return;
    }
    meet();
    NCCL(ncclCommDestroy(r.comm));
    meet();
}

static void next_id(void)
{
    meet();
    if (r.rank == 0) {
        NCCL(ncclGetUniqueId(&r.id));
        memcpy(board()->id, &r.id, sizeof r.id);
        atomic_store(&board()->id_there, 2);
    }
    CHECK(board_wait(&board()->id_there, 2, 10000), "rank %d: no second id", r.rank);
    memcpy(&r.id, board()->id, sizeof r.id);
}

static void imports(void)
{
    buffers_make(&b, &r, SHARD);
    open_comm();
    gathers(0, 6);
    meet();
    if (r.rank == 0) {
        CUDA(cudaDeviceReset());
        start();
        free(b.host); /* what was on the device has gone with it */
        buffers_make(&b, &r, SHARD);
    }
    next_id();
    open_comm();
    gathers(10, 6);
    meet();
    NCCL(ncclCommDestroy(r.comm));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage: reset retired|imports");
    alarm(60);
    r = player_start();
    start();
    if (!strcmp(argv[1], "retired"))
        retired();
    else
        imports();
    return 0;
}
