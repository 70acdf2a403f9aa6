/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts, memory, streams and kernel of driver_costs. */
#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceCanAccessPeer)                                                                                           \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuCtxEnablePeerAccess)                                                                                           \
    X(cuCtxGetStreamPriorityRange)                                                                                     \
    X(cuMemCreate)                                                                                                     \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemMap)                                                                                                        \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemHostGetDevicePointer)                                                                                       \
    X(cuMemsetD8)                                                                                                      \
    X(cuStreamCreateWithPriority)                                                                                      \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleGetFunction)                                                                                             \
    X(cuLaunchKernel)

#include <string.h>

#include "driver.h"
#include "driver_costs.h"

enum { HOST_BYTES = 4096, WORD_BYTES = 2 * MIB, GAPS = 2 * MIB }; /* GAPS: between the rows of a 2D copy */

struct gpu gpu[2];
CUdeviceptr host_words;
_Atomic uint32_t *gate;
static CUfunction spin;

/* A block runs for so many cycles. Text, which the driver compiles. */
static const char spin_ptx[] = ".version 7.0\n"
                               ".target sm_80\n"
                               ".address_size 64\n"
                               ".visible .entry spin(.param .u64 cycles)\n"
                               "{\n"
                               "    .reg .pred %more;\n"
                               "    .reg .u64 %begin, %now, %cycles;\n"
                               "    ld.param.u64 %cycles, [cycles];\n"
                               "    mov.u64 %begin, %clock64;\n"
                               "again:\n"
                               "    mov.u64 %now, %clock64;\n"
                               "    sub.u64 %now, %now, %begin;\n"
                               "    setp.lt.u64 %more, %now, %cycles;\n"
                               "    @%more bra again;\n"
                               "    ret;\n"
                               "}\n";

void on(int device)
{
    CHECK(cu.cuCtxSetCurrent(gpu[device].ctx));
}

void launch(CUstream stream, unsigned blocks, unsigned threads, uint64_t cycles)
{
    void *arguments[] = {&cycles};
    CHECK(cu.cuLaunchKernel(spin, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
}

/* Virtual memory that every device of ours may use. A copy from or to it is the copying context's work alone, while one
 * with memory of cuMemAlloc is the other context's work as well. */
static CUdeviceptr shared_memory(int device, size_t size, size_t devices)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access[2] = {{.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle block;
    CUdeviceptr address;
    for (int i = 0; i < 2; i++)
        access[i].location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i};
    CHECK(cu.cuMemCreate(&block, size, &how, 0));
    CHECK(cu.cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(cu.cuMemMap(address, size, 0, block, 0));
    CHECK(cu.cuMemSetAccess(address, size, access, devices));
    return address;
}

static void open_device(int i, size_t largest, size_t devices)
{
    int least = 0, greatest = 0;
    on(i);
    gpu[i].from = shared_memory(i, largest + GAPS, devices);
    gpu[i].to = shared_memory(i, largest + GAPS, devices);
    gpu[i].words = shared_memory(i, WORD_BYTES, devices);
    CHECK(cu.cuMemsetD8(gpu[i].words, 0, WORD_BYTES));
    CHECK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    for (int s = 0; s < 2; s++)
        CHECK(cu.cuStreamCreateWithPriority(&gpu[i].high[s], CU_STREAM_NON_BLOCKING, greatest));
    CHECK(cu.cuStreamCreateWithPriority(&gpu[i].low, CU_STREAM_NON_BLOCKING, least));
    CHECK(cu.cuCtxSynchronize()); /* the memset may return before it is done */
}

/* Makes the contexts. Returns PEER or 0. */
static unsigned find_peer(void)
{
    int devices = 0, there = 0, back = 0;
    CUdevice device[2];
    CHECK(cu.cuDeviceGetCount(&devices));
    for (int i = 0; i < 2 && i < devices; i++) {
        CHECK(cu.cuDeviceGet(&device[i], i));
        CHECK(cu.cuDevicePrimaryCtxRetain(&gpu[i].ctx, device[i]));
    }
    if (devices >= 2) {
        CHECK(cu.cuDeviceCanAccessPeer(&there, device[0], device[1]));
        CHECK(cu.cuDeviceCanAccessPeer(&back, device[1], device[0]));
    }
    if (!there || !back) {
        printf("no second device with access to the first one and back: what needs a peer is left out\n");
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        on(i);
        CHECK(cu.cuCtxEnablePeerAccess(gpu[1 - i].ctx, 0));
    }
    return PEER;
}

/* Returns KERNEL or 0. */
static unsigned load_kernel(void)
{
    CUmodule module;
    CUresult result = cu.cuModuleLoadData(&module, spin_ptx);
    if (result != CUDA_SUCCESS) {
        printf("no kernel (CUDA error %d): what needs one is left out\n", (int)result);
        return 0;
    }
    CHECK(cu.cuModuleGetFunction(&spin, module, "spin"));
    return KERNEL;
}

static void open_host_words(void)
{
    void *page;
    CHECK(cu.cuMemHostAlloc(&page, HOST_BYTES, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(page, 0, HOST_BYTES);
    CHECK(cu.cuMemHostGetDevicePointer(&host_words, page, 0));
    gate = page;
}

unsigned devices_open(size_t largest)
{
    load_driver();
    CHECK(cu.cuInit(0));
    unsigned have = find_peer();
    for (int i = have & PEER ? 1 : 0; i >= 0; i--) /* gpu[0] last: it stays current */
        open_device(i, largest, have & PEER ? 2 : 1);
    open_host_words();
    return have | load_kernel();
}
