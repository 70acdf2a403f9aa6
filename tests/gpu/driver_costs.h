/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of driver_costs share: driver_costs.c times and prints, driver_costs_rows.c is what is timed,
 * driver_costs_gpus.c makes the contexts, memory and streams for it. One thread. The context of gpu[0] is current but
 * inside a row that works on both. A call that fails ends the program.
 */
#ifndef TESTS_GPU_DRIVER_COSTS_H
#define TESTS_GPU_DRIVER_COSTS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MIB = 1 << 20, WORD_STRIDE = 128 };

/* What a row, or a part, needs besides one device. */
enum { PEER = 1, BATCH = 2, KERNEL = 4 };

/* Copies go from a device's `from` to a device's `to`; streams of gpu[0] make them. */
extern struct gpu {
    CUcontext ctx;
    CUdeviceptr from, to, words; /* every device that is used may read and write them */
    CUstream high[2], low;       /* by priority */
} gpu[2];

/* Page-locked memory of words WORD_STRIDE bytes apart. Word 0 is the gate: streams are held by it, the host opens it. */
extern CUdeviceptr host_words;
extern _Atomic uint32_t *gate;

/* What a row of a table enqueues, without waiting for it. */
struct row {
    const char *name;
    void (*enqueue)(void);
    unsigned needs;
    int count; /* operations or copies of one driver call; in device_rows: steps that are enqueued */
};

/* Set before a row is enqueued. */
extern struct load {
    size_t bytes; /* of all copies of one driver call; at most `largest` as devices_open got it */
    int count;    /* of the row */
} load;

struct rows {
    const struct row *row;
    int n;
};
extern const struct rows duplex_rows, host_rows, device_rows, behind_rows;

/* Makes gpu[0], and gpu[1] if there are two devices with access to each other. Returns PEER and KERNEL, or what of them
 * there is; says on stdout why something is missing. Ends the program with 77 where there is no driver. */
unsigned devices_open(size_t largest);

/* The context of a device becomes the current one. */
void on(int device);

/* So many blocks, each of which runs for so many cycles. Only with KERNEL. */
void launch(CUstream stream, unsigned blocks, unsigned threads, uint64_t cycles);

/* After devices_open. Returns BATCH, or 0 and says so on stdout. */
unsigned rows_open(void);

#endif
