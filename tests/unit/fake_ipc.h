/* SPDX-License-Identifier: Apache-2.0 */
/* What the handle cache asks of a driver, besides fake_memory.h: legacy IPC and virtual memory that only count. */
#ifndef TESTS_UNIT_FAKE_IPC_H
#define TESTS_UNIT_FAKE_IPC_H

#include "fake_memory.h"

#define M ((size_t)1 << 20)

struct fake_ipc {
    int gets, opens, closes, maps, unmaps, reserves, frees, retains, releases; /* calls */
    bool fail_open, fail_close;
    const char *fail;           /* the name of the call of virtual memory that fails */
    void (*while_open)(void);   /* called inside cuIpcOpenMemHandle */
    void (*while_close)(void);  /* likewise */
    void (*while_range)(void);  /* inside cuMemGetAddressRange */
    void (*while_retain)(void); /* inside cuMemRetainAllocationHandle */
    int legacy;
    unsigned types;
    CUdeviceptr base;
    size_t size;
    unsigned pieces; /* mappings of this size from there on, one behind the other */
    size_t reserved; /* bytes of the reservation that begins there */
};
extern struct fake_ipc drv;

/* One allocation of 4 MiB is at drv.base: plain memory (drv.legacy), or a mapping that can be shared. */
void fake_ipc_start(void);

#endif
