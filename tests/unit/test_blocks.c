/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache on a fake driver: which block serves which request, what is kept, and what happens
 * when memory runs out. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "block_calls.h"
#include "cache/block_impl.h"

static void mark(CUdeviceptr p)
{
    slr_block_mark_collective(slr_block_find(p).generation);
}

Test(blocks, a_freed_block_serves_the_next_request_of_its_class)
{
    fake_start("all", "1G", 1000 * M);
    CUdeviceptr a = take(10 * M + 1);
    uint64_t generation = slr_block_find(a).generation;
    cr_assert_eq(fake_size_at(a), slr_class_size(10 * M + 1));
    give(a);
    cr_assert_eq(fake.syncs, 1);
    cr_assert_eq(take(12 * M), a);
    cr_assert_eq(slr_block_find(a).generation, generation);
    cr_assert_eq(fake.allocs, 1);
    cr_assert_eq(stats().hits, 1);
    cr_assert_eq(stats().misses, 1);
    cr_assert_eq(stats().used_bytes, 12 * M);
    cr_assert_eq(stats().kept_bytes, 0);
}

Test(blocks, what_is_below_the_threshold_or_elsewhere_is_the_drivers)
{
    CUdeviceptr p;
    fake_start("all", "1G", 1000 * M);
    give(take(M - 1));
    cr_assert_eq(fake.frees, 1);
    slr_guard = 1;
    give(take(10 * M));
    slr_guard = 0;
    cr_assert_eq(fake.frees, 2);
    fake.current = fake_other(0);
    give(take(10 * M));
    fake.current = NULL;
    give(take(10 * M));
    cr_assert_eq(fake.frees, 4);
    fake.current = fake_primary(0);
    cr_assert_eq(slr_block_alloc(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(slr_block_free(0), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(stats().misses + stats().hits, 0);
    cr_assert_eq(fake.used, 0);
}

Test(blocks, mode_off_keeps_nothing)
{
    fake_start("off", "1G", 1000 * M);
    give(take(10 * M));
    cr_assert_eq(fake.frees, 1);
    cr_assert_eq(fake.used, 0);
}

Test(blocks, mode_collective_keeps_only_marked_blocks_and_takes_no_more_than_asked)
{
    fake_start("collective", "1G", 1000 * M);
    CUdeviceptr a = take(33 * M), b = take(65 * M);
    cr_assert_eq(fake_size_at(a), 34 * M);
    mark(a);
    cr_assert(slr_block_find(a + 5).collective && !slr_block_find(b).collective);
    give(a);
    give(b);
    cr_assert_eq(fake.used, 34 * M);
    cr_assert_eq(slr_block_find(b).generation, 0);
    /* Too small for this request of the class; what comes now serves all of its sizes. */
    CUdeviceptr c = take(35 * M);
    cr_assert_neq(c, a);
    cr_assert_eq(fake_size_at(c), 36 * M);
    cr_assert_eq(take(34 * M), a);
}

Test(blocks, the_order_of_frees_does_not_change_who_gets_what)
{
    CUdeviceptr p[4];
    fake_start("all", "1G", 1000 * M);
    for (int i = 0; i < 4; i++)
        p[i] = take(20 * M);
    for (int i = 0; i < 4; i++)
        give(p[(i * 3 + 1) % 4]);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(take(20 * M), p[i]);
    CUdeviceptr x = take(40 * M), y = take(39 * M); /* one class */
    give(x);
    give(y);
    cr_assert_eq(take(39 * M), y);
    cr_assert_eq(take(40 * M), x);
}

Test(blocks, identity_is_not_the_address)
{
    fake_start("collective", "1G", 1000 * M);
    CUdeviceptr a = take(10 * M);
    struct slr_place first = slr_block_find(a + 100);
    cr_assert(first.generation && first.base == a && first.offset == 100 && first.size == 10 * M);
    give(a);
    cr_assert_eq(slr_block_find(a).generation, 0);
    cr_assert_eq(take(10 * M), a, "the fake driver gives the same address");
    struct slr_place second = slr_block_find(a);
    cr_assert_gt(second.generation, first.generation);
    cr_assert_eq(second.ordinal, first.ordinal + 1);
    cr_assert_eq(slr_block_find(a + 10 * M).generation, 0);
    cr_assert(!slr_block_pin(first.generation));
    fake.current = fake_primary(1);
    cr_assert_eq(slr_block_find(take(10 * M)).ordinal, 0);
}

Test(blocks, the_budget_bounds_what_is_kept)
{
    fake_start("all", "100M", 10000 * M);
    srand(7);
    for (int i = 0; i < 10000; i++) {
        give(take(M + (size_t)rand() % (60 * M)));
        cr_assert_leq(fake.used, 100 * M);
    }
    cr_assert_leq(fake.peak, 100 * M + slr_class_size(61 * M));
    cr_assert_leq(stats().peak_bytes, 200 * M);
    cr_assert_gt(stats().evictions, 0);
    give(take(200 * M)); /* larger than the budget */
    cr_assert_leq(fake.used, 100 * M);
}

Test(blocks, steady_sizes_outlive_sizes_that_come_once)
{
    fake_start("all", "200M", 10000 * M);
    CUdeviceptr a = take(40 * M), b = take(60 * M);
    uint64_t first = slr_block_find(a).generation, second = slr_block_find(b).generation;
    give(a);
    give(b);
    srand(3);
    for (int i = 0; i < 300; i++) {
        cr_assert_eq(take(40 * M), a);
        cr_assert_eq(take(60 * M), b);
        give(a);
        give(b);
        for (int k = 0; k < 4; k++)
            give(take(70 * M + (size_t)rand() % (25 * M)));
    }
    /* When they are not asked for any more, others take their place. */
    for (int i = 0; i < 300; i++)
        for (size_t n = 1; n < 8; n++)
            give(take((size_t)16 * M + n * 2 * M));
    cr_assert(!slr_block_pin(first) && !slr_block_pin(second));
}

Test(blocks, collective_blocks_go_last)
{
    fake_start("all", "64M", 10000 * M);
    CUdeviceptr a = take(32 * M);
    mark(a);
    give(a);
    for (int i = 0; i < 50; i++) {
        CUdeviceptr p = take(20 * M), q = take(30 * M);
        give(p);
        give(q);
    }
    cr_assert_eq(take(32 * M), a);
}

Test(blocks, kept_memory_is_free_memory)
{
    size_t free_bytes, total;
    fake_start("all", "1G", 100 * M);
    give(take(40 * M));
    cr_assert_eq(slr_block_mem_info(&free_bytes, &total), CUDA_SUCCESS);
    cr_assert(free_bytes == 100 * M && total == 100 * M);
    take(90 * M);
    cr_assert_eq(stats().trims, 1);
    cr_assert_eq(slr_block_mem_info(&free_bytes, &total), CUDA_SUCCESS);
    cr_assert_eq(free_bytes, 100 * M - fake.used);
}

Test(blocks, the_last_resort_is_not_rounded)
{
    fake_start("all", "1G", 33 * M);
    CUdeviceptr a = take(33 * M); /* its class has 36 MiB */
    cr_assert_eq(fake_size_at(a), 33 * M);
    give(a);
    cr_assert_eq(take(33 * M), a);
}

Test(blocks, pinned_blocks_stay)
{
    fake_start("collective", "1G", 100 * M);
    CUdeviceptr a = take(40 * M), p;
    uint64_t generation = slr_block_find(a).generation;
    cr_assert(slr_block_pin(generation) && slr_block_pin(generation));
    give(a);
    cr_assert_eq(fake_size_at(a), 40 * M);
    cr_assert_eq(slr_block_alloc(&p, 80 * M), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(slr_block_trim(-1, SIZE_MAX), 0);
    slr_block_unpin(generation);
    cr_assert_eq(fake_size_at(a), 40 * M);
    cr_assert_eq(take(40 * M), a);
    give(a);
    slr_block_unpin(generation);
    cr_assert_eq(fake.used, 0);
    slr_block_unpin(generation);
    cr_assert(!slr_block_pin(generation));
}

Test(blocks, a_free_that_the_driver_refuses_leaves_the_block_to_the_application)
{
    fake_start("all", "1G", 100 * M);
    CUdeviceptr a = take(10 * M);
    fake.sync_result = fake.free_result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cr_assert_eq(stats().used_bytes, 10 * M);
    slr_block_pin(slr_block_find(a).generation);
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    fake.free_result = CUDA_SUCCESS; /* pinned: not the driver's to free, even now */
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    slr_block_unpin(slr_block_find(a).generation);
    fake.sync_result = CUDA_SUCCESS;
    give(a);
    cr_assert_eq(slr_block_free(a), CUDA_ERROR_INVALID_VALUE, "a second free");
    fake.free_result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    cr_assert_eq(slr_block_trim(0, SIZE_MAX), 0);
    cr_assert_eq(take(10 * M), a);
}

Test(blocks, a_free_in_the_order_of_a_stream_is_the_drivers)
{
    fake_start("all", "1G", 1000 * M);
    CUdeviceptr a = take(10 * M);
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_SUCCESS);
    cr_assert_eq(fake.used, 0);
    cr_assert_eq(stats().used_bytes, 0);
    a = take(10 * M);
    fake.async_result = CUDA_ERROR_INVALID_VALUE;
    cr_assert_eq(slr_block_free_async(a, fake_stream, slr_real.cuMemFreeAsync), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(stats().used_bytes, 10 * M, "it is the application's still");
    give(a);
}

/* The same story under one failure after another: the application gets memory while the device has room. */
static void story(void)
{
    for (int i = 0; i < 40; i++) {
        CUdeviceptr a = take(40 * M + (size_t)i * M / 2), b = take(10 * M), c = take(20 * M);
        cr_assert(a + 40 * M <= b || b + 10 * M <= a);
        cr_assert(c + 20 * M <= b || b + 10 * M <= c);
        give(b);
        give(a);
        give(c);
        cr_assert_leq(stats().used_bytes + stats().kept_bytes, fake.used);
    }
}

Test(blocks, device_memory_runs_out_at_each_allocation)
{
    fake_start("all", "1G", 110 * M);
    story();
    int calls = fake.allocs;
    for (int n = 2; n <= calls; n++) { /* at the first there is nothing to give back */
        give(take(M));
        fake.fail_alloc = n;
        story();
    }
}

Test(blocks, host_memory_runs_out_at_each_allocation)
{
    fake_start("all", "1G", 1000 * M);
    for (int n = 1; n < 70; n++) {
        fake.fail_calloc = n;
        fake.fail_realloc = n % 3 + 1;
        story();
        CUdeviceptr p[70];
        for (int i = 0; i < 70; i++)
            p[i] = take(M);
        for (int i = 0; i < 70; i++)
            give(p[i]);
        slr_block_trim(0, SIZE_MAX);
        cr_assert_eq(fake.used, 0);
    }
}

Test(blocks, a_child_leaves_the_parents_blocks_alone)
{
    fake_start("all", "1G", 1000 * M);
    CUdeviceptr a = take(10 * M);
    give(a);
    CUdeviceptr held = take(20 * M);
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr p;
        int bad = slr_block_alloc(&p, 10 * M) != CUDA_SUCCESS || p == a || fake.allocs != 3;
        bad |= slr_block_free(held) != CUDA_SUCCESS || fake.frees != 1;
        bad |= slr_block_trim(0, SIZE_MAX) != 0;
        _exit(bad);
    }
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *worker(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    CUdeviceptr held[6] = {0};
    for (int i = 0; i < 3000; i++) {
        int k = rand_r(&seed) % 6;
        if (held[k]) {
            struct slr_place at = slr_block_find(held[k] + 17);
            if (at.base != held[k] || at.offset != 17 || !slr_block_pin(at.generation))
                return (void *)1;
            slr_block_mark_collective(at.generation);
            slr_block_unpin(at.generation);
            if (slr_block_free(held[k]) != CUDA_SUCCESS)
                return (void *)2;
            held[k] = 0;
        } else if (slr_block_alloc(&held[k], M + (size_t)rand_r(&seed) % (8 * M)) != CUDA_SUCCESS) {
            return (void *)3;
        }
    }
    for (int k = 0; k < 6; k++)
        if (held[k])
            slr_block_free(held[k]);
    return NULL;
}

Test(blocks, threads)
{
    pthread_t thread[4];
    fake_start("all", "60M", 4 * 6 * 10 * M + 20 * M); /* so tight that it has to be trimmed now and then */
    for (uintptr_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, worker, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        cr_assert_eq((uintptr_t)wrong, 0, "%d", (int)(uintptr_t)wrong);
    }
    cr_assert_eq(stats().used_bytes, 0);
    cr_assert_eq(stats().kept_bytes, fake.used);
    slr_block_trim(0, SIZE_MAX);
    cr_assert_eq(fake.used, 0);
}
