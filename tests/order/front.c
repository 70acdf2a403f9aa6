/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's kernels on one stream, and what is enqueued behind them on another one: whether that waits until they begin, as
 * where all streams share one hardware queue.
 *
 * usage: front RANKS goes|stands
 */
#include <cuda.h>
#include <string.h>

#include "forms.h"

enum { COUNT = 64 };

struct front {
    ncclComm_t comm;
    cudaStream_t s, x;
    cublasHandle_t blas;
    cudaEvent_t event;
    CUdeviceptr word; /* S is held until it is not 0 */
    unsigned *host;
    float *data, *other;
};

/* ---- what NCCL does ---- */

static void one(struct front *f)
{
    NCCL(ncclBroadcast(f->data, f->data, COUNT, ncclFloat, 0, f->comm, f->s));
}

static void small_gather(struct front *f)
{
    NCCL(ncclAllGather(f->data, f->data + COUNT, 4, ncclFloat, f->comm, f->s));
}

static void product(struct front *f)
{
    NCCL(ncclAllReduce(f->data, f->data, 4, ncclFloat, ncclProd, f->comm, f->s));
}

static void two_in_group(struct front *f)
{
    NCCL(ncclGroupStart());
    one(f);
    one(f);
    NCCL(ncclGroupEnd());
}

static void (*const calls[])(struct front *f) = {one, small_gather, product, two_in_group};

/* ---- what comes behind ---- */

static void fill(struct front *f)
{
    CUDA(cudaMemsetAsync(f->other, 0, COUNT, f->x));
}

static void multiply(struct front *f)
{
    const float alpha = 1, beta = 0;
    BLAS(cublasSetStream(f->blas, f->x));
    BLAS(cublasSgemm(f->blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &alpha, f->other, 4, f->other + 16, 4, &beta,
                     f->other + 32, 4));
}

static void (*const operations[])(struct front *f) = {fill, multiply};

/* ---- a rank ---- */

/* Within so long. */
static bool over(struct front *f, unsigned ms)
{
    for (unsigned i = 0; i <= ms; i++) {
        cudaError_t e = cudaEventQuery(f->event);
        if (e == cudaSuccess)
            return true;
        CHECK(e == cudaErrorNotReady, "cudaEventQuery: %d", (int)e);
        sleep_ms(1);
    }
    return false;
}

static void try(struct front *f, int call, int operation, bool stands)
{
    __atomic_store_n(f->host, 0, __ATOMIC_SEQ_CST);
    CHECK(cuStreamWaitValue32((CUstream)f->s, f->word, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS, "not held");
    calls[call](f);
    CUDA(cudaStreamSynchronize(f->x)); /* the host need not wait for that, in either case */
    operations[operation](f);
    CUDA(cudaEventRecord(f->event, f->x));
    const bool goes = over(f, stands ? 100 : 20000);
    EXPECT(goes != stands, "call %d, operation %d behind it %s", call, operation, goes ? "goes on" : "stands");
    __atomic_store_n(f->host, 1, __ATOMIC_SEQ_CST);
    CUDA(cudaStreamSynchronize(f->s));
    CUDA(cudaStreamSynchronize(f->x));
}

static void body(struct rank *r)
{
    const bool stands = *(const bool *)r->arg;
    struct front f;
    rank_open(r);
    f.comm = r->comm;
    f.s = r->stream;
    CUDA(cudaStreamCreateWithFlags(&f.x, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&f.event, cudaEventDisableTiming));
    CUDA(cudaMalloc((void **)&f.data, 4096));
    CUDA(cudaMalloc((void **)&f.other, 4096));
    CUDA(cudaMallocHost((void **)&f.host, sizeof *f.host));
    CHECK(cuMemHostGetDevicePointer(&f.word, f.host, 0) == CUDA_SUCCESS, "no device pointer");
    BLAS(cublasCreate(&f.blas));
    nccl_connects(f.comm, f.s);
    CUDA(cudaStreamSynchronize(f.s));
    multiply(&f); /* what is loaded is loaded */
    CUDA(cudaStreamSynchronize(f.x));
    for (int call = 0; call < LENGTH(calls); call++)
        for (int operation = 0; operation < LENGTH(operations); operation++)
            try(&f, call, operation, stands);
    BLAS(cublasDestroy(f.blas));
    CUDA(cudaStreamDestroy(f.x));
    rank_close(r);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    bool stands = strcmp(argv[2], "stands") == 0;
    return forms_run(atoi(argv[1]), 60, body, &stands);
}
