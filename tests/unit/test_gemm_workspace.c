/* SPDX-License-Identifier: Apache-2.0 */
/* Which workspace a handle has. */
#include <criterion/criterion.h>
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
