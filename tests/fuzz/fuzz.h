/* SPDX-License-Identifier: Apache-2.0 */
/* A random program of one rank, made and run step by step.
 *
 * Two generators: what NCCL requires to be equal on all ranks (which steps are gathers, of what communicator, size and
 * type) is drawn from the seed alone, everything else from the seed and the rank. Both begin anew at each step, so a
 * step that is left out does not change what the others draw.
 *
 * No races, by construction: order.c keeps what each stream and the host have seen of each stream, and each buffer
 * which operations wrote and read it last. Before an operation uses a buffer, the edges that CUDA requires are made, by
 * an event, a wait of the host, or another way that is drawn.
 *
 * Two threads of a process are two such programs that share the device. What waits for the whole device is left out
 * there: two processes could wait for each other for ever, by CUDA's and NCCL's rules.
 *
 * No rounding: floats are integers, and a GEMM is made only where all sums are exact. What is not known to be small
 * integers (bytes that were gathered or copied across elements) only moves.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <cublasLt.h>
#include "../programs/fuse.h"
#include "../memory/zero.h"

/* Stream 0 is the legacy default stream: it always exists for the model, as blocking copies run on it. */
enum { LEGACY, STREAMS = 4, HOST = STREAMS, ACTORS, EVENTS = 5, COMMS = 2 };
enum { SENDS = 3, RECVS = 3, OUTS = 2, PINNEDS = 2, BUFFERS = SENDS + RECVS + OUTS + PINNEDS + 1 };
enum { FIRST_RECV = SENDS, FIRST_OUT = SENDS + RECVS, FIRST_PINNED = FIRST_OUT + OUTS, WEIGHT = BUFFERS - 1 };
enum { SMALL = 8 }; /* the largest integer that a GEMM takes and a matrix that is gathered holds */

/* Of each stream, the number of the last operation that is known to be complete, or ordered before what comes next. */
struct seen {
    uint64_t of[STREAMS];
};

struct stream {
    cudaStream_t handle;
    bool used, blocking;
    uint64_t issued;
};

struct event {
    cudaEvent_t handle;
    bool timing, recorded;
    int stream;
    struct seen seen;
};

struct buffer {
    char name[12];
    char *at;
    size_t bytes;
    bool host, pool; /* page-locked host memory; of cudaMallocAsync */
    bool wide;       /* elements are fp32 whatever the program's type */
    struct seen wrote, read;
    size_t clean; /* so many bytes from the start on are integers up to `bound` */
    double bound;
    /* A receive buffer's last gather, as a matrix of k rows; 0: none, or the bytes are no matrix. */
    int64_t k, columns;
    int stream; /* and its stream */
};

struct comm {
    ncclComm_t handle;
    int rank, nranks;
};

struct prog {
    struct rank *r;
    int thread;
    bool shared; /* with another thread: nothing that waits for, or is ordered with, all work of the device */
    bool pools;  /* all memory of the device is allocated in the order of streams, and often anew */
    uint64_t seed, uniform_key, uniform_n, local_key, local_n;
    uint64_t hash; /* of all that was read so far */
    int step, steps, device;
    FILE *list;
    enum api type;      /* elements: API_EX_BF16, API_EX_FP16 or API_S */
    size_t elem, shard; /* bytes; the largest shard */
    struct seen seen[ACTORS];
    struct seen behind_legacy; /* by the last operation on the legacy stream: what blocking streams are behind */
    struct stream stream[STREAMS];
    struct event event[EVENTS];
    struct buffer buffer[BUFFERS];
    struct buffer scratch; /* where cuBLAS has its workspace, set for each call; of no bytes: nowhere */
    struct comm comm[COMMS];
    int comms;
    char *source; /* page-locked small integers, never written again */
    size_t source_bytes;
    cublasHandle_t blas;
    cublasLtHandle_t lt;
};

/* Below n; equal on all ranks, or this rank's own. */
uint64_t uniform(struct prog *p, uint64_t n);
uint64_t draw(struct prog *p, uint64_t n);
#define ONE_IN(p, n) (draw(p, n) == 0)

/* A line of the operation list. */
void note(struct prog *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- order.c ---- */
void order_open(struct prog *p);
void order_close(struct prog *p);
int any_stream(struct prog *p);
/* The actor (a stream or HOST) is about to read or write `b`: makes the edges that are missing. All buffers of an
 * operation first, then issued(). */
void need(struct prog *p, int actor, struct buffer *b, bool write);
/* The operation is put on the stream: marks its buffers. NULL ends the lists. */
void issued(struct prog *p, int stream, struct buffer *const *reads, struct buffer *const *writes);
/* The same for a call of a group, in two parts: begin() for all calls, and this for each. Which of them is launched
 * first is not promised, so none is behind another by the legacy default stream's rules. */
void begin(struct prog *p, int stream);
void issued_in_group(struct prog *p, int stream, struct buffer *const *reads, struct buffer *const *writes);
#define LIST(...) ((struct buffer *const[]){__VA_ARGS__, NULL})
void host_saw(struct prog *p, int stream);
void seen_too(struct prog *p, int stream, int other); /* what the other stream waits for, or does, comes first */
/* One operation on streams and events alone. */
void order_step(struct prog *p);

/* ---- data.c ---- */
void data_open(struct prog *p);
void data_close(struct prog *p);
/* Small integers into n bytes at `off`, both multiples of the element, on `stream`. */
void fill(struct prog *p, struct buffer *b, size_t off, size_t n, int stream);
bool is_small(const struct buffer *b, size_t off, size_t n);
/* n bytes at `off` are now integers up to `bound` (or anything). */
void wrote(struct buffer *b, size_t off, size_t n, bool integers, double bound);
/* Reads the whole buffer, and tells its hash. */
void tell(struct prog *p, struct buffer *b);
/* One copy, fill, look at a buffer, or a free and a new allocation. */
void data_step(struct prog *p);

/* ---- multiply.c ---- */
/* A GEMM on a gathered matrix, one that slipring can fuse or nearly so, on the gather's stream or another. */
void multiply(struct prog *p, struct buffer *x);
/* One that could be fused, but for its result's place, from `off` on in `c`. */
void multiply_into(struct prog *p, struct buffer *x, struct buffer *c, size_t off);

#endif
