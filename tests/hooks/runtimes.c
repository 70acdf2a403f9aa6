/* SPDX-License-Identifier: Apache-2.0 */
/* Three ways to CUDA in one process: the program's own static runtime, a shared runtime that is opened at run time, and
 * the driver itself. Buffers, streams, copies and the waiting go through different ones, in turn.
 *
 *   runtimes RANKS
 */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include "../programs/ranks.h"

#define SHARD ((size_t)70001)

/* The shared runtime. */
static struct {
    __typeof__(&cudaFree) cudaFree;
    __typeof__(&cudaStreamSynchronize) cudaStreamSynchronize;
    __typeof__(&cudaDeviceSynchronize) cudaDeviceSynchronize;
    cudaError_t (*cudaMalloc)(void **, size_t);
    cudaError_t (*cudaMemcpyAsync)(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
} rt;
/* The driver. */
static struct {
    __typeof__(&cuMemcpyHtoDAsync) cuMemcpyHtoDAsync;
    __typeof__(&cuMemcpyDtoHAsync) cuMemcpyDtoHAsync;
    __typeof__(&cuStreamSynchronize) cuStreamSynchronize;
    __typeof__(&cuMemsetD8Async) cuMemsetD8Async;
} cu;

static void *symbol(void *library, const char *name)
{
    void *p = library ? dlsym(library, name) : NULL;
    if (!p)
        DIE(3, "%s: %s", name, dlerror());
    return p;
}

#define TEXT_(fn) #fn
#define TEXT(fn) TEXT_(fn)
#define LOAD(table, library, fn) (*(void **)&table.fn = symbol(library, TEXT(fn)))

static void load(void)
{
    void *runtime = dlopen("libcudart.so." TEXT(SLIPRING_CUDA_MAJOR), RTLD_NOW | RTLD_LOCAL),
         *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!runtime || !driver)
        DIE(3, "%s", dlerror());
    LOAD(rt, runtime, cudaMalloc);
    LOAD(rt, runtime, cudaFree);
    LOAD(rt, runtime, cudaMemcpyAsync);
    LOAD(rt, runtime, cudaStreamSynchronize);
    LOAD(rt, runtime, cudaDeviceSynchronize);
    LOAD(cu, driver, cuMemcpyHtoDAsync);
    LOAD(cu, driver, cuMemcpyDtoHAsync);
    LOAD(cu, driver, cuStreamSynchronize);
    LOAD(cu, driver, cuMemsetD8Async);
}

static void take_back(const struct rank *r, void *host, const void *recv, size_t all, int round)
{
    switch (round % 4) {
    case 0:
        CHECK(cu.cuMemcpyDtoHAsync(host, (CUdeviceptr)(uintptr_t)recv, all, (CUstream)r->stream) == CUDA_SUCCESS,
              "cuMemcpyDtoHAsync");
        CUDA(rt.cudaStreamSynchronize(r->stream));
        break;
    case 1:
        CUDA(rt.cudaMemcpyAsync(host, recv, all, cudaMemcpyDeviceToHost, r->stream));
        CHECK(cu.cuStreamSynchronize((CUstream)r->stream) == CUDA_SUCCESS, "cuStreamSynchronize");
        break;
    case 2:
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaMemcpy(host, recv, all, cudaMemcpyDeviceToHost));
        break;
    default:
        CUDA(rt.cudaDeviceSynchronize());
        CUDA(cudaMemcpy(host, recv, all, cudaMemcpyDeviceToHost));
    }
}

static void once(struct rank *r, uint8_t *send, uint8_t *recv, uint8_t *host, int round)
{
    size_t all = SHARD * (size_t)r->nranks;
    for (size_t i = 0; i < SHARD; i++)
        host[i] = (uint8_t)hash64((uint64_t)(round * 100 + r->rank), i);
    CHECK(cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)recv, 0xa5, all, (CUstream)r->stream) == CUDA_SUCCESS, "memset");
    CHECK(cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)send, host, SHARD, (CUstream)r->stream) == CUDA_SUCCESS, "copy");
    CUDA(rt.cudaStreamSynchronize(r->stream));
    NCCL(ncclAllGather(send, recv, SHARD, ncclUint8, r->comm, r->stream));
    take_back(r, host, recv, all, round);
    for (size_t i = 0; i < all; i++) {
        uint8_t want = (uint8_t)hash64((uint64_t)round * 100 + i / SHARD, i % SHARD);
        CHECK(host[i] == want, "rank %d, round %d: byte %zu is %02x, expected %02x", r->rank, round, i, host[i], want);
    }
}

static void body(struct rank *r)
{
    uint8_t *send, *recv, *host = malloc(SHARD * (size_t)r->nranks);
    load();
    rank_open(r);
    CUDA(rt.cudaMalloc((void **)&recv, SHARD * (size_t)r->nranks));
    CUDA(cudaMalloc((void **)&send, SHARD));
    for (int round = 0; round < 8; round++)
        once(r, send, recv, host, round);
    rank_close(r);
    CUDA(cudaFree(recv));
    CUDA(rt.cudaFree(send));
    free(host);
}

int main(int argc, char **argv)
{
    return argc == 2 ? ranks_run(atoi(argv[1]), 60, body, NULL) : 2;
}
