/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache on a fake driver: when freed memory may be kept or go back, and when it does.
 * Beside captures, after a time without use, and with its context. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "block_calls.h"
#include "cache/block_impl.h"
#include "cache/blocks.h"

Test(blocks, nothing_is_kept_during_a_capture)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    slr_block_captures(1);
    give(a);
    cr_assert(fake.used == 0 && fake.syncs == 0);
    a = take(10 * M);
    slr_block_captures(-1);
    give(a);
    cr_assert_eq(fake.used, 10 * M);
}

Test(blocks, during_a_capture_a_pinned_block_is_kept_behind_the_drivers_wait)
{
    fake_start("collective", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    cr_assert(slr_block_pin(slr_block_find(a).generation));
    slr_block_captures(1);
    int allocs = fake.allocs, frees = fake.frees;
    give(a);
    cr_assert(fake.syncs == 0 && fake.allocs == allocs + 1 && fake.frees == frees + 1);
    cr_assert(fake.used == 10 * M && fake_size_at(a));
    cr_assert_eq(take(10 * M), a);
    fake.global_capture = true; /* the driver would refuse, so it is asked, and the application keeps the block */
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cr_assert(stats().used_bytes == 10 * M && stats().kept_bytes == 0);
    fake.global_capture = false;
    slr_block_captures(-1);
    give(a);
    cr_assert(fake.syncs == 1 && fake_size_at(a));
}

Test(blocks, the_wait_during_a_capture_needs_little_memory)
{
    fake_start("all", "1G", 20 * M + 4096);
    CUdeviceptr a = take(10 * M), b = take(10 * M), p;
    cr_assert(slr_block_pin(slr_block_find(a).generation));
    slr_block_captures(1);
    give(a);
    cr_assert_eq(take(10 * M), a);
    cr_assert_eq(slr_real.cuMemAlloc(&p, 4096), CUDA_SUCCESS);
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(stats().used_bytes, 20 * M, "it is the application's still");
    slr_block_captures(-1);
    give(b);
    slr_block_captures(1);
    give(a); /* what was kept makes room */
    slr_block_captures(-1);
    cr_assert_eq(fake.used, 10 * M + 4096);
}

Test(blocks, what_slipring_frees_on_its_own_account_no_capture_forbids)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    uint64_t generation = slr_block_find(a).generation;
    cr_assert(slr_block_pin(generation));
    give(a);
    fake.global_capture = true;
    cr_assert_eq(slr_block_trim(0, SIZE_MAX), 0, "it is pinned");
    slr_block_unpin(generation);
    cr_assert_eq(slr_block_trim(0, SIZE_MAX), 10 * M);
    cr_assert_eq(fake.used, 0);
}

/* Peers that have it mapped may read it at any time. */
Test(blocks, a_pinned_block_that_a_stream_frees_is_kept_when_the_stream_comes_there)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M), b;
    uint64_t generation = slr_block_find(a).generation;
    cr_assert(slr_block_pin(generation));
    fake.event_result = CUDA_ERROR_NOT_READY;
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_ERROR_INVALID_VALUE, "twice");
    slr_block_return_idle();
    cr_assert(fake_size_at(a) && slr_block_lives(generation) && stats().kept_bytes == 0);
    b = take(10 * M);
    cr_assert_neq(b, a, "its stream may still use it");
    fake.event_result = CUDA_SUCCESS;
    slr_block_return_idle();
    cr_assert(fake_size_at(a) && stats().kept_bytes == 10 * M && fake.events == 0);
    cr_assert_eq(take(10 * M), a);
    cr_assert_eq(slr_block_find(a).generation, generation);
}

Test(blocks, a_pinned_block_that_a_stream_of_another_context_frees_waits_for_its_own)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    cr_assert(slr_block_pin(slr_block_find(a).generation));
    cr_assert_eq(slr_block_free_async(a, NULL, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
    cr_assert(fake.syncs == 1 && fake.events == 0 && stats().kept_bytes == 10 * M);
}

Test(blocks, a_block_that_leaves_and_loses_its_context_is_dropped)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    cr_assert(slr_block_pin(slr_block_find(a).generation));
    fake.event_result = CUDA_ERROR_NOT_READY;
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
    slr_device_reset(0);
    fake_reset();
    slr_device_forget(0);
    slr_block_return_idle();
    cr_assert(stats().blocks == 0 && fake.events == 1, "the event went with the context");
}

Test(blocks, a_free_that_is_captured_ends_the_block)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    uint64_t generation = slr_block_find(a).generation;
    fake.captures = true;
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
    cr_assert_not(slr_block_lives(generation));
}

static _Atomic bool began;
static pthread_t beginner;

static void *begin_capture(void *unused)
{
    slr_block_captures(1);
    atomic_store(&began, true);
    return unused;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void capture_begins_meanwhile(void)
{
    double start = seconds();
    cr_assert_eq(pthread_create(&beginner, NULL, begin_capture, NULL), 0);
    usleep(50000);
    cr_assert(!atomic_load(&began) || seconds() - start > 0.4,
              "a capture began when the context was being synchronised");
}

Test(blocks, a_capture_does_not_begin_between_the_look_and_the_synchronisation)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    fake.on_sync = capture_begins_meanwhile;
    give(a);
    fake.on_sync = NULL;
    cr_assert_eq(pthread_join(beginner, NULL), 0);
    cr_assert(atomic_load(&began));
    slr_block_captures(-1);
}

static void start_idle(const char *limit)
{
    setenv("SLIPRING_ALLOC_IDLE", limit, 1);
    fake_start("all", "1G", 100 * M);
}

static void wait_idle(void)
{
    usleep(150000);
    slr_block_return_idle();
}

Test(blocks, idle_memory_goes_back_and_nothing_waits)
{
    start_idle("100ms");
    CUdeviceptr a = take(10 * M), b = take(20 * M);
    uint64_t generation = slr_block_find(a).generation;
    give(a);
    int syncs = fake.syncs;
    cr_assert(!slr_block_idle(generation));
    slr_block_return_idle();
    cr_assert_eq(fake.used, 30 * M, "it has just been freed");
    usleep(150000);
    cr_assert(slr_block_idle(generation));
    wait_idle();
    cr_assert(fake.used == 20 * M && fake.frees == 0 && fake.syncs == syncs && fake.streams == 0);
    cr_assert(stats().idle == 1 && stats().kept_bytes == 0 && stats().used_bytes == 20 * M);
    cr_assert_eq(fake_size_at(b), 20 * M, "what the application holds is not idle");
    cr_assert(!slr_block_idle(slr_block_find(b).generation));
}

Test(blocks, memory_that_is_asked_for_again_is_not_idle)
{
    start_idle("2s");
    for (int i = 0; i < 3; i++) {
        give(take(10 * M));
        wait_idle();
    }
    cr_assert_eq(fake.allocs, 1);
    cr_assert_eq(stats().idle, 0);
}

Test(blocks, a_free_and_an_allocation_look_for_idle_memory_too)
{
    start_idle("100ms");
    CUdeviceptr a = take(10 * M), b = take(20 * M);
    give(a);
    usleep(150000);
    give(b);
    cr_assert_eq(fake.used, 20 * M);
    usleep(150000);
    take(30 * M);
    cr_assert_eq(fake.used, slr_class_size(30 * M));
}

Test(blocks, idle_memory_that_is_pinned_or_beside_a_capture_stays)
{
    start_idle("100ms");
    CUdeviceptr a = take(10 * M);
    uint64_t generation = slr_block_find(a).generation;
    cr_assert(slr_block_pin(generation));
    give(a);
    wait_idle();
    cr_assert(fake.used == 10 * M && slr_block_idle(generation));
    slr_block_unpin(generation);
    slr_block_captures(1);
    wait_idle();
    cr_assert_eq(fake.used, 10 * M);
    slr_block_captures(-1);
    fake.global_capture = true; /* unseen: in the relaxed mode it is allowed */
    wait_idle();
    cr_assert_eq(fake.used, 0);
}

Test(blocks, idle_memory_that_the_driver_does_not_take_stays)
{
    start_idle("100ms");
    CUdeviceptr a = take(10 * M);
    give(a);
    fake.async_result = CUDA_ERROR_NOT_SUPPORTED;
    wait_idle();
    cr_assert(fake.used == 10 * M && fake.streams == 0 && stats().kept_bytes == 10 * M);
    cr_assert_eq(take(10 * M), a);
}

Test(blocks, no_limit_keeps_memory)
{
    start_idle("0");
    give(take(10 * M));
    wait_idle();
    cr_assert_eq(fake.used, 10 * M);
}

Test(blocks, what_went_with_its_context_is_forgotten)
{
    fake_start("all", "1G", 1000 * M);
    CUdeviceptr a = take(10 * M), b = take(20 * M);
    give(a);
    slr_device_forget_released(0);
    cr_assert_eq(stats().blocks, 2, "the context lives");
    fake_reset();
    fake.active = 0;
    slr_device_forget_released(0);
    cr_assert_eq(stats().blocks, 0);
    cr_assert_eq(stats().used_bytes + stats().kept_bytes, 0);
    fake.active = 1;
    cr_assert_eq(slr_block_free(b), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(take(20 * M), a, "the driver begins anew");
    fake_reset(); /* unnoticed this time */
    CUdeviceptr c = take(30 * M);
    cr_assert_eq(slr_block_find(c + 25 * M).base, c);
    cr_assert_eq(stats().blocks, 1);
}
