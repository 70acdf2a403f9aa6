/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <string.h>
#include <time.h>

static void share_id(struct rank *r)
{
    struct board *b = board();
    if (r->rank == 0) {
        NCCL(ncclGetUniqueId(&r->id));
        memcpy(b->id, &r->id, sizeof b->id);
        atomic_store(&b->id_there, 1);
        return;
    }
    CHECK(board_wait(&b->id_there, 1, 10000), "rank %d: no unique id", r->rank);
    memcpy(&r->id, b->id, sizeof r->id);
}

struct rank player_start(void)
{
    struct rank r = {.rank = board_env(BOARD_RANK_ENV, -1), .nranks = board_env(BOARD_NRANKS_ENV, 0)};
    int devices = 0;
    CHECK(board() && r.rank >= 0, "start this with launch");
    rank_name_host(r.rank);
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(r.rank % devices));
    share_id(&r);
    return r;
}

void buffers_make(struct buffers *b, const struct rank *r, size_t shard)
{
    *b = (struct buffers){.shard = shard, .all = shard * (size_t)r->nranks};
    b->host = malloc(b->all);
    CHECK(b->host, "no memory");
    CUDA(cudaMalloc((void **)&b->send, shard));
    CUDA(cudaMalloc((void **)&b->recv, b->all));
}

void buffers_free(struct buffers *b)
{
    CUDA(cudaFree(b->send));
    CUDA(cudaFree(b->recv));
    free(b->host);
}

static uint64_t seed_of(int rank, unsigned round)
{
    return hash64((uint64_t)rank + 1, round);
}

void buffers_fill(const struct buffers *b, const struct rank *r, unsigned round)
{
    hash_fill(b->host, b->shard, seed_of(r->rank, round));
    CUDA(cudaMemsetAsync(b->recv, 0xa5, b->all, r->stream));
    CUDA(cudaMemcpyAsync(b->send, b->host, b->shard, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

void buffers_check(const struct buffers *b, const struct rank *r, unsigned round)
{
    CUDA(cudaMemcpy(b->host, b->recv, b->all, cudaMemcpyDeviceToHost));
    for (int owner = 0; owner < r->nranks; owner++) {
        size_t wrong = hash_differs(b->host + (size_t)owner * b->shard, b->shard, seed_of(owner, round));
        CHECK(wrong == b->shard, "rank %d: round %u: rank %d's shard is wrong at byte %zu of %zu", r->rank, round,
              owner, wrong, b->shard);
    }
}

int64_t player_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

ncclResult_t player_try(const struct rank *r, int ms)
{
    for (int64_t end = player_ms() + ms;;) {
        cudaError_t busy = cudaStreamQuery(r->stream);
        ncclResult_t error = ncclSuccess;
        NCCL(ncclCommGetAsyncError(r->comm, &error));
        if (error != ncclSuccess || busy == cudaSuccess)
            return error;
        if (busy != cudaErrorNotReady)
            return ncclUnhandledCudaError;
        if (player_ms() >= end)
            return ncclInProgress;
        board_sleep_ms(1);
    }
}

ncclResult_t player_wait(const struct rank *r, int ms)
{
    ncclResult_t e = player_try(r, ms);
    if (e == ncclInProgress)
        DIE(HANG_STATUS, "rank %d: neither done nor in error after %d ms", r->rank, ms);
    return e;
}

void player_drain(const struct rank *r, int ms)
{
    for (int64_t end = player_ms() + ms; cudaStreamQuery(r->stream) == cudaErrorNotReady;) {
        if (player_ms() >= end)
            DIE(HANG_STATUS, "rank %d: the stream is still busy after %d ms", r->rank, ms);
        board_sleep_ms(1);
    }
}

ncclResult_t player_gather(const struct rank *r, const struct buffers *b, int ms)
{
    ncclResult_t e = ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream);
    return e == ncclSuccess ? player_wait(r, ms) : e;
}
