/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that gathers used and that is not asked for again is not lost to other processes for ever: after a while it is
 * no memory of this process any more. Work that stands still on the device does not keep what peers have not mapped.
 * Passes without slipring as well, where the memory is gone at once.
 *
 *   idle RANKS
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "../programs/ranks.h"

#define SHARD ((size_t)1 << 20)
#define GATHERS 30
#define PAUSE_MS 20 /* between gathers, so that the peers map the buffers meanwhile */
#define LIMIT_MS 20000

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static void gather(struct rank *r, uint8_t *send, uint8_t *recv, int value)
{
    size_t all = SHARD * (size_t)r->nranks;
    uint8_t *host = malloc(all);
    CUDA(cudaMemsetAsync(send, value + r->rank, SHARD, r->stream));
    NCCL(ncclAllGather(send, recv, SHARD, ncclUint8, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(host, recv, all, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int p = 0; p < r->nranks; p++) {
        const uint8_t *shard = host + (size_t)p * SHARD;
        CHECK(shard[0] == value + p && memcmp(shard, shard + 1, SHARD - 1) == 0, "rank %d: wrong shard %d", r->rank, p);
    }
    free(host);
}

static void gathers(struct rank *r, uint8_t **send, uint8_t **recv)
{
    CUDA(cudaMalloc((void **)send, SHARD));
    CUDA(cudaMalloc((void **)recv, SHARD * (size_t)r->nranks));
    for (int i = 0; i < GATHERS; i++) {
        gather(r, *send, *recv, i);
        sleep_ms(PAUSE_MS);
    }
    CUDA(cudaFree(*send));
    CUDA(cudaFree(*recv));
}

static bool is_ours(const void *p)
{
    struct cudaPointerAttributes a = {0};
    cudaError_t e = cudaPointerGetAttributes(&a, p);
    cudaGetLastError();
    return e == cudaSuccess && a.type == cudaMemoryTypeDevice;
}

static void await_gone(struct rank *r, const void *p, const char *what)
{
    for (int ms = 0; is_ours(p); ms += 10) {
        CHECK(ms < LIMIT_MS, "rank %d: the %s buffer is kept", r->rank, what);
        sleep_ms(10);
    }
}

static void until_told(void *flag)
{
    while (!atomic_load((atomic_bool *)flag))
        sleep_ms(1);
}

/* All ranks are here. Not by a collective: what a rank has mapped of the others it closes while its own device has
 * nothing to do, and the others' closing is what a rank's own buffers wait for. */
static void meet(struct rank *r, int times)
{
    atomic_int *here = r->arg;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < times * r->nranks)
        sleep_ms(1);
}

/* Whoever waited for the device would wait for ever. */
static void beside_work(struct rank *r)
{
    atomic_bool told = false;
    cudaStream_t busy;
    void *p;
    CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    CUDA(cudaMalloc(&p, SHARD));
    CUDA(cudaFree(p));
    CUDA(cudaLaunchHostFunc(busy, until_told, &told));
    await_gone(r, p, "other");
    atomic_store(&told, true);
    CUDA(cudaStreamSynchronize(busy));
    CUDA(cudaStreamDestroy(busy));
}

static void body(struct rank *r)
{
    uint8_t *send, *recv;
    rank_open(r);
    gathers(r, &send, &recv);
    await_gone(r, send, "send");
    await_gone(r, recv, "receive");
    meet(r, 1);
    beside_work(r);
    /* What a peer gathers from is mapped here at once, perhaps at an address that is waited for. */
    meet(r, 2);
    gathers(r, &send, &recv);
    rank_close(r);
}

int main(int argc, char **argv)
{
    void *here = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return argc == 2 && here != MAP_FAILED ? ranks_run(atoi(argv[1]), 90, body, here) : 2;
}
