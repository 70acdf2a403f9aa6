/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes an operation touches, and the life of memory. */
#include "edges.h"
#include <stddef.h>

/* Interleaved columns: side by side, or one column too wide. */
static void columns(struct edge_env *e)
{
    CU(cuMemsetD2D8Async(e->x, 64, 1, e->edge ? 32 : 33, 20, e->a));
    settle(e, e->a);
    CU(cuMemsetD2D32Async(e->x + 32, 64, 2, 8, 20, e->b));
}

static void copied_columns(struct edge_env *e)
{
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = e->x,
                       .srcPitch = 64,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = e->y,
                       .dstPitch = 32,
                       .WidthInBytes = 32,
                       .Height = 20};

    c.srcXInBytes = e->edge ? 32 : 31;
    CU(cuMemsetD2D8Async(e->x, 64, 1, 32, 20, e->a));
    settle(e, e->a);
    CU(cuMemcpy2DAsync(&c, e->b));
}

/* Reads need no order among themselves, and each of them one with the write behind. */
static void many_reads(struct edge_env *e)
{
    CUstream s[10];
    CUdeviceptr y;

    for (int i = 0; i < 10; i++) {
        CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
        CU(cuMemAlloc(&y, BYTES));
        CU(cuMemcpyDtoDAsync(y, e->x, BYTES, s[i]));
        if (e->edge || i != 4)
            follow(e, s[i], e->a);
        settle(e, s[i]);
    }
    fill(e, e->a);
}

/* Two parts of what one operation wrote, each read in order and written again by somebody else. */
static void parts(struct edge_env *e)
{
    fill(e, e->a);
    follow(e, e->a, e->b);
    CU(cuMemsetD8Async(e->x, 2, BYTES / 2, e->a));
    CU(cuMemcpyDtoDAsync(e->y, e->x + BYTES / 2 - (e->edge ? 0 : 1), BYTES / 2, e->b));
}

static void pinned(struct edge_env *e)
{
    void *host;

    CU(cuMemHostAlloc(&host, BYTES, 0));
    CU(cuMemcpyDtoHAsync(host, e->x, BYTES, e->a));
    if (e->edge)
        follow(e, e->a, e->b);
    settle(e, e->a);
    CU(cuMemcpyHtoDAsync(e->y, host, BYTES, e->b));
}

static void pool_alloc(struct edge_env *e)
{
    CUdeviceptr p;

    CU(cuMemAllocAsync(&p, BYTES, e->a));
    if (e->edge)
        follow(e, e->a, e->b);
    settle(e, e->a);
    CU(cuMemsetD8Async(p, 1, BYTES, e->b));
    CU(cuCtxSynchronize());
    CU(cuMemFreeAsync(p, e->b));
}

static void pool_free(struct edge_env *e)
{
    CUdeviceptr p;

    CU(cuMemAllocAsync(&p, BYTES, e->a));
    CU(cuMemsetD8Async(p, 1, BYTES, e->a));
    if (e->edge)
        follow(e, e->a, e->b);
    else
        settle(e, e->a);
    CU(cuMemFreeAsync(p, e->b));
}

/* cuMemFree waits for the work of its own context, but not for another's. */
static void free_other_context(struct edge_env *e)
{
    CUcontext here, there;
    CUstream s;
    CUdeviceptr y;

    CU(cuCtxGetCurrent(&here));
    CU(cuDevicePrimaryCtxRetain(&there, 1));
    CU(cuCtxSetCurrent(there));
    CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&y, BYTES));
    CU(cuMemcpyDtoDAsync(y, e->x, BYTES, s));
    settle(e, s);
    if (e->edge)
        CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(here));
    CU(cuMemFree(e->x));
    CU(cuCtxSetCurrent(there));
    CU(cuCtxSynchronize());
    CU(cuCtxSetCurrent(here));
}

/* ---- virtual memory ---- */

#define PAGES ((size_t)2 << 20)

static CUmemGenericAllocationHandle physical(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle h;

    CU(cuMemCreate(&h, PAGES, &prop, 0));
    return h;
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle h)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    CU(cuMemMap(at, PAGES, 0, h, 0));
    CU(cuMemSetAccess(at, PAGES, &access, 1));
}

/* The same bytes at two addresses. */
static void mapped_twice(struct edge_env *e)
{
    CUmemGenericAllocationHandle h = physical();
    CUdeviceptr p;

    CU(cuMemAddressReserve(&p, 2 * PAGES, 0, 0, 0));
    map(p, h);
    map(p + PAGES, h);
    e->x = p;
    fill(e, e->a);
    if (e->edge)
        follow(e, e->a, e->b);
    settle(e, e->a);
    e->x = p + PAGES;
    look(e, e->b);
}

/* One operation over two mappings that lie side by side. */
static void mapped_beside(struct edge_env *e)
{
    CUdeviceptr p;

    CU(cuMemAddressReserve(&p, 2 * PAGES, 0, 0, 0));
    map(p, physical());
    map(p + PAGES, physical());
    CU(cuMemsetD8Async(p, 1, 2 * PAGES, e->a));
    settle(e, e->a);
    e->x = p + PAGES + (e->edge ? BYTES : 0);
    if (e->edge)
        follow(e, e->a, e->b);
    look(e, e->b);
}

/* Unmapping waits for nothing: somebody has to have waited. Another mapping of the same memory may be in use. */
static void unmapped(struct edge_env *e)
{
    CUmemGenericAllocationHandle h = physical();
    CUdeviceptr p;

    CU(cuMemAddressReserve(&p, 2 * PAGES, 0, 0, 0));
    map(p, h);
    map(p + PAGES, h);
    e->x = p + (e->edge ? PAGES : 0);
    fill(e, e->a);
    settle(e, e->a);
    fill(e, e->a);
    settle(e, e->a);
    CU(cuMemUnmap(p, PAGES));
}

/* New memory at an old address has no history. */
static void address_again(struct edge_env *e)
{
    for (int i = 0; i < 4; i++) {
        fill(e, i % 2 ? e->a : e->b);
        CU(cuMemFree(e->x));
        CU(cuMemAlloc(&e->x, BYTES));
    }
    fill(e, e->a);
    settle(e, e->a);
    look(e, e->edge ? e->a : e->b);
}

/* Many streams, one after another: their numbers are used again. */
static void many_streams(struct edge_env *e)
{
    CUstream s, last = NULL;

    for (int i = 0; i < 1100; i++) {
        CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        fill(e, s);
        if (i == 1099)
            last = s;
        else
            CU(cuStreamSynchronize(s));
        if (!last)
            CU(cuStreamDestroy(s));
    }
    look(e, e->edge ? last : e->a);
}

const struct edge_case edges_memory[] = {
    {.name = "columns", .body = columns, .first = "cuMemsetD2D8Async", .second = "cuMemsetD2D32Async"},
    {.name = "copied-columns", .body = copied_columns, .first = "cuMemsetD2D8Async", .second = "cuMemcpy2DAsync"},
    {.name = "many-reads", .body = many_reads},
    {.name = "parts", .body = parts},
    {.name = "pinned", .body = pinned, .first = "cuMemcpyDtoHAsync", .second = "cuMemcpyHtoDAsync"},
    {.name = "pool-alloc", .body = pool_alloc, .first = "cuMemAllocAsync", .second = "cuMemsetD8Async"},
    {.name = "pool-free", .body = pool_free, .second = "cuMemFreeAsync"},
    {.name = "free-other-context", .body = free_other_context, .first = "cuMemcpyDtoDAsync", .second = "freeing"},
    {.name = "mapped-twice", .body = mapped_twice},
    {.name = "mapped-beside", .body = mapped_beside},
    {.name = "unmapped", .body = unmapped, .second = "unmapping"},
    {.name = "address-again", .body = address_again},
    {.name = "many-streams", .body = many_streams},
    {.name = NULL},
};
