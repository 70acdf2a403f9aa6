/* SPDX-License-Identifier: Apache-2.0 */
/* The first GEMM of a thread synchronises its context, as a kernel that is loaded lazily does (SOFTGPU_LAZY). */
#include "gemm_case.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#define HOLDS_MS 100

static struct cu cu;
static CUstream held, free_stream;
static CUdeviceptr word, matrices;
static int returned;

static void write_word(uint32_t value)
{
    cr_assert_eq(cu.cuMemcpyHtoDAsync(word, &value, sizeof value, free_stream), 0);
    cr_assert_eq(cu.cuStreamSynchronize(free_stream), 0);
}

static void hold_a_stream(const char *rule)
{
    setenv("SOFTGPU_LAZY", rule, 1);
    cu = cu_load();
    cu_use(&cu, 0);
    cr_assert_eq(cu.cuMemAlloc(&word, 64), 0);
    cr_assert_eq(cu.cuMemAlloc(&matrices, 64), 0);
    cr_assert_eq(cu.cuStreamCreate(&held, CU_STREAM_NON_BLOCKING), 0);
    cr_assert_eq(cu.cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING), 0);
    write_word(0);
    cr_assert_eq(cu.cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_EQ), 0);
}

static void *multiply(void *handle)
{
    const float one = 1, zero = 0;
    float *m = (float *)matrices;
    cu_use(&cu, 0);
    for (int i = 0; i < 2; i++) /* the second one finds it loaded */
        cr_assert_eq(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, m, 1, m + 1, 1, &zero, m + 2, 1),
                     CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuStreamSynchronize(free_stream), 0);
    __atomic_store_n(&returned, 1, __ATOMIC_RELEASE);
    return NULL;
}

static pthread_t begin_first_gemm(void)
{
    cublasHandle_t handle;
    pthread_t thread;
    cr_assert_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasSetStream(handle, free_stream), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(pthread_create(&thread, NULL, multiply, handle), 0);
    return thread;
}

Test(lazy, the_first_gemm_of_a_thread_waits, .timeout = 60)
{
    hold_a_stream("1");
    pthread_t thread = begin_first_gemm();
    usleep(HOLDS_MS * 1000);
    cr_assert_eq(__atomic_load_n(&returned, __ATOMIC_ACQUIRE), 0, "it did not wait");
    write_word(1);
    pthread_join(thread, NULL);
}

Test(lazy, off_means_that_it_goes_on, .timeout = 60)
{
    hold_a_stream("0");
    pthread_join(begin_first_gemm(), NULL); /* while the other stream is held */
    cr_assert_eq(cu.cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    write_word(1);
}
