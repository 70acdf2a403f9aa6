/* SPDX-License-Identifier: Apache-2.0 */
/* The devices, streams and memory of floor. */
#define FUNCTIONS(X)                                                                                                   \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemCreate)                                                                                                     \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemMap)                                                                                                        \
    X(cuMemSetAccess)                                                                                                  \
    X(cuStreamWaitValue32)

#include "floor.h"
#include "tests/gpu/driver.h"

enum { GATE_BYTES = 4096, WORKSPACE = 32 << 20 };

struct gpu gpu[GPUS];
static _Atomic uint32_t *gate;
static CUdeviceptr gate_address;

void on(int device)
{
    OK(cudaSetDevice(device));
}

void gate_wait(cudaStream_t stream)
{
    OK(cu.cuStreamWaitValue32(stream, gate_address, 1, CU_STREAM_WAIT_VALUE_EQ));
}

void gate_set(bool open)
{
    atomic_store(gate, open);
}

static void open_gate(void)
{
    void *page;
    OK(cudaHostAlloc(&page, GATE_BYTES, cudaHostAllocPortable | cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer((void **)&gate_address, page, 0));
    gate = page;
}

/* Memory of one device that both may use. Copies between devices of one process that use memory of
 * cudaMalloc are both devices' work: they would wait for each other. */
static void *shared_memory(int device, size_t bytes)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access[GPUS];
    CUmemGenericAllocationHandle block;
    CUdeviceptr address;
    size_t unit;
    for (int i = 0; i < GPUS; i++)
        access[i] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cu.cuMemGetAllocationGranularity(&unit, &how, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    bytes = (bytes + unit - 1) / unit * unit;
    OK(cu.cuMemCreate(&block, bytes, &how, 0));
    OK(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cu.cuMemMap(address, bytes, 0, block, 0));
    OK(cu.cuMemSetAccess(address, bytes, access, GPUS));
    return (void *)(uintptr_t)address;
}

static void open_streams(struct gpu *g)
{
    int least, greatest;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithFlags(&g->compute, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&g->copy, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&g->low, cudaStreamNonBlocking, least));
    OK(cudaEventCreateWithFlags(&g->reached, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&g->own, cudaEventDisableTiming));
    for (int i = 0; i < MOST_PIECES; i++)
        OK(cudaEventCreateWithFlags(&g->piece[i], cudaEventDisableTiming));
    OK(cudaEventCreate(&g->start));
    OK(cudaEventCreate(&g->stop));
}

static void open_blas(struct gpu *g)
{
    void *workspace;
    OK(cudaMalloc(&workspace, WORKSPACE));
    OK(cublasCreate(&g->blas));
    OK(cublasSetStream(g->blas, g->compute));
    OK(cublasSetWorkspace(g->blas, workspace, WORKSPACE));
}

static size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

static void need_two(void)
{
    int devices = 0, there = 0, back = 0;
    OK(cudaGetDeviceCount(&devices));
    if (devices >= GPUS) {
        OK(cudaDeviceCanAccessPeer(&there, 0, 1));
        OK(cudaDeviceCanAccessPeer(&back, 1, 0));
    }
    if (!there || !back)
        DIE(NO_GPUS, "there are no two GPUs with access to each other");
}

void gpus_open(const struct shape *shapes, int count)
{
    size_t gathered = 0, weight = 0, out = 0;
    for (const struct shape *s = shapes; s < shapes + count; s++) {
        gathered = larger(gathered, s->m * s->k * sizeof(bf16));
        weight = larger(weight, s->n * s->k * sizeof(bf16));
        out = larger(out, s->m * s->n * sizeof(bf16));
    }
    load_driver();
    need_two();
    for (int d = 0; d < GPUS; d++) { /* contexts of both first: memory is given access for both */
        on(d);
        OK(cudaFree(NULL));
    }
    for (int d = 0; d < GPUS; d++) {
        on(d);
        open_streams(&gpu[d]);
        open_blas(&gpu[d]);
        gpu[d].send = shared_memory(d, gathered / 2);
        gpu[d].recv = shared_memory(d, gathered);
        OK(cudaMalloc((void **)&gpu[d].weight, weight));
        OK(cudaMalloc((void **)&gpu[d].out, out));
    }
    open_gate();
}
