/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in the order of a stream, on a fake driver: which are served by blocks, by which, and what the program sees
 * of its pools. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "block_calls.h"
#include "cache/block_impl.h"
#include "cache/pools.h"

static const CUmemoryPool first = (CUmemoryPool)0x5000, made = (CUmemoryPool)0x5100, foreign = (CUmemoryPool)0x5200;
static struct {
    CUmemoryPool current, met; /* the device's; that of any memory that is no block */
    size_t size;               /* of that memory */
    CUcontext stream_ctx;      /* of any stream */
    cuuint64_t used, high;     /* of the driver's memory of any pool; reserved as much */
    int peers;                 /* calls of cuCtxEnablePeerAccess */
    void (*on_read)(void);     /* at a look at a pool */
} world;

static CUresult current_pool(CUmemoryPool *out, CUdevice device)
{
    (void)device;
    *out = world.current;
    return CUDA_SUCCESS;
}

static CUresult default_pool(CUmemoryPool *out, CUdevice device)
{
    *out = device == 0 ? first : (CUmemoryPool)(0x6000 + (uintptr_t)device);
    return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool;
    bool high = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    *(cuuint64_t *)value = high ? world.high : world.used;
    if (world.on_read)
        world.on_read();
    return CUDA_SUCCESS;
}

static CUresult stream_ctx(CUstream stream, CUcontext *out)
{
    (void)stream;
    *out = world.stream_ctx;
    return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    *base = p;
    *size = world.size;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *out, CUpointer_attribute attribute, CUdeviceptr p)
{
    (void)p;
    *(CUmemoryPool *)out = attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ? world.met : NULL;
    return CUDA_SUCCESS;
}

static CUresult enable_peer(CUcontext ctx, unsigned flags)
{
    world.peers += ctx == fake_primary(0) && flags == 0;
    return CUDA_SUCCESS;
}

static void begin_in(const char *mode, const char *budget, size_t capacity)
{
    fake_start(mode, budget, capacity);
    world.current = world.met = first;
    world.stream_ctx = fake_primary(0);
    slr_real.cuDeviceGetMemPool = current_pool;
    slr_real.cuDeviceGetDefaultMemPool = default_pool;
    slr_real.cuMemPoolGetAttribute = pool_attribute;
    slr_real.cuStreamGetCtx = stream_ctx;
    slr_real.cuMemGetAddressRange = address_range;
    slr_real.cuPointerGetAttribute = pointer_attribute;
    slr_real.cuCtxEnablePeerAccess = enable_peer;
}

static void begin(const char *budget, size_t capacity)
{
    begin_in("collective", budget, capacity);
}

static bool meet(CUmemoryPool pool, size_t bytes)
{
    world.met = pool;
    world.size = bytes;
    return slr_pool_met(77);
}

/* 0: it is the driver's. */
static CUdeviceptr serve(size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr p = 0;
    bool served = slr_pool_serve(&p, bytes, pool, stream);
    cr_assert_eq(served, p != 0);
    cr_assert(!p || fake_size_at(p) >= bytes);
    return p;
}

static CUdeviceptr served(size_t bytes)
{
    meet(first, bytes);
    CUdeviceptr p = serve(bytes, NULL, fake_stream);
    cr_assert(p);
    return p;
}

static void give_async(CUdeviceptr p, CUstream stream)
{
    cr_assert_eq(slr_block_free_async(p, stream, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
}

static cuuint64_t told(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t bytes;
    slr_real.cuMemPoolGetAttribute(pool, attribute, &bytes);
    slr_pool_attribute(pool, attribute, &bytes);
    return bytes;
}

static CUmemPoolProps plain(void)
{
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

/* ---- which requests ---- */

Test(pools, where_nothing_is_gathered_requests_are_the_drivers)
{
    begin("1G", 100 * M);
    cr_assert(!slr_pools_any());
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    cr_assert_eq(serve(10 * M, first, fake_stream), 0);
    cr_assert(fake.used == 0 && stats().misses == 0);
}

Test(pools, what_a_gather_has_met_gets_one_block_and_then_as_many_again)
{
    begin("1G", 1000 * M);
    unsigned blocks = 0;
    for (int round = 0; round < 4; round++) {
        cr_assert(meet(first, 10 * M));
        cr_assert(slr_pools_any());
        while (serve(10 * M, NULL, fake_stream))
            blocks++;
    }
    cr_assert_eq(blocks, 1 + 1 + 2 + 4);
    cr_assert_eq(stats().async, blocks);
    cr_assert_eq(slr_block_find(take(3 * M)).ordinal, 0, "of the first that is no pool's");
    cr_assert_eq(serve(20 * M, NULL, fake_stream), 0, "another size");
}

Test(pools, with_mode_all_the_first_requests_are_served)
{
    begin_in("all", "1G", 1000 * M);
    slr_pools_install();
    cr_assert(slr_pools_any());
    for (int i = 0; i < 70; i++)
        cr_assert(serve(10 * M, i % 2 ? first : NULL, fake_stream));
    cr_assert_eq(serve(10 * M, foreign, fake_stream), 0);
    cr_assert_eq(stats().async, 70);
    world.stream_ctx = NULL;
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0, "of another context");
}

Test(pools, with_mode_all_without_memory_the_request_is_the_drivers_for_a_while)
{
    begin_in("all", "1G", 25 * M);
    CUdeviceptr q;
    cr_assert(serve(10 * M, NULL, fake_stream));
    cr_assert_eq(slr_real.cuMemAlloc(&q, 10 * M), CUDA_SUCCESS);
    const int allocs = fake.allocs;
    cr_assert(serve(10 * M, NULL, fake_stream) == 0 && serve(10 * M, NULL, fake_stream) == 0);
    cr_assert_eq(fake.allocs, allocs + 1, "it is not tried again soon");
}

Test(pools, what_is_small_or_no_pools_is_not_met)
{
    begin("1G", 100 * M);
    cr_assert(!meet(NULL, 10 * M));
    cr_assert(!meet(first, M / 2));
    cr_assert(!meet(foreign, 10 * M), "of another process, or made before slipring was there");
    cr_assert(!slr_pools_any());
}

Test(pools, mode_off_serves_nothing)
{
    begin_in("off", "1G", 100 * M);
    cr_assert(!meet(first, 10 * M));
}

Test(pools, a_request_inside_of_slipring_of_another_context_or_stream_is_the_drivers)
{
    begin("1G", 100 * M);
    meet(first, 10 * M);
    slr_guard = 1;
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    slr_guard = 0;
    world.stream_ctx = fake_other(0);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0, "the stream is of another device or green context");
    world.stream_ctx = fake_primary(0);
    fake.current = fake_other(0);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    fake.current = fake_primary(1);
    world.stream_ctx = fake_primary(1);
    cr_assert_eq(serve(10 * M, first, fake_stream), 0, "another device's pool");
    fake.current = world.stream_ctx = fake_primary(0);
    atomic_store(&slr_reach_word, SLR_REACH_PAST);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0, "something bypasses slipring");
    atomic_store(&slr_reach_word, 0);
    CUdeviceptr p;
    cr_assert(!slr_pool_serve(NULL, 10 * M, NULL, fake_stream) && !slr_pool_serve(&p, 0, NULL, fake_stream));
    cr_assert(serve(10 * M, NULL, NULL), "the legacy default stream");
}

Test(pools, while_something_captures_requests_are_the_drivers)
{
    begin("1G", 100 * M);
    meet(first, 10 * M);
    slr_block_captures(1);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    slr_block_captures(-1);
    fake.captures = true; /* by a way that is not hooked */
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    fake.captures = false;
    cr_assert(serve(10 * M, NULL, fake_stream));
}

Test(pools, a_child_has_none)
{
    int status;
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    meet(first, 10 * M);
    pid_t child = fork();
    if (child == 0)
        _exit(serve(10 * M, NULL, fake_stream) != 0 || slr_pool_of(p) != NULL);
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- which pools ---- */

Test(pools, pools_of_the_program)
{
    begin("1G", 100 * M);
    CUmemPoolProps props = plain();
    cr_assert(!meet(made, 10 * M));
    slr_pool_made(made, &props);
    cr_assert(meet(made, 10 * M));
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0, "the current pool has met nothing");
    CUdeviceptr p = serve(10 * M, made, fake_stream);
    cr_assert(p && slr_pool_of(p) == made && slr_pool_of(p + 5) == made);
    slr_pool_gone(made);
    cr_assert(!slr_pool_of(p) && !meet(made, 10 * M) && !serve(10 * M, made, fake_stream));
    slr_pool_made(made, &props); /* another one by that name */
    cr_assert(!slr_pool_of(p) && !serve(10 * M, made, fake_stream));
    cr_assert_eq(told(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    give_async(p, fake_stream);
    cr_assert_eq(told(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
}

Test(pools, special_pools_are_the_drivers)
{
    begin("1G", 100 * M);
    CUmemPoolProps props[5];
    for (int i = 0; i < 5; i++)
        props[i] = plain();
    props[0].handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props[1].location.type = CU_MEM_LOCATION_TYPE_HOST;
    props[2].allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    memset((char *)&props[3] + sizeof props[3] - 1, 1, 1);         /* of a newer driver */
    memset((char *)&props[4] + sizeof props[4] - 60, 1, sizeof 1); /* its largest size, or its usage */
    for (int i = 0; i < 5; i++) {
        slr_pool_made(made, &props[i]);
        cr_assert(!meet(made, 10 * M), "%d", i);
    }
}

static CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
}

Test(pools, a_pool_that_other_devices_reach_is_the_drivers)
{
    begin("1G", 100 * M);
    CUmemPoolProps props = plain();
    CUmemAccessDesc own = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                    other = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                    none = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    slr_pool_made(made, &props);
    slr_pool_access(made, &own, 1);
    slr_pool_access(made, &none, 1);
    slr_pool_access(first, &own, 1);
    slr_pool_access(first, &none, 1);
    cr_assert(meet(made, 10 * M) && meet(first, 10 * M));
    slr_pool_access(made, &other, 1);
    slr_pool_access_given(made, &other, 1);
    cr_assert(!serve(10 * M, made, fake_stream) && !meet(made, 20 * M) && world.peers == 0);
    slr_pool_access(first, &other, 1);
    cr_assert(!serve(10 * M, NULL, fake_stream));
}

Test(pools, a_default_pool_that_other_devices_reached_before_is_the_drivers)
{
    begin("1G", 100 * M);
    CUmemAccessDesc other = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    slr_pool_access(first, &other, 1);
    cr_assert(!meet(first, 10 * M));
}

Test(pools, memory_that_was_served_before_is_reached_as_well)
{
    begin("1G", 100 * M);
    CUmemAccessDesc map[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                             access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    CUdeviceptr p = served(10 * M);
    slr_pool_access(first, map, 2);
    slr_pool_access_given(first, map, 2);
    cr_assert_eq(world.peers, 1);
    cr_assert_eq(slr_pool_of(p), first);
}

static void give_access(void)
{
    CUmemAccessDesc other = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    slr_pool_access(first, &other, 1);
    slr_pool_access_given(first, &other, 1);
    world.on_read = NULL;
}

Test(pools, access_that_is_given_meanwhile)
{
    begin("1G", 100 * M);
    meet(first, 10 * M);
    world.on_read = give_access;
    CUdeviceptr p;
    cr_assert(!slr_pool_serve(&p, 10 * M, NULL, fake_stream));
    cr_assert_eq(stats().used_bytes, 0);
}

/* ---- order ---- */

Test(pools, a_stream_gets_at_once_what_was_freed_on_it_and_no_other_stream_does)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    const uint64_t generation = slr_block_find(p).generation;
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    cr_assert_eq(slr_block_free_async(p, fake_stream, slr_real.cuMemFreeAsync), CUDA_ERROR_INVALID_VALUE, "twice");
    cr_assert_eq(slr_block_free(p), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(serve(10 * M, NULL, fake_side), 0);
    cr_assert_eq(serve(8 * M, NULL, fake_stream), 0, "another class");
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p);
    cr_assert(slr_block_find(p).generation == generation && fake.events == 0);
    give_async(p, fake_stream);
    fake.event_result = CUDA_SUCCESS;
    cr_assert_eq(serve(10 * M, NULL, fake_side), p, "the stream has come to the free");
    cr_assert(fake.events == 0 && fake.syncs == 0 && fake.frees == 0);
}

/* What is asked for and freed alike gets the same on ranks whose hosts are ahead, and on those whose are not. */
Test(pools, a_stream_gets_what_was_freed_on_it_last_whether_it_has_come_there_or_not)
{
    begin("1G", 1000 * M);
    CUdeviceptr p[4];
    p[0] = served(10 * M);
    p[1] = served(10 * M);
    p[2] = served(10 * M);
    give_async(p[1], fake_stream);
    give_async(p[2], fake_side);
    give_async(p[0], fake_stream);
    slr_block_return_idle(); /* all are kept: p[0] is the first that was made */
    cr_assert_eq(stats().kept_bytes, 30 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    p[3] = serve(10 * M, NULL, fake_stream);
    cr_assert_eq(p[3], p[0]);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p[1]);
    give_async(p[0], fake_stream);
    give_async(p[1], fake_stream);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p[1], "leaving before kept, the latest first");
    fake.event_result = CUDA_SUCCESS;
    slr_block_return_idle();
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p[1], fake_stream);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p[1]);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p[0]);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p[2], "another stream's, which has left");
}

Test(pools, a_stream_by_the_handle_of_one_that_has_ended_is_another_one)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    slr_block_stream_ends(fake_side);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p);
    give_async(p, fake_stream);
    slr_block_stream_ends(fake_stream);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
}

static void end_stream(void)
{
    slr_block_stream_ends(fake_stream);
}

Test(pools, a_stream_that_ends_while_its_blocks_are_looked_at)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    fake.on_query = end_stream;
    slr_block_return_idle();
    fake.on_query = NULL;
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
}

Test(pools, the_default_streams_of_threads_and_contexts_are_not_one)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, CU_STREAM_PER_THREAD);
    cr_assert_eq(serve(10 * M, NULL, CU_STREAM_PER_THREAD), 0);
    meet(first, 10 * M);
    CUdeviceptr q = serve(10 * M, NULL, fake_stream);
    fake.current = fake_other(0);
    give_async(q, fake_side); /* as if it were the other context's legacy stream */
    fake.current = fake_primary(0);
    cr_assert_eq(serve(10 * M, NULL, fake_side), 0);
}

Test(pools, cuMemFree_waits_and_keeps_it)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    give(p);
    cr_assert(fake.syncs == 1 && stats().kept_bytes == 10 * M);
    cr_assert_eq(serve(10 * M, NULL, fake_side), p);
}

Test(pools, plain_requests_get_what_has_left_only)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    CUdeviceptr q = take(10 * M);
    cr_assert_neq(q, p);
    fake.event_result = CUDA_SUCCESS;
    slr_block_return_idle();
    cr_assert_eq(take(10 * M), p);
    cr_assert_eq(slr_pool_of(p), NULL);
    give(p);
    cr_assert_eq(fake_size_at(p), 0, "it is no collective's, and no pool's any more");
    (void)q;
}

Test(pools, no_more_blocks_are_made_while_some_leave)
{
    begin("1G", 1000 * M);
    unsigned blocks = 0;
    fake.event_result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 20; i++) {
        meet(first, 10 * M);
        CUdeviceptr p = serve(10 * M, NULL, fake_stream);
        blocks += p != 0;
        if (p)
            give_async(p, fake_side);
    }
    cr_assert_eq(blocks, 4);
}

Test(pools, a_block_that_leaves_with_its_context_is_not_handed_out)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    slr_device_reset(0);
    fake_reset();
    slr_device_forget(0);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    cr_assert(!slr_pool_of(p) && told(first, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    meet(first, 10 * M);
    cr_assert(serve(10 * M, NULL, fake_stream), "a new one");
}

/* ---- books ---- */

Test(pools, a_pool_has_used_what_blocks_serve)
{
    begin("1G", 100 * M);
    CUdeviceptr p = served(10 * M + 512);
    world.used = 3 * M;
    world.high = 4 * M;
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 13 * M + 512, "as asked for");
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 13 * M + 512);
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 13 * M + 512);
    cr_assert_eq(told(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * M);
    give_async(p, fake_stream);
    world.used = 0;
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 13 * M + 512);
    world.high = 0;
    slr_pool_attribute_set(first, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 13 * M + 512);
    world.used = 5 * M; /* a peak that nobody has asked for */
    cr_assert(serve(10 * M, NULL, fake_stream) == 0 && serve(10 * M + 512, NULL, fake_stream) == p);
    give_async(p, fake_stream);
    world.used = 0;
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 15 * M + 512);
    cr_assert_eq(told(first, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
}

/* ---- memory is short ---- */

Test(pools, without_memory_for_a_block_the_request_is_the_drivers_for_a_while)
{
    begin("1G", 25 * M);
    CUdeviceptr p = served(10 * M), q;
    cr_assert_eq(slr_real.cuMemAlloc(&q, 10 * M), CUDA_SUCCESS);
    meet(first, 10 * M);
    const int allocs = fake.allocs;
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    cr_assert_eq(fake.allocs, allocs + 1);
    meet(first, 10 * M);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), 0);
    cr_assert_eq(fake.allocs, allocs + 1, "it is not tried again soon");
    give_async(p, fake_stream);
    cr_assert_eq(serve(10 * M, NULL, fake_stream), p);
}

Test(pools, blocks_serve_no_more_than_may_be_kept)
{
    begin("30M", 100 * M);
    CUdeviceptr kept = take(10 * M);
    slr_block_mark_collective(slr_block_find(kept).generation);
    give(kept);
    cr_assert_eq(stats().kept_bytes, 10 * M);
    served(20 * M);
    meet(first, 20 * M);
    cr_assert_eq(serve(20 * M, NULL, fake_stream), 0);
    cr_assert_eq(stats().evictions, 0);
}

static int queries;

static void come_later(void)
{
    if (++queries == 30)
        fake.event_result = CUDA_SUCCESS;
}

Test(pools, an_allocation_waits_for_what_leaves_before_it_fails)
{
    begin("1G", 15 * M);
    CUdeviceptr p = served(10 * M);
    fake.event_result = CUDA_ERROR_NOT_READY;
    give_async(p, fake_stream);
    fake.on_query = come_later;
    CUdeviceptr q = take(12 * M);
    cr_assert(q && queries >= 30 && fake.used == 12 * M);
}

Test(pools, what_has_left_counts_as_free)
{
    size_t bytes, total;
    begin("1G", 100 * M);
    give_async(served(10 * M), fake_stream);
    cr_assert_eq(slr_block_mem_info(&bytes, &total), CUDA_SUCCESS);
    cr_assert_eq(bytes, 100 * M);
}
