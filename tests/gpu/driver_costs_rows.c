/* SPDX-License-Identifier: Apache-2.0 */
/* What driver_costs times. */
#define FUNCTIONS(X)                                                                                                   \
    X(cuMemcpyAsync)                                                                                                   \
    X(cuMemcpyPeerAsync)                                                                                               \
    X(cuMemcpy2DAsync)                                                                                                 \
    X(cuMemcpy3DAsync)                                                                                                 \
    X(cuMemcpy3DPeerAsync)                                                                                             \
    X(cuMemAllocManaged)                                                                                               \
    X(cuMemFree)                                                                                                       \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuGraphCreate)                                                                                                   \
    X(cuGraphAddMemcpyNode)                                                                                            \
    X(cuGraphInstantiateWithFlags)                                                                                     \
    X(cuGraphLaunch)                                                                                                   \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuStreamWaitValue32)                                                                                             \
    X(cuStreamWriteValue32)                                                                                            \
    X(cuStreamBatchMemOp)                                                                                              \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)

#include "driver.h"
#include "driver_costs.h"

enum { MOST_OPERATIONS = 12, MOST_COPIES = 8, WIDTH = 64 << 10, PITCH = WIDTH + 512, DEPTH = 4 };

struct load load;
static CUevent hop_event[2];
static uint32_t word_value; /* the last one that a hop wrote */

/* The driver's own symbols, not the headers' names: v1 is CUDA 12.8's, v2 is CUDA 13's. */
static CUresult (*batch_v1)(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
                            size_t *first, size_t nattributes, size_t *failed, CUstream stream);
static CUresult (*batch_v2)(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
                            size_t *first, size_t nattributes, CUstream stream);

static CUresult (*batch_3d_v1)(size_t n, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,
                               CUstream stream);
static CUresult (*batch_3d_v2)(size_t n, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream);

static void copy(CUdeviceptr to, CUdeviceptr from, size_t size, int stream)
{
    CHECK(cu.cuMemcpyAsync(to, from, size, gpu[0].high[stream]));
}

static void pull(void)
{
    copy(gpu[0].to, gpu[1].from, load.bytes, 0);
}

static void push(void)
{
    copy(gpu[1].to, gpu[0].from, load.bytes, 0);
}

static void local(void)
{
    copy(gpu[0].to, gpu[0].from, load.bytes, 0);
}

static void pull_and_push(void)
{
    pull();
    copy(gpu[1].to, gpu[0].from, load.bytes, 1);
}

static void pull_and_push_low(void)
{
    pull();
    CHECK(cu.cuMemcpyAsync(gpu[1].to, gpu[0].from, load.bytes, gpu[0].low));
}

static void pull_halves(void)
{
    copy(gpu[0].to, gpu[1].from, load.bytes / 2, 0);
    copy(gpu[0].to + load.bytes / 2, gpu[1].from + load.bytes / 2, load.bytes / 2, 1);
}

static void each_pulls(void)
{
    pull();
    on(1);
    CHECK(cu.cuMemcpyAsync(gpu[1].to, gpu[0].from, load.bytes, gpu[1].high[0]));
    CHECK(cu.cuStreamSynchronize(gpu[1].high[0]));
    on(0);
}

static void batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, unsigned flags)
{
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, .flags = flags};
    size_t first = 0, failed = 0;
    CUstream stream = gpu[0].high[0];
    if (batch_v2)
        CHECK(batch_v2(to, from, sizes, n, &how, &first, 1, stream));
    else
        CHECK(batch_v1(to, from, sizes, n, &how, &first, 1, &failed, stream));
}

static void pull_and_push_batch(void)
{
    CUdeviceptr to[] = {gpu[0].to, gpu[1].to}, from[] = {gpu[1].from, gpu[0].from};
    size_t sizes[] = {load.bytes, load.bytes};
    batch(to, from, sizes, 2, 0);
}

/* load.bytes in load.count copies. */
static void batch_of_parts(CUdeviceptr source, unsigned flags)
{
    CUdeviceptr to[MOST_COPIES], from[MOST_COPIES];
    size_t sizes[MOST_COPIES], part = load.bytes / (size_t)load.count;
    for (size_t i = 0; i < (size_t)load.count; i++) {
        to[i] = gpu[0].to + i * part;
        from[i] = source + i * part;
        sizes[i] = part;
    }
    batch(to, from, sizes, (size_t)load.count, flags);
}

static void pull_batch(void)
{
    batch_of_parts(gpu[1].from, 0);
}

static void local_batch(void)
{
    batch_of_parts(gpu[0].from, 0);
}

static void local_batch_hint(void)
{
    batch_of_parts(gpu[0].from, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

static void local_peer_call(void)
{
    CHECK(cu.cuMemcpyPeerAsync(gpu[0].to, gpu[0].ctx, gpu[0].from, gpu[0].ctx, load.bytes, gpu[0].high[0]));
}

/* Rows with a gap between them, so that they are not one piece. */
static void local_2d(void)
{
    CUDA_MEMCPY2D shape = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = gpu[0].from,
                           .srcPitch = PITCH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = gpu[0].to,
                           .dstPitch = PITCH,
                           .WidthInBytes = WIDTH,
                           .Height = load.bytes / WIDTH};
    CHECK(cu.cuMemcpy2DAsync(&shape, gpu[0].high[0]));
}

static CUDA_MEMCPY3D shape_3d(size_t width, size_t pitch, size_t height, size_t depth)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = gpu[0].from,
                           .srcPitch = pitch,
                           .srcHeight = height,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = gpu[0].to,
                           .dstPitch = pitch,
                           .dstHeight = height,
                           .WidthInBytes = width,
                           .Height = height,
                           .Depth = depth};
}

static void local_3d(void)
{
    const CUDA_MEMCPY3D shape = shape_3d(WIDTH, PITCH, load.bytes / WIDTH / DEPTH, DEPTH);
    CHECK(cu.cuMemcpy3DAsync(&shape, gpu[0].high[0]));
}

static void local_3d_peer_call(void)
{
    const CUDA_MEMCPY3D_PEER shape = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .srcDevice = gpu[0].from,
                                      .srcContext = gpu[0].ctx,
                                      .srcPitch = PITCH,
                                      .srcHeight = load.bytes / WIDTH,
                                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .dstDevice = gpu[0].to,
                                      .dstContext = gpu[0].ctx,
                                      .dstPitch = PITCH,
                                      .dstHeight = load.bytes / WIDTH,
                                      .WidthInBytes = WIDTH,
                                      .Height = load.bytes / WIDTH,
                                      .Depth = 1};
    CHECK(cu.cuMemcpy3DPeerAsync(&shape, gpu[0].high[0]));
}

/* A graph of one node is made when the size is another one than before. */
static void local_graph(void)
{
    static CUgraphExec ready;
    static size_t made;
    if (made != load.bytes) {
        const CUDA_MEMCPY3D shape = shape_3d(load.bytes, load.bytes, 1, 1);
        CUgraph graph;
        CUgraphNode node;
        CHECK(cu.cuGraphCreate(&graph, 0));
        CHECK(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &shape, gpu[0].ctx));
        CHECK(cu.cuGraphInstantiateWithFlags(&ready, graph, 0));
        made = load.bytes;
    }
    CHECK(cu.cuGraphLaunch(ready, gpu[0].high[0]));
}

/* From managed memory that the device has written last. */
static void local_managed(void)
{
    static CUdeviceptr managed;
    static size_t made;
    if (made != load.bytes) {
        if (made)
            CHECK(cu.cuMemFree(managed));
        CHECK(cu.cuMemAllocManaged(&managed, load.bytes, CU_MEM_ATTACH_GLOBAL));
        CHECK(cu.cuMemsetD8Async(managed, 1, load.bytes, gpu[0].high[0]));
        made = load.bytes;
    }
    copy(gpu[0].to, managed, load.bytes, 0);
}

static void local_batch_3d(void)
{
    CUDA_MEMCPY3D_BATCH_OP copy_op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
                                      .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
                                      .extent = {.width = load.bytes, .height = 1, .depth = 1},
                                      .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                      .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
    size_t failed = 0;
    copy_op.src.op.ptr.ptr = gpu[0].from;
    copy_op.dst.op.ptr.ptr = gpu[0].to;
    if (batch_3d_v2)
        CHECK(batch_3d_v2(1, &copy_op, 0, gpu[0].high[0]));
    else
        CHECK(batch_3d_v1(1, &copy_op, &failed, 0, gpu[0].high[0]));
}

static void empty_kernel(void)
{
    launch(gpu[0].high[0], 1, 1, 0);
}

static void record(void)
{
    CHECK(cu.cuEventRecord(hop_event[0], gpu[0].high[0]));
}

static void wait_event(void)
{
    CHECK(cu.cuStreamWaitEvent(gpu[0].high[1], hop_event[0], 0));
}

static CUdeviceptr host_word(int i)
{
    return host_words + (CUdeviceptr)(i * WORD_STRIDE);
}

static CUdeviceptr device_word(int device, int i)
{
    return gpu[device].words + (CUdeviceptr)(i * WORD_STRIDE);
}

static void write_word(void)
{
    CHECK(cu.cuStreamWriteValue32(gpu[0].high[0], host_word(1), 0, CU_STREAM_WRITE_VALUE_DEFAULT));
}

static void wait_word(void)
{
    CHECK(cu.cuStreamWaitValue32(gpu[0].high[0], host_word(1), 0, CU_STREAM_WAIT_VALUE_GEQ));
}

/* load.count operations, writes and waits in turn; no wait waits. */
static void word_batch(void)
{
    CUstreamBatchMemOpParams operations[MOST_OPERATIONS] = {0};
    for (int i = 0; i < load.count; i++) {
        bool waits = i % 2;
        operations[i].operation = waits ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        if (waits)
            operations[i].waitValue.address = host_word(1 + i);
        else
            operations[i].writeValue.address = host_word(1 + i);
    }
    CHECK(cu.cuStreamBatchMemOp(gpu[0].high[0], (unsigned)load.count, operations, 0));
}

static void pull_4k_and_write(void)
{
    copy(gpu[0].to, gpu[1].from, 4096, 0);
    write_word();
}

/* From a stream of gpu[0] to its other one, and back. */
static void event_hops(void)
{
    record();
    wait_event();
    CHECK(cu.cuEventRecord(hop_event[1], gpu[0].high[1]));
    CHECK(cu.cuStreamWaitEvent(gpu[0].high[0], hop_event[1], 0));
}

/* From a stream of gpu[0] to the second one of `device`, and back. */
static void word_hops(int device, CUdeviceptr there, CUdeviceptr back)
{
    CUstream here = gpu[0].high[0], other = gpu[device].high[1];
    uint32_t value = ++word_value;
    CHECK(cu.cuStreamWriteValue32(here, there, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    on(device);
    CHECK(cu.cuStreamWaitValue32(other, there, value, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cu.cuStreamWriteValue32(other, back, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    on(0);
    CHECK(cu.cuStreamWaitValue32(here, back, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void hops_host(void)
{
    word_hops(0, host_word(2), host_word(3));
}

static void hops_own(void)
{
    word_hops(0, device_word(0, 0), device_word(0, 1));
}

static void hops_peer(void)
{
    word_hops(0, device_word(1, 0), device_word(1, 1));
}

static void across_host(void)
{
    word_hops(1, host_word(2), host_word(3));
}

static void across_waiter(void)
{
    word_hops(1, device_word(1, 2), device_word(0, 2));
}

static void across_writer(void)
{
    word_hops(1, device_word(0, 3), device_word(1, 3));
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const struct row duplex[] = {
    {"a pull", pull, PEER, 1},
    {"a push", push, PEER, 1},
    {"both, two streams", pull_and_push, PEER, 1},
    {"both, two priorities", pull_and_push_low, PEER, 1},
    {"both, one cuMemcpyBatchAsync", pull_and_push_batch, PEER | BATCH, 1},
    {"each GPU pulls", each_pulls, PEER, 1},
    {"a pull in 8 copies, one cuMemcpyBatchAsync", pull_batch, PEER | BATCH, 8},
    {"a pull in halves, two streams", pull_halves, PEER, 1},
};

static const struct row host[] = {
    {"cuEventRecord", record, 0, 1},
    {"cuStreamWaitEvent", wait_event, 0, 1},
    {"cuStreamWaitValue32", wait_word, 0, 1},
    {"cuStreamWriteValue32", write_word, 0, 1},
    {"cuStreamBatchMemOp, 1 operation", word_batch, 0, 1},
    {"cuStreamBatchMemOp, 2 operations", word_batch, 0, 2},
    {"cuStreamBatchMemOp, 4 operations", word_batch, 0, 4},
    {"cuStreamBatchMemOp, 8 operations", word_batch, 0, 8},
    {"cuStreamBatchMemOp, 12 operations", word_batch, 0, 12},
    {"cuMemcpyAsync, 64 KiB, within the device", local, 0, 1},
    {"cuMemcpyAsync, 64 KiB, from a peer", pull, PEER, 1},
    {"cuMemcpyAsync, 64 KiB, to a peer", push, PEER, 1},
    {"cuMemcpyBatchAsync, 1 copy of 64 KiB, from a peer", pull_batch, PEER | BATCH, 1},
    {"cuMemcpyBatchAsync, 2 copies", pull_batch, PEER | BATCH, 2},
    {"cuMemcpyBatchAsync, 3 copies", pull_batch, PEER | BATCH, 3},
    {"cuMemcpyBatchAsync, 8 copies", pull_batch, PEER | BATCH, 8},
    {"cuLaunchKernel", empty_kernel, KERNEL, 1},
};

static const struct row device[] = {
    {"cuStreamWriteValue32", write_word, 0, 1},
    {"hop by an event", event_hops, 0, 2},
    {"hop by a word in host memory", hops_host, 0, 2},
    {"hop by a word in the device's memory", hops_own, 0, 2},
    {"hop by a word in the peer's memory", hops_peer, PEER, 2},
    {"hop to the other GPU by a word in host memory", across_host, PEER, 2},
    {"hop to the other GPU by a word in the waiter's memory", across_waiter, PEER, 2},
    {"hop to the other GPU by a word in the writer's memory", across_writer, PEER, 2},
    {"copy of 64 KiB within the device", local, 0, 1},
    {"copy of 64 KiB from the peer", pull, PEER, 1},
    {"copy of 4 KiB from the peer and a word", pull_4k_and_write, PEER, 1},
    {"empty kernel", empty_kernel, KERNEL, 1},
};

static const struct row behind[] = {
    {"cuMemcpyAsync", local, 0, 1},
    {"cuMemcpyBatchAsync", local_batch, BATCH, 1},
    {"cuMemcpyBatchAsync, overlap hint", local_batch_hint, BATCH, 1},
    {"cuMemcpyBatchAsync in 8 copies, overlap hint", local_batch_hint, BATCH, 8},
    {"cuMemcpyPeerAsync within the context", local_peer_call, 0, 1},
    {"cuMemcpy2DAsync", local_2d, 0, 1},
    {"cuMemcpy3DAsync", local_3d, 0, 1},
    {"cuMemcpy3DPeerAsync within the context", local_3d_peer_call, 0, 1},
    {"cuMemcpy3DBatchAsync, overlap hint", local_batch_3d, BATCH, 1},
    {"a graph of a memcpy node", local_graph, 0, 1},
    {"cuMemcpyAsync from managed memory", local_managed, 0, 1},
    {"cuMemcpyAsync from the peer", pull, PEER, 1},
    {"a kernel of one thread", empty_kernel, 0, 1},
};

const struct rows duplex_rows = {duplex, sizeof duplex / sizeof *duplex};
const struct rows host_rows = {host, sizeof host / sizeof *host};
const struct rows device_rows = {device, sizeof device / sizeof *device};
const struct rows behind_rows = {behind, sizeof behind / sizeof *behind};

unsigned rows_open(void)
{
    load_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&batch_v1 = driver ? dlsym(driver, "cuMemcpyBatchAsync") : NULL;
    *(void **)&batch_v2 = driver ? dlsym(driver, "cuMemcpyBatchAsync_v2") : NULL;
    *(void **)&batch_3d_v1 = driver ? dlsym(driver, "cuMemcpy3DBatchAsync") : NULL;
    *(void **)&batch_3d_v2 = driver ? dlsym(driver, "cuMemcpy3DBatchAsync_v2") : NULL;
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuEventCreate(&hop_event[i], CU_EVENT_DISABLE_TIMING));
    if ((batch_v1 || batch_v2) && (batch_3d_v1 || batch_3d_v2))
        return BATCH;
    printf("no cuMemcpyBatchAsync or no cuMemcpy3DBatchAsync: their rows are left out\n");
    return 0;
}
