/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that others may reach: whole allocations, for good, and all when it is not known which. */
#include <criterion/criterion.h>
#include "cache/handles.h"

/* Each megabyte is an allocation, but what lies at 0. */
static CUresult range(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    *base = p >> 20 << 20;
    *size = 1 << 20;
    return *base ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUdeviceptr mb(unsigned n)
{
    return (CUdeviceptr)n << 20;
}

static void open_given(void)
{
    slr_real.cuMemGetAddressRange = range;
}

TestSuite(given, .init = open_given);

Test(given, nothing_is_at_first)
{
    cr_assert_not(slr_memory_given(0, (size_t)-1));
}

Test(given, the_whole_allocation_is)
{
    slr_memory_gives(mb(3) + 5);
    cr_assert(slr_memory_given(mb(3), 1));
    cr_assert(slr_memory_given(mb(4) - 1, 1));
    cr_assert(slr_memory_given(mb(1), (size_t)mb(2) + 1));
    cr_assert_not(slr_memory_given(mb(1), (size_t)mb(2)));
    cr_assert_not(slr_memory_given(mb(4), 1));
}

Test(given, the_same_again_takes_no_room)
{
    for (int i = 0; i < 1000; i++) {
        slr_memory_gives(mb(3));
        slr_memory_gives_range(mb(7) + 1, 10);
    }
    cr_assert(slr_memory_given(mb(7) + 10, 1));
    cr_assert_not(slr_memory_given(mb(7) + 11, 1));
    cr_assert_not(slr_memory_given(mb(100), 1));
}

Test(given, more_than_can_be_kept_is_all)
{
    for (unsigned i = 1; i <= 256; i++)
        slr_memory_gives(mb(2 * i));
    cr_assert(slr_memory_given(mb(512), 1));
    cr_assert_not(slr_memory_given(mb(5), 1));
    slr_memory_gives(mb(1001));
    cr_assert(slr_memory_given(mb(5), 1));
}

Test(given, what_can_not_be_found_is_all)
{
    slr_memory_gives(5);
    cr_assert(slr_memory_given(mb(9), 1));
}
