/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder share. They know nothing of slipring: plain cudart, NCCL and cuBLAS, with exact
 * checks.
 *
 * A wrong byte is counted and printed, and the program goes on: no rank leaves its peers alone in a collective, so a
 * program with wrong results ends as fast as one with right ones. forms_run() ends with status 1 if any rank counted
 * one.
 */
#ifndef TESTS_FORMS_FORMS_H
#define TESTS_FORMS_FORMS_H

#include "../programs/ranks.h"

/* As ranks_run(), with the count of wrong results of all ranks in the exit status. */
int forms_run(int procs, int seconds, rank_body body, void *arg);

/* Thread-safe; prints the first few. */
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int wrong_count(void);
#define EXPECT(cond, ...) ((cond) ? (void)0 : wrong(__VA_ARGS__))

/* The data of shard `rank` in round `seed`: random bytes, or small integers as floats. */
void shard_fill(uint8_t *host, size_t bytes, uint64_t seed, int rank, bool floats);

/* A gather's buffers on the current device. `recv` holds `nranks` shards. */
struct gather {
    int rank, nranks;
    size_t shard; /* bytes */
    bool floats;  /* the data is small integers */
    uint8_t *send, *recv;
    uint8_t *host; /* nranks shards; pinned, so that copies from and to it are asynchronous */
};
void gather_alloc(struct gather *g, int rank, int nranks, size_t shard);
void gather_free(struct gather *g);

/* New data into `send`, poison into `recv`, in order on `stream`; does not wait for it. One round at a time. */
void gather_load(struct gather *g, uint64_t seed, cudaStream_t stream);
void gather_call(struct gather *g, ncclComm_t comm, cudaStream_t stream);

/* An operation of NCCL's own on all ranks. NCCL connects at its first one and waits for its peers there, also in a
 * capture: a rank that records a gather which slipring leaves to NCCL would wait for ranks whose gathers it takes. */
void nccl_connects(ncclComm_t comm, cudaStream_t stream);

/* Copies `recv` on `stream`, waits for it and compares all bytes with round `seed`. */
void gather_check(struct gather *g, uint64_t seed, cudaStream_t stream, const char *what);
void bytes_check(const struct gather *g, const uint8_t *host, uint64_t seed, const char *what);

/* `rounds` times load, call, check on one communicator: the shortest proof that it works. */
void comm_check(ncclComm_t comm, cudaStream_t stream, size_t shard, int rounds, const char *what);

/* What is put on the stream meanwhile; what it becomes, and the graph goes. */
void capture_begin(cudaStream_t stream);
cudaGraph_t capture_end(cudaStream_t stream);
cudaGraphExec_t graph_executable(cudaGraph_t graph);

/* The stream stands still for `ms`: what is called after it on other streams overtakes it. */
void hold(cudaStream_t stream, unsigned ms);

void sleep_ms(unsigned ms);

/* Runs body(&each[t]) on one thread for each of n elements of `size` bytes, and waits for all. */
void on_threads(int n, void *each, size_t size, void (*body)(void *one));

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

#endif
