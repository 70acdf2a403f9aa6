/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that a program registers with NCCL. */
#ifndef TESTS_REGISTER_BUFFERS_H
#define TESTS_REGISTER_BUFFERS_H

#include "zero.h"
#include "virtual.h"

enum how { HOW_NOT, HOW_REGISTER, HOW_WINDOW, HOW_GROUP }; /* GROUP: windows, between ncclGroupStart and End */
/* cudaMalloc, ncclMemAlloc, cudaMallocAsync; virtual memory in one piece, in several, and such that no other process
 * can be given */
enum memory { MEM_CUDA, MEM_NCCL, MEM_POOL, MEM_VIRTUAL, MEM_PIECES, MEM_PRIVATE };

struct plan {
    const char *name;
    enum how how;
    enum memory memory;
    bool send, recv; /* which of the two are registered */
    int rounds;
};

struct held {
    void *handle;
    ncclWindow_t window;
};

struct buffer {
    uint8_t *p;
    struct virtual v;
};

struct bench {
    struct rank *r;
    const struct plan *p;
    struct gather g;
    struct buffer send_buffer, recv_buffer;
    struct held send, recv;
    uint8_t *reference, *seen;
};

/* Buffers for shards of `shard` bytes. */
void bench_alloc(struct bench *b, size_t shard);
void bench_free(struct bench *b);

/* As the plan says. */
void bench_register(struct bench *b, ncclComm_t comm);
void bench_deregister(struct bench *b, ncclComm_t comm);

void buffer_alloc(enum memory kind, struct buffer *b, size_t bytes);
void buffer_free(enum memory kind, struct buffer *b);

/* A gather that the ranks come to one after the other, `first` first: each has returned from the call before the next
 * makes it. Checked by its data, and bit for bit against NCCL's own. */
void bench_gather(struct bench *b, ncclComm_t comm, int first, uint64_t seed);

/* Entries of /proc/self/fd. */
int open_files(void);

#endif
