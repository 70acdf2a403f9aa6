/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory of the driver, as an allocator of an application makes it: one reservation, one or several allocations
 * mapped side by side. A call that fails once is made again: the tests let each fail in turn. */
#ifndef TESTS_REGISTER_VIRTUAL_H
#define TESTS_REGISTER_VIRTUAL_H

#include <cuda.h>
#include <stddef.h>

struct virtual
{
    CUdeviceptr p;
    size_t bytes; /* of all mappings */
    int parts;
    int types; /* CUmemAllocationHandleType */
};

/* `devices`: how many have access, from 0 on; 0: the current one only. */
void virtual_alloc(struct virtual *v, size_t bytes, int parts, int types, int devices);
void virtual_free(struct virtual *v);

/* Other physical memory at the same address. */
void virtual_remap(struct virtual *v);

#endif
