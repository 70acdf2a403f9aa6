/* SPDX-License-Identifier: Apache-2.0 */
/* N launches of a kernel or a graph, N allocations, also in the order of a stream, or N looks at a pointer, through the program's own binding (PLT), for counting instructions. */
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "fake/fake.h"

int cuLaunchKernel(FAKE_PARAMS);
int cuGraphLaunch(FAKE_PARAMS);
int cuMemAlloc_v2(FAKE_PARAMS);
int cuMemAllocAsync(FAKE_PARAMS);
int cuPointerGetAttribute(FAKE_PARAMS);

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    long n = atol(argv[2]);
    int sum = 0;
    if (strcmp(argv[1], "launch") == 0)
        for (long i = 0; i < n; i++)
            sum |= cuLaunchKernel(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, 6, 7) ^
                   FAKE_IX_cuLaunchKernel;
    else if (strcmp(argv[1], "graph") == 0)
        for (long i = 0; i < n; i++)
            sum |= cuGraphLaunch(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, 6, 7) ^
                   FAKE_IX_cuGraphLaunch;
    else if (strcmp(argv[1], "async") == 0)
        for (long i = 0; i < n; i++)
            sum |= cuMemAllocAsync(0, (size_t)1 << 30, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, 6, 7) ^
                   FAKE_IX_cuMemAllocAsync;
    else if (strcmp(argv[1], "pointer") == 0)
        for (long i = 0; i < n; i++)
            sum |= cuPointerGetAttribute(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, 6, 7) ^
                   FAKE_IX_cuPointerGetAttribute;
    else
        for (long i = 0; i < n; i++)
            sum |= cuMemAlloc_v2(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, 6, 7) ^
                   FAKE_IX_cuMemAlloc_v2;
    CHECK(sum == 0);
    return 0;
}
