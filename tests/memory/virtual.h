/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory of the driver, as an allocator of an application makes it: one reservation, one or several allocations
 * mapped side by side. A call that fails once is made again: the tests let each fail in turn. */
#ifndef TESTS_REGISTER_VIRTUAL_H
#define TESTS_REGISTER_VIRTUAL_H

#include <cuda.h>
#include <stddef.h>

#define GRANULARITY ((size_t)2 << 20)

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

/* As PyTorch's expandable segments: a reservation, of which parts of one granularity each are mapped and unmapped. */
void virtual_reserve(struct virtual *v, int parts);
void virtual_map_parts(const struct virtual *v, int first, int parts);
void virtual_unmap_parts(const struct virtual *v, int first, int parts);

/* Other physical memory at the same address. */
void virtual_remap(struct virtual *v);

#endif
