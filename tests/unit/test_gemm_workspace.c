/* SPDX-License-Identifier: Apache-2.0 */
/* Which workspace a handle has. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include "kernels/gemm.h"

static bool full;
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return full ? NULL : __real_calloc(n, bytes);
}

enum { HANDLES = 1000 };
static char handles[HANDLES], memory[HANDLES];

static cublasHandle_t handle(int i)
{
    return (cublasHandle_t)(void *)&handles[i];
}

static bool has(int i, const void *p, size_t bytes)
{
    const struct slr_extent at = slr_workspace_of(handle(i));
    return at.begin == (uintptr_t)p && at.end == (uintptr_t)p + bytes;
}

TestSuite(gemm_workspace, .timeout = 30);

Test(gemm_workspace, of_each_handle)
{
    slr_workspace_reset(handle(0));
    slr_workspace_forget(handle(0));
    cr_expect(has(0, NULL, 0), "none at first");
    for (int i = 0; i < HANDLES; i++)
        slr_workspace_set(handle(i), &memory[i], 1 + (size_t)i);
    for (int i = 0; i < HANDLES; i += 3)
        slr_workspace_reset(handle(i));
    for (int i = 0; i < HANDLES; i += 5)
        slr_workspace_forget(handle(i));
    for (int i = 0; i < HANDLES; i++) {
        const bool none = i % 3 == 0 || i % 5 == 0;
        cr_expect(has(i, none ? NULL : &memory[i], none ? 0 : 1 + (size_t)i), "handle %d", i);
    }
    slr_workspace_set(handle(1), memory, 7);
    cr_expect(has(1, memory, 7), "another");
    for (int i = 0; i < HANDLES; i++)
        slr_workspace_forget(handle(i));
}

Test(gemm_workspace, all_memory_when_one_is_not_noted)
{
    slr_workspace_set(handle(0), memory, 1);
    full = true;
    slr_workspace_set(handle(0), memory, 2);
    cr_expect(has(0, memory, 2), "its entry is there");
    slr_workspace_set(handle(1), memory, 1);
    full = false;
    cr_expect_eq(slr_workspace_of(handle(1)).begin, 0);
    cr_expect_eq(slr_workspace_of(handle(1)).end, UINTPTR_MAX);
    slr_workspace_forget(handle(0));
}

/* A GEMM of this thread's with handle 0, which asks for it. */
static bool takes(bool sets)
{
    if (sets)
        slr_workspace_set(handle(0), memory, 1);
    slr_workspace_entered(handle(0));
    const bool taken = slr_workspace_take(handle(0));
    if (taken)
        slr_workspace_return(handle(0));
    slr_workspace_left(handle(0));
    return taken;
}

static void *enters(void *nothing)
{
    slr_workspace_entered(handle(0));
    return nothing;
}

static void *sets(void *nothing)
{
    slr_workspace_set(handle(0), memory, 1);
    return nothing;
}

static void elsewhere(void *(*does)(void *), void *arg)
{
    pthread_t t;
    cr_assert(!pthread_create(&t, NULL, does, arg) && !pthread_join(t, NULL));
}

/* GEMMs are not looked at before a handle is first asked for. */
static void unseen_gemm_with_a_workspace(void)
{
    slr_workspace_set(handle(0), memory, 1);
    slr_workspace_entered(handle(0));
    slr_workspace_left(handle(0));
}

Test(gemm_workspace, taken_when_given_for_each_gemm)
{
    unseen_gemm_with_a_workspace();
    cr_expect(!takes(true), "another thread may be in a GEMM that was not looked at");
    cr_expect(!takes(true), "no habit yet");
    cr_expect(takes(true));
    cr_expect(takes(true));
    cr_expect(!takes(false), "the one of the GEMM before");
    cr_expect(!takes(true), "the habit is broken");
    cr_expect(takes(true));
    slr_workspace_forget(handle(0));
    cr_expect(!takes(true) && takes(true), "another handle at its address");
}

Test(gemm_workspace, not_taken_beside_other_threads)
{
    cr_expect(!takes(true) && !takes(true) && takes(true));
    elsewhere(sets, NULL);
    cr_expect(!takes(false), "another thread's workspace");
    slr_workspace_forget(handle(0));
    cr_expect(!takes(true) && takes(true));
    slr_workspace_set(handle(0), memory, 1);
    elsewhere(enters, NULL);
    cr_expect(!takes(false), "another thread is in a GEMM");
    slr_workspace_left(handle(0));
    cr_expect(!takes(true) && !takes(true), "another thread has made one");
}
