/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may rely on when it allocates in the order of streams, also behind gathers from such memory. Each case
 * passes without slipring as well.
 *
 *   ordered CASE
 *
 * one-process: the ranks are of one process; it only gathers.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../programs/ranks.h"

#define M ((size_t)1 << 20)
#define BYTES (2 * M)
#define PAUSE_MS 20

struct run {
    struct rank *r;
    cudaStream_t stream, other;
    cudaMemPool_t pool; /* the device's default one */
};

static void pause_ms(void *ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(intptr_t)ms * 1000000}, NULL);
}

static uint8_t *take(size_t bytes, cudaStream_t stream)
{
    void *p = NULL;
    cudaError_t r = cudaMallocAsync(&p, bytes, stream);
    CHECK(r == cudaSuccess, "cudaMallocAsync of %zu bytes: %s", bytes, cudaGetErrorName(r));
    return p;
}

/* Gathers from memory of this size, which peers map meanwhile. */
static void gather(const struct run *run)
{
    for (int i = 0; i < 12; i++) {
        uint8_t *recv = take(BYTES * (size_t)run->r->nranks, run->stream), *send = take(BYTES, run->stream);
        CUDA(cudaMemsetAsync(send, 10 * i + run->r->rank, BYTES, run->stream));
        NCCL(ncclAllGather(send, recv, BYTES, ncclUint8, run->r->comm, run->stream));
        CUDA(cudaFreeAsync(send, run->stream));
        CUDA(cudaFreeAsync(recv, run->stream));
        CUDA(cudaStreamSynchronize(run->stream));
        pause_ms((void *)(intptr_t)PAUSE_MS);
    }
}

static void expect_bytes(const uint8_t *p, size_t bytes, int value, const char *what)
{
    uint8_t *host = malloc(bytes);
    CUDA(cudaMemcpy(host, p, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        CHECK(host[i] == value, "%s: byte %zu is %d instead of %d", what, i, host[i], value);
    free(host);
}

/* ---- pools ---- */

static uint64_t told(const struct run *run, enum cudaMemPoolAttr attribute)
{
    uint64_t bytes = 0;
    CUDA(cudaMemPoolGetAttribute(run->pool, attribute, &bytes));
    return bytes;
}

static void expect_told(const struct run *run, uint64_t used, uint64_t high, const char *when)
{
    CHECK(told(run, cudaMemPoolAttrUsedMemCurrent) == used, "%s: %lu bytes are used instead of %lu", when,
          told(run, cudaMemPoolAttrUsedMemCurrent), used);
    CHECK(told(run, cudaMemPoolAttrUsedMemHigh) == high, "%s: at most %lu bytes were used instead of %lu", when,
          told(run, cudaMemPoolAttrUsedMemHigh), high);
    CHECK(told(run, cudaMemPoolAttrReservedMemCurrent) >= used, "%s: less is reserved than used", when);
    CHECK(told(run, cudaMemPoolAttrReservedMemHigh) >= high, "%s: less was reserved than used", when);
}

static void books(struct run *run)
{
    uint64_t none = 0;
    CUDA(cudaMemPoolSetAttribute(run->pool, cudaMemPoolAttrUsedMemHigh, &none));
    CUDA(cudaMemPoolSetAttribute(run->pool, cudaMemPoolAttrReservedMemHigh, &none));
    expect_told(run, 0, 0, "at first");
    uint8_t *a = take(BYTES, run->stream), *b = take(BYTES, run->stream), *c = take(3 * M / 2, run->stream);
    expect_told(run, 2 * BYTES + 3 * M / 2, 2 * BYTES + 3 * M / 2, "three");
    CUDA(cudaFreeAsync(b, run->stream));
    expect_told(run, BYTES + 3 * M / 2, 2 * BYTES + 3 * M / 2, "two");
    CUDA(cudaStreamSynchronize(run->stream));
    CHECK(told(run, cudaMemPoolAttrReservedMemCurrent) == BYTES + 3 * M / 2, "more is reserved than used");
    CUDA(cudaMemPoolSetAttribute(run->pool, cudaMemPoolAttrUsedMemHigh, &none));
    expect_told(run, BYTES + 3 * M / 2, BYTES + 3 * M / 2, "set back");
    CUDA(cudaFree(a));
    CUDA(cudaFreeAsync(c, run->stream));
    CUDA(cudaStreamSynchronize(run->stream));
    expect_told(run, 0, BYTES + 3 * M / 2, "none");
}

static void pointers(struct run *run)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    CUresult (*one)(void *, CUpointer_attribute, CUdeviceptr) =
        (CUresult(*)(void *, CUpointer_attribute, CUdeviceptr))(uintptr_t)dlsym(driver, "cuPointerGetAttribute");
    CUresult (*all)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) =
        (CUresult(*)(unsigned, CUpointer_attribute *, void **, CUdeviceptr))(uintptr_t)dlsym(driver,
                                                                                             "cuPointerGetAttributes");
    uint8_t *p = take(BYTES, run->stream);
    CUmemoryPool pool = NULL, again = NULL;
    int device = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *where[] = {&device, &again};
    CHECK(one(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)(uintptr_t)(p + 7)) == CUDA_SUCCESS, "one");
    CHECK(all(2, which, where, (CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS, "all");
    void *none = NULL;
    CHECK(cudaMallocFromPoolAsync(&none, BYTES, NULL, run->stream) == cudaErrorInvalidValue, "of no pool");
    cudaGetLastError();
    CHECK((void *)pool == (void *)run->pool && again == pool && device == run->r->rank, "the pool is not told");
    CUDA(cudaFreeAsync(p, run->stream));
    CUDA(cudaStreamSynchronize(run->stream));
}

/* Memory outlives its pool; the next pool has nothing to do with it. */
static void destroyed(struct run *run)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = run->r->rank}};
    cudaMemPool_t first = run->pool;
    CUDA(cudaMemPoolCreate(&run->pool, &props));
    CUDA(cudaDeviceSetMemPool(run->r->rank, run->pool));
    gather(run);
    uint8_t *p = take(BYTES, run->stream);
    CHECK(told(run, cudaMemPoolAttrUsedMemCurrent) == BYTES, "not what is used");
    CUDA(cudaMemPoolDestroy(run->pool));
    CUDA(cudaMemPoolCreate(&run->pool, &props));
    CUDA(cudaMemsetAsync(p, 5, BYTES, run->stream));
    CUDA(cudaStreamSynchronize(run->stream));
    expect_bytes(p, BYTES, 5, "without a pool");
    CUDA(cudaFreeAsync(p, run->stream));
    CHECK(told(run, cudaMemPoolAttrUsedMemCurrent) == 0, "another pool's");
    CUDA(cudaMemPoolDestroy(run->pool));
    run->pool = first;
}

/* Another device reaches what the pool has given, before and behind the call. */
static void access_given(struct run *run)
{
    const int other = 2 + run->r->rank;
    struct cudaMemAccessDesc to = {.location = {.type = cudaMemLocationTypeDevice, .id = other},
                                   .flags = cudaMemAccessFlagsProtReadWrite};
    uint8_t *before = take(BYTES, run->stream);
    CUDA(cudaStreamSynchronize(run->stream));
    CUDA(cudaSetDevice(other));
    CUDA(cudaFree(NULL));
    CUDA(cudaMemPoolSetAccess(run->pool, &to, 1));
    CUDA(cudaSetDevice(run->r->rank));
    uint8_t *behind = take(BYTES, run->stream);
    CUDA(cudaStreamSynchronize(run->stream));
    CUDA(cudaSetDevice(other));
    CUDA(cudaMemset(before, 3, BYTES));
    CUDA(cudaMemset(behind, 4, BYTES));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaSetDevice(run->r->rank));
    expect_bytes(before, BYTES, 3, "before");
    expect_bytes(behind, BYTES, 4, "behind");
    CUDA(cudaFreeAsync(before, run->stream));
    CUDA(cudaFreeAsync(behind, run->stream));
}

/* ---- order ---- */

/* What a stream still reads is not what another stream gets. */
static void overtaken(struct run *run)
{
    uint8_t *copy;
    CUDA(cudaMalloc((void **)&copy, 3 * BYTES)); /* a size of its own */
    for (int i = 0; i < 4; i++) {
        uint8_t *p = take(BYTES, run->stream);
        CUDA(cudaMemsetAsync(p, 10 + i, BYTES, run->stream));
        CUDA(cudaLaunchHostFunc(run->stream, pause_ms, (void *)(intptr_t)50));
        CUDA(cudaMemcpyAsync(copy, p, BYTES, cudaMemcpyDeviceToDevice, run->stream));
        CUDA(cudaFreeAsync(p, run->stream));
        uint8_t *q[4];
        for (int k = 0; k < 4; k++) {
            q[k] = take(BYTES, run->other);
            CUDA(cudaMemsetAsync(q[k], 77, BYTES, run->other));
        }
        for (int k = 0; k < 4; k++)
            CUDA(cudaFreeAsync(q[k], run->other));
        CUDA(cudaDeviceSynchronize());
        expect_bytes(copy, BYTES, 10 + i, "overtaken");
    }
    CUDA(cudaFree(copy));
}

static void captured(struct run *run)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *p;
    uint8_t *keep;
    CUDA(cudaMalloc((void **)&keep, BYTES));
    CUDA(cudaStreamBeginCapture(run->stream, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMallocAsync(&p, BYTES, run->stream));
    CUDA(cudaMemsetAsync(p, 9, BYTES, run->stream));
    CUDA(cudaMemcpyAsync(keep, p, BYTES, cudaMemcpyDeviceToDevice, run->stream));
    CUDA(cudaFreeAsync(p, run->stream));
    CUDA(cudaStreamEndCapture(run->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CUDA(cudaMemsetAsync(keep, 0, BYTES, run->stream));
        CUDA(cudaGraphLaunch(exec, run->stream));
        CUDA(cudaStreamSynchronize(run->stream));
        expect_bytes(keep, BYTES, 9, "a graph's memory");
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(keep));
}

/* On a device of 64 MiB, of which slipring has at most 3 for itself. */
static void short_of_memory(struct run *run)
{
    enum { PIECES = 24 };
    uint8_t *p[PIECES];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++)
            p[i] = take(BYTES, run->stream);
        for (int i = 0; i < PIECES; i++)
            CUDA(cudaFreeAsync(p[i], run->stream));
        CUDA(cudaStreamSynchronize(run->stream));
        p[0] = take(PIECES * BYTES, run->other);
        CUDA(cudaFreeAsync(p[0], run->other));
        CUDA(cudaDeviceSynchronize());
    }
}

/* A child has no use of the driver; the parent's memory stays. */
static void child(struct run *run)
{
    void *p;
    int status;
    uint8_t *held = take(BYTES, run->stream);
    CUDA(cudaMemsetAsync(held, 6, BYTES, run->stream));
    CUDA(cudaStreamSynchronize(run->stream));
    pid_t pid = fork();
    if (pid == 0)
        _exit(cudaMallocAsync(&p, BYTES, run->stream) == cudaSuccess ||
              cudaFreeAsync(held, run->stream) == cudaSuccess);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child could allocate or free");
    expect_bytes(held, BYTES, 6, "the parent's");
    CUDA(cudaFreeAsync(held, run->stream));
}

static void twice(struct run *run)
{
    uint8_t *p = take(BYTES, run->stream);
    CUDA(cudaFreeAsync(p, run->stream));
    CHECK(cudaFreeAsync(p, run->stream) == cudaErrorInvalidValue, "freed twice");
    p = take(BYTES, run->stream);
    CUDA(cudaFree(p));
    CHECK(cudaFree(p) == cudaErrorInvalidValue, "freed twice, at once");
    p = take(BYTES, run->stream);
    CHECK(cudaFreeAsync(p + 512, run->stream) == cudaErrorInvalidValue, "freed inside");
    CUDA(cudaFreeAsync(p, run->stream));
    CUDA(cudaStreamSynchronize(run->stream));
    cudaGetLastError();
}

static const struct test {
    const char *name;
    void (*run)(struct run *run);
} cases[] = {{"books", books},           {"pointers", pointers},   {"destroyed", destroyed},
             {"access", access_given},   {"overtaken", overtaken}, {"captured", captured},
             {"short", short_of_memory}, {"child", child},         {"twice", twice}};

static void body(struct rank *r)
{
    const struct test *test = r->arg;
    struct run run = {.r = r};
    rank_open(r);
    run.stream = r->stream;
    CUDA(cudaStreamCreateWithFlags(&run.other, cudaStreamNonBlocking));
    CUDA(cudaDeviceGetDefaultMemPool(&run.pool, r->rank));
    gather(&run);
    test->run(&run);
    CUDA(cudaStreamDestroy(run.other));
    rank_close(r);
}

/* Memory of ranks of one process is staged whatever it is. */
static int one_process(void)
{
    enum { N = 2 };
    ncclComm_t comm[N];
    cudaStream_t stream[N];
    void *send[N], *recv[N];
    NCCL(ncclCommInitAll(comm, N, NULL));
    for (int i = 0; i < 6; i++) {
        for (int d = 0; d < N; d++) {
            CUDA(cudaSetDevice(d));
            if (i == 0)
                CUDA(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
            send[d] = take(BYTES, stream[d]);
            recv[d] = take(BYTES * N, stream[d]);
            CUDA(cudaMemsetAsync(send[d], 10 * i + d, BYTES, stream[d]));
        }
        NCCL(ncclGroupStart());
        for (int d = 0; d < N; d++)
            NCCL(ncclAllGather(send[d], recv[d], BYTES, ncclUint8, comm[d], stream[d]));
        NCCL(ncclGroupEnd());
        for (int d = 0; d < N; d++) {
            CUDA(cudaSetDevice(d));
            CUDA(cudaStreamSynchronize(stream[d]));
            expect_bytes(recv[d], BYTES, 10 * i, "of rank 0");
            expect_bytes((uint8_t *)recv[d] + BYTES, BYTES, 10 * i + 1, "of rank 1");
            CUDA(cudaFreeAsync(send[d], stream[d]));
            CUDA(cudaFreeAsync(recv[d], stream[d]));
        }
    }
    for (int d = 0; d < N; d++)
        NCCL(ncclCommDestroy(comm[d]));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "one-process") == 0)
        return one_process();
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            return ranks_run(2, 60, body, (void *)(uintptr_t)&cases[i]);
    fprintf(stderr, "usage: ordered CASE\n");
    return 2;
}
