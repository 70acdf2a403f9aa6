/* SPDX-License-Identifier: Apache-2.0 */
/* A plain NCCL and cuBLAS program, which knows nothing of slipring: each rank, a process with a GPU of its own, holds some
 * columns of X; in every iteration they gather all of X and multiply it with a matrix of their own.
 *
 *   cc -O2 -o gather_gemm examples/gather_gemm.c -I$CUDA_HOME/include -L$CUDA_HOME/lib64 -lcudart -lcublas -lnccl
 *   slipring run --set log=info -- ./gather_gemm 2
 *
 *   gather_gemm [RANKS [SIZE]]    2 ranks; X has SIZE x SIZE elements [4096]
 *
 * Expect `rank 0: 20 iterations are right, checksum ...`, the same with and without slipring, and in the log `substitute`
 * and `fused` for each rank. Without GPUs: slipring run --softgpu=2 --set log=info --set min-bytes=0 -- PROGRAM 2 256
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ITERATIONS = 20 };

static void ok(int status, const char *call)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: status %d\n", call, status);
    exit(1);
}
#define OK(call) ok((int)(call), #call)

/* Elements are -2 to 2, which bf16 holds exactly, and sums of them fp32. */
static int element(uint32_t seed, uint32_t i)
{
    uint32_t x = seed * 2654435761u + i;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (int)((x ^ x >> 13) % 5) - 2;
}

static uint16_t bf16(int value)
{
    union {
        float f;
        uint32_t u;
    } as = {.f = (float)value};
    return (uint16_t)(as.u >> 16);
}

/* `n` elements from number `first` of the matrix `seed`, to the device. */
static void upload(uint16_t *to, uint32_t seed, size_t first, size_t n)
{
    uint16_t *host = malloc(n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        host[i] = bf16(element(seed, (uint32_t)(first + i)));
    OK(cudaMemcpy(to, host, n * sizeof *host, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize()); /* the stream of the gather does not wait for the default one */
    free(host);
}

/* Compares some elements of C = W' X with sums over the same numbers; returns a checksum of all. */
static uint64_t check(const float *c, uint32_t w_seed, uint32_t x_seed, size_t size)
{
    uint64_t checksum = 0;
    float *host = malloc(size * size * sizeof *host);
    OK(cudaMemcpy(host, c, size * size * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < size * size; i++)
        checksum = checksum * 31 + (uint64_t)(int64_t)host[i];
    for (size_t n = 0; n < 64; n++) {
        const size_t row = n * 7919 % size, column = n * 104729 % size;
        int sum = 0;
        for (size_t k = 0; k < size; k++)
            sum += element(w_seed, (uint32_t)(row * size + k)) * element(x_seed, (uint32_t)(column * size + k));
        if (host[column * size + row] != (float)sum) {
            fprintf(stderr, "element %zu, %zu is %g, not %d\n", row, column, (double)host[column * size + row], sum);
            exit(1);
        }
    }
    free(host);
    return checksum;
}

static void run(int rank, int ranks, size_t size, ncclUniqueId id)
{
    const size_t columns = size / (size_t)ranks, shard = columns * size;
    const uint32_t w_seed = 1000u + (uint32_t)rank;
    const float one = 1, zero = 0;
    struct timespec begin, end;
    uint16_t *send, *x, *w;
    float *c;
    uint64_t checksum = 0;
    ncclComm_t comm;
    cublasHandle_t blas;
    cudaStream_t stream;
    OK(ncclCommInitRank(&comm, ranks, id, rank));
    OK(cudaStreamCreate(&stream));
    OK(cublasCreate(&blas));
    OK(cublasSetStream(blas, stream));
    OK(cudaMalloc((void **)&send, shard * sizeof *send));
    OK(cudaMalloc((void **)&x, size * size * sizeof *x));
    OK(cudaMalloc((void **)&w, size * size * sizeof *w));
    OK(cudaMalloc((void **)&c, size * size * sizeof *c));
    upload(w, w_seed, 0, size * size);
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        upload(send, i, (size_t)rank * shard, shard);
        OK(cudaStreamSynchronize(stream));
        timespec_get(&begin, TIME_UTC);
        OK(ncclAllGather(send, x, shard, ncclBfloat16, comm, stream));
        OK(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)size, (int)size, (int)size, &one, w, CUDA_R_16BF,
                        (int)size, x, CUDA_R_16BF, (int)size, &zero, c, CUDA_R_32F, (int)size, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT));
        OK(cudaStreamSynchronize(stream));
        timespec_get(&end, TIME_UTC);
        checksum = checksum * 31 + check(c, w_seed, i, size);
    }
    printf("rank %d: %d iterations are right, checksum %016llx\n", rank, ITERATIONS, (unsigned long long)checksum);
    if (rank == 0)
        printf("the last iteration took %.3f ms\n",
               1e3 * difftime(end.tv_sec, begin.tv_sec) + 1e-6 * (double)(end.tv_nsec - begin.tv_nsec));
    OK(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    int ids[2], devices = 0, failed = 0, status;
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    const size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 4096;
    if (ranks < 1 || size == 0 || size % (size_t)ranks != 0 || pipe(ids) != 0) {
        fprintf(stderr, "usage: gather_gemm [RANKS [SIZE]], with a SIZE that RANKS divides\n");
        return 2;
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() != 0)
            continue;
        ncclUniqueId id; /* rank 0 makes it, and hands it to all others */
        OK(cudaGetDeviceCount(&devices));
        OK(cudaSetDevice(rank % devices));
        if (rank == 0)
            OK(ncclGetUniqueId(&id));
        for (int other = 1; rank == 0 && other < ranks; other++)
            OK(write(ids[1], &id, sizeof id) != sizeof id);
        if (rank != 0)
            OK(read(ids[0], &id, sizeof id) != sizeof id);
        run(rank, ranks, size, id);
        exit(0);
    }
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
