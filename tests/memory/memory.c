/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may rely on when it allocates and frees device memory; each case passes without slipring as well.
 *
 *   memory CASE
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "../programs/ranks.h"

#define M ((size_t)1 << 20)

static void *take(size_t bytes)
{
    void *p = NULL;
    cudaError_t r = cudaMalloc(&p, bytes);
    CHECK(r == cudaSuccess, "cudaMalloc of %zu bytes: %s", bytes, cudaGetErrorString(r));
    return p;
}

static void give(void *p)
{
    CUDA(cudaFree(p));
}

static size_t free_memory(void)
{
    size_t bytes, total;
    CUDA(cudaMemGetInfo(&bytes, &total));
    return bytes;
}

/* A communicator of one rank: its end makes slipring write its counters. */
static void open_comm(void)
{
    ncclComm_t comm;
    NCCL(ncclCommInitAll(&comm, 1, NULL));
    NCCL(ncclCommDestroy(comm));
}

/* Random sizes: never more than 24 MiB in use at once. */
static void random_sizes(void)
{
    enum { HELD = 4, ROUNDS = 10000 };
    void *held[HELD] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        int k = (int)(hash64(1, (uint64_t)i) % HELD);
        if (held[k])
            give(held[k]);
        held[k] = take(M + hash64(2, (uint64_t)i) % (5 * M));
        CUDA(cudaMemset(held[k], i, 64));
    }
    for (int k = 0; k < HELD; k++)
        if (held[k])
            give(held[k]);
}

static _Atomic bool late_started;

static void late(void *unused)
{
    (void)unused;
    atomic_store(&late_started, true);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* What a stream still reads when its memory is freed is not written by who gets the memory next. */
static void free_while_in_use(void)
{
    cudaStream_t one, two;
    uint8_t *host = malloc(4 * M);
    CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    void *copy = take(4 * M);
    for (int round = 0; round < 3; round++) {
        void *p = take(4 * M);
        CUDA(cudaMemset(p, 10 + round, 4 * M));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaLaunchHostFunc(one, late, NULL));
        CUDA(cudaMemcpyAsync(copy, p, 4 * M, cudaMemcpyDeviceToDevice, one));
        give(p);
        void *q = take(4 * M);
        CUDA(cudaMemsetAsync(q, 77, 4 * M, two));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(host, copy, 4 * M, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < 4 * M; i++)
            CHECK(host[i] == 10 + round, "round %d: byte %zu is %d", round, i, host[i]);
        give(q);
    }
    CHECK(atomic_load(&late_started), "the host function did not run");
    give(copy);
    free(host);
    CUDA(cudaStreamDestroy(one));
    CUDA(cudaStreamDestroy(two));
}

static void mem_info(void)
{
    give(take(M)); /* the first call makes the context */
    size_t before = free_memory();
    void *p = take(32 * M);
    size_t during = free_memory();
    CHECK(before - during == 32 * M, "%zu bytes less are free after an allocation of 32 MiB", before - during);
    give(p);
    CHECK(free_memory() == before, "%zu of %zu bytes are free after cudaFree", free_memory(), before);
}

static void device_reset(void)
{
    for (int round = 0; round < 3; round++) {
        void *held = take(8 * M), *p = take(16 * M);
        uint8_t back[16];
        give(p);
        p = take(16 * M);
        CUDA(cudaMemset(p, 42 + round, 16 * M));
        CUDA(cudaMemset(held, 1, 8 * M));
        CUDA(cudaMemcpy(back, (uint8_t *)p + 16 * M - 16, 16, cudaMemcpyDeviceToHost));
        CHECK(back[0] == 42 + round && back[15] == 42 + round, "round %d: %d", round, back[0]);
        if (round == 1)
            give(p);
        CUDA(cudaDeviceReset());
    }
}

static void out_of_memory(void)
{
    cudaStream_t stream;
    cudaMemPool_t pool;
    void *p, *keep;
    size_t pitch;
    CUDA(cudaStreamCreate(&stream));
    give(take(40 * M)); /* of 64: what follows has room only when this goes */
    CUDA(cudaMallocAsync(&p, 50 * M, stream));
    CUDA(cudaFreeAsync(p, stream));
    CUDA(cudaStreamSynchronize(stream));

    give(take(40 * M));
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cudaMallocFromPoolAsync(&p, 50 * M, pool, stream));
    CUDA(cudaFreeAsync(p, stream));
    CUDA(cudaStreamSynchronize(stream));

    give(take(40 * M));
    CUDA(cudaMallocManaged(&p, 50 * M, cudaMemAttachGlobal));
    give(p);
    give(take(40 * M));
    CUDA(cudaMallocPitch(&p, &pitch, M, 50));
    give(p);
    keep = take(40 * M);
    give(keep);
    give(take(60 * M)); /* another class */
    keep = take(40 * M);
    CHECK(cudaMalloc(&p, 40 * M) == cudaErrorMemoryAllocation, "there is room for 80 of 64 MiB");
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation, "the error is not remembered");
    give(keep);
    give(take(40 * M));
    void *small[110]; /* below the threshold, 55 MiB together */
    for (int i = 0; i < 110; i++)
        small[i] = take(M / 2);
    for (int i = 0; i < 110; i++)
        give(small[i]);
    CUDA(cudaStreamDestroy(stream));
}

/* Blocks of cudaMalloc that are freed in stream order. */
static void free_async(void)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    for (int i = 0; i < 5; i++) {
        void *p = take(8 * M);
        CUDA(cudaMemsetAsync(p, i, 8 * M, stream));
        CUDA(cudaFreeAsync(p, stream));
        CUDA(cudaStreamSynchronize(stream));
        /* Memory of another kind, at the same address as a rule, is not taken for the block that was there. */
        struct cudaPointerAttributes is;
        void *managed;
        CUDA(cudaMallocManaged(&managed, 8 * M, cudaMemAttachGlobal));
        give(managed);
        void *q = take(8 * M);
        CUDA(cudaPointerGetAttributes(&is, q));
        CHECK(is.type == cudaMemoryTypeDevice, "cudaMalloc's memory is of type %d", (int)is.type);
        CUDA(cudaMemsetAsync(q, i, 8 * M, stream));
        CUDA(cudaStreamSynchronize(stream));
        give(q);
    }
    CUDA(cudaStreamDestroy(stream));
}

/* Freeing during a capture fails as it does without slipring, and can be done again afterwards. */
static void capture(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    CUDA(cudaStreamCreate(&stream));
    void *p = take(8 * M);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaError_t r = cudaFree(p);
    CHECK(r == cudaErrorStreamCaptureUnsupported, "cudaFree during a capture: %s", cudaGetErrorName(r));
    CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess, "the capture is still valid");
    cudaGetLastError();
    give(p);
    p = take(8 * M);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    give(p);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) /* kept again */
        give(take(8 * M));
    CUDA(cudaStreamDestroy(stream));
}

static void double_free(void)
{
    void *p = take(8 * M);
    give(p);
    cudaError_t r = cudaFree(p);
    CHECK(r == cudaErrorInvalidValue, "a second cudaFree: %s", cudaGetErrorName(r));
    p = take(8 * M);
    r = cudaFree((uint8_t *)p + 512);
    CHECK(r == cudaErrorInvalidValue, "cudaFree of an address inside: %s", cudaGetErrorName(r));
    give(p);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"random-sizes", random_sizes},
             {"free-while-in-use", free_while_in_use},
             {"mem-info", mem_info},
             {"device-reset", device_reset},
             {"out-of-memory", out_of_memory},
             {"free-async", free_async},
             {"capture", capture},
             {"double-free", double_free}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            if (cases[i].run != device_reset)
                open_comm();
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "usage: memory CASE\n");
    return 2;
}
