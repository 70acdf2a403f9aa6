/* SPDX-License-Identifier: Apache-2.0 */
/* One process, a thread for each rank and device: what one thread waits for must never keep another one from its part.
 *
 *   threads CASE [RANKS]
 *
 *   lazy    the first GEMM of a thread, behind its gather, synchronises its context (SOFTGPU_LAZY), so it waits for the
 *           gather, and the last rank makes its call only then
 *   ahead   all ranks but the last call many more gathers than a stream's queue holds (SOFTGPU_QUEUE), and wait in one
 *           of them for the last rank, which begins later
 *   sync    the same, and the last rank first synchronises its device, frees memory and records events there
 *   gemms   each thread makes gathers and GEMMs for itself, all results compared
 *   one     the same, but one thread makes the gathers of all ranks, in a group, and then their GEMMs
 *   between one thread, and behind the gathers it copies from the last rank's device to one that has no rank, in each
 *           way that takes no stream: such a copy comes behind all work of both devices
 */
#include "forms.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

enum { MOST = 8, AHEAD = 300, LATE_MS = 300, K = 64, ROUNDS = 20 };
#define SHARD ((size_t)64 << 10)

static const char *name;
static ncclUniqueId id;
static int nranks;

struct worker {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    struct gather g;
    cublasHandle_t blas;
    float *one, *product;
};

static int columns(void)
{
    return (int)(SHARD * (size_t)nranks / sizeof(float) / K);
}

static void open_worker(struct worker *w)
{
    float unit[K * K] = {0};
    for (int i = 0; i < K; i++)
        unit[i * K + i] = 1;
    CUDA(cudaSetDevice(w->rank));
    if (!w->comm)
        NCCL(ncclCommInitRank(&w->comm, nranks, id, w->rank));
    CUDA(cudaStreamCreateWithFlags(&w->stream,
                                   strcmp(name, "between") == 0 ? cudaStreamDefault : cudaStreamNonBlocking));
    gather_alloc(&w->g, w->rank, nranks, SHARD);
    w->g.floats = true;
    BLAS(cublasCreate(&w->blas));
    BLAS(cublasSetStream(w->blas, w->stream));
    CUDA(cudaMalloc((void **)&w->one, sizeof unit));
    CUDA(cudaMalloc((void **)&w->product, SHARD * (size_t)nranks));
    to_device(w->one, unit, sizeof unit);
}

static void close_worker(struct worker *w)
{
    NCCL(ncclCommDestroy(w->comm));
    BLAS(cublasDestroy(w->blas));
    CUDA(cudaFree(w->one));
    CUDA(cudaFree(w->product));
    gather_free(&w->g);
    CUDA(cudaStreamDestroy(w->stream));
}

static bool last(const struct worker *w)
{
    return w->rank == nranks - 1;
}

/* product <- 1 x recv: what was gathered, if all of it was there. */
static void multiply(struct worker *w)
{
    const float alpha = 1, beta = 0;
    BLAS(cublasSgemm(w->blas, CUBLAS_OP_N, CUBLAS_OP_N, K, columns(), K, &alpha, w->one, K,
                     (const float *)(const void *)w->g.recv, K, &beta, w->product, K));
}

static void check_product(struct worker *w, uint64_t seed)
{
    CUDA(cudaMemcpyAsync(w->g.host, w->product, SHARD * (size_t)nranks, cudaMemcpyDeviceToHost, w->stream));
    CUDA(cudaStreamSynchronize(w->stream));
    bytes_check(&w->g, w->g.host, seed, name);
}

static void lazy(struct worker *w)
{
    gather_load(&w->g, 1, w->stream);
    CUDA(cudaStreamSynchronize(w->stream));
    if (last(w))
        sleep_ms(LATE_MS);
    gather_call(&w->g, w->comm, w->stream);
    multiply(w);
    check_product(w, 1);
}

static void look_at_device(void)
{
    cudaEvent_t event;
    void *p;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA(cudaEventRecord(event, 0));
    CUDA(cudaEventSynchronize(event));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMalloc(&p, 8 << 20));
    CUDA(cudaMemset(p, 1, 8 << 20));
    CUDA(cudaFree(p));
    CUDA(cudaEventDestroy(event));
}

static void ahead(struct worker *w)
{
    gather_load(&w->g, 1, w->stream);
    CUDA(cudaStreamSynchronize(w->stream));
    if (last(w))
        sleep_ms(LATE_MS);
    if (last(w) && !strcmp(name, "sync"))
        look_at_device();
    for (int i = 0; i < AHEAD; i++)
        gather_call(&w->g, w->comm, w->stream);
    gather_check(&w->g, 1, w->stream, name);
}

static void gemms(struct worker *w)
{
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        gather_load(&w->g, round, w->stream);
        gather_call(&w->g, w->comm, w->stream);
        multiply(w);
        check_product(w, round);
    }
}

static void group_round(struct worker *workers, uint64_t round)
{
    for (int i = 0; i < nranks; i++) {
        CUDA(cudaSetDevice(i));
        gather_load(&workers[i].g, round, workers[i].stream);
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < nranks; i++)
        gather_call(&workers[i].g, workers[i].comm, workers[i].stream);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < nranks; i++) {
        CUDA(cudaSetDevice(i));
        multiply(&workers[i]);
    }
    for (int i = 0; i < nranks; i++) {
        CUDA(cudaSetDevice(i));
        check_product(&workers[i], round);
    }
}

/* ---- copies between devices ---- */

static void by_peer(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyPeer(to, nranks, from, nranks - 1, bytes));
}

static void by_address(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

static void by_rows(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpy2D(to, bytes / 4, from, bytes / 4, bytes / 4, 4, cudaMemcpyDeviceToDevice));
}

static CUcontext context_of(int device)
{
    CUcontext ctx;
    CUDA(cudaSetDevice(device));
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)
        DIE(3, "device %d has no context", device);
    return ctx;
}

static void by_box(void *to, const void *from, size_t bytes)
{
    CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = (CUdeviceptr)(uintptr_t)from,
                              .srcContext = context_of(nranks - 1),
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = (CUdeviceptr)(uintptr_t)to,
                              .dstContext = context_of(nranks),
                              .WidthInBytes = bytes,
                              .Height = 1,
                              .Depth = 1};
    EXPECT(cuMemcpy3DPeer(&box) == CUDA_SUCCESS, "cuMemcpy3DPeer failed");
}

static void (*const copies[])(void *to, const void *from, size_t bytes) = {by_peer, by_address, by_rows, by_box};

/* The first rank's stream stands still for a while, so that the others' gathers do. */
static void between_round(struct worker *workers, uint64_t round, void *to)
{
    struct worker *from = &workers[nranks - 1];
    for (int i = 0; i < nranks; i++) {
        CUDA(cudaSetDevice(i));
        gather_load(&workers[i].g, round, workers[i].stream);
        CUDA(cudaStreamSynchronize(workers[i].stream));
    }
    CUDA(cudaSetDevice(0));
    hold(workers[0].stream, 30);
    NCCL(ncclGroupStart());
    for (int i = 0; i < nranks; i++)
        gather_call(&workers[i].g, workers[i].comm, workers[i].stream);
    NCCL(ncclGroupEnd());
    CUDA(cudaSetDevice(nranks));
    copies[round % LENGTH(copies)](to, from->g.recv, SHARD * (size_t)nranks);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(from->g.host, to, SHARD * (size_t)nranks, cudaMemcpyDeviceToHost));
    bytes_check(&from->g, from->g.host, round, name);
}

static void between(struct worker *workers)
{
    void *to;
    CUDA(cudaSetDevice(nranks));
    CUDA(cudaMalloc(&to, SHARD * (size_t)nranks));
    for (uint64_t round = 1; round <= 2 * LENGTH(copies); round++)
        between_round(workers, round, to);
    CUDA(cudaFree(to));
}

static void one_thread(struct worker *workers)
{
    ncclComm_t comm[MOST];
    NCCL(ncclCommInitAll(comm, nranks, NULL));
    for (int i = 0; i < nranks; i++) {
        workers[i].comm = comm[i];
        open_worker(&workers[i]);
    }
    if (!strcmp(name, "between"))
        between(workers);
    for (uint64_t round = 1; round <= ROUNDS && strcmp(name, "one") == 0; round++)
        group_round(workers, round);
    for (int i = 0; i < nranks; i++) {
        CUDA(cudaSetDevice(i));
        close_worker(&workers[i]);
    }
}

static void work(void *one)
{
    struct worker *w = one;
    open_worker(w);
    comm_check(w->comm, w->stream, SHARD, 1, "the first gather"); /* is NCCL's: ranks share a process */
    if (!strcmp(name, "lazy"))
        lazy(w);
    else if (!strcmp(name, "gemms"))
        gemms(w);
    else
        ahead(w);
    close_worker(w);
}

static void body(struct rank *r)
{
    static struct worker workers[MOST];
    (void)r;
    NCCL(ncclGetUniqueId(&id));
    for (int i = 0; i < nranks; i++)
        workers[i].rank = i;
    if (!strcmp(name, "one") || !strcmp(name, "between"))
        one_thread(workers);
    else
        on_threads(nranks, workers, sizeof workers[0], work);
}

int main(int argc, char **argv)
{
    static const char *const cases[] = {"lazy", "ahead", "sync", "gemms", "one", "between"};
    name = argc > 1 ? argv[1] : "";
    nranks = argc > 2 ? atoi(argv[2]) : 2;
    for (int i = 0; i < LENGTH(cases); i++)
        if (!strcmp(cases[i], name) && nranks >= 2 && nranks <= MOST)
            return forms_run(1, 30, body, NULL);
    fprintf(stderr, "usage: threads lazy|ahead|sync|gemms|one [RANKS]\n");
    return 2;
}
