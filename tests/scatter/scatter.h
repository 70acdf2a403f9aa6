/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM and the reduce-scatter that sends its output, again and again, as a training program calls them. Plain cudart,
 * NCCL and cuBLAS, which know nothing of slipring.
 *
 * A `site` is one such pair with its buffers. A `turn` is one time that it is called: new random integers, poisoned
 * outputs, and what every rank's buffers must hold, bit for bit. Turns are enqueued in bursts, without a wait of the
 * host in between, and compared at the burst's end.
 *
 * Integers are so small that matrices are exact in their type. Sums over ranks are exact in fp32, and rounded once.
 */
#ifndef TESTS_SCATTER_SCATTER_H
#define TESTS_SCATTER_SCATTER_H

#include "../order/forms.h"

enum { MOST_RANKS = 8, BURST = 3 };
enum elem { BF16, FP16, FP32 };
enum api { EX, EX64, SGEMM, HGEMM, LT, LT_BIAS, LT_FP8, BATCH_1 }; /* LT_FP8: A' and B are e4m3 */
enum recv_at { RECV_OWN, RECV_IN_PLACE, RECV_IN_A, RECV_IN_B, RECV_IN_WORKSPACE };

struct shape {
    const char *name;
    enum elem type;
    enum api api;
    bool ta, tb;
    int m, cols, k;  /* cols: of C, on each rank */
    int alpha, beta; /* alpha 0: 1 */
    int pad;         /* the last rows of C, which the GEMM leaves alone; not of LT */
    bool avg, device_scalars;
    enum recv_at recv;
    bool side;     /* the call is made on a second stream, told by an event */
    bool back;     /* and the first one waits for it at once; else before the next turn */
    int reach;     /* elements lie in [-reach, reach]; 0: 2 */
    bool in_order; /* sums are not exact: fp32, in the order of the ranks */
};

struct world {
    int rank, nranks;
    bool threads;              /* the ranks are threads of one process */
    bool all;                  /* the calls are all-reduces: every rank gets all shards' sums */
    ncclComm_t comm, reversed; /* `reversed`: the same ranks in the other order */
    cudaStream_t s, side, third;
    cudaStream_t blocking[2]; /* these are not non-blocking */
    cudaEvent_t event[4];
    cublasHandle_t blas;
    void *lt, *workspace;
    uint64_t drawn;
};

struct site {
    struct world *w;
    struct shape shape;
    int n;
    size_t elem, count, all, got;                       /* bytes of an element; elements of a shard, of C, received */
    int scale;                                          /* all values are multiples of it */
    uint8_t *a, *b, *c, *bias, *recv, *spare, *scratch; /* spare, scratch: as large as C */
    uint8_t *zeros;                                     /* NULL, or likewise */
    float *scalars;
    uint64_t turns;
};

/* Integers of one turn: what all ranks' C (before the call), product of the GEMM alone, and spare hold. */
struct turn {
    struct site *t;
    uint64_t seed;
    int *c[MOST_RANKS], *product[MOST_RANKS], *spare[MOST_RANKS];
    uint8_t *in, *out;                          /* pinned: what is loaded; recv, C and scratch as they are fetched */
    uint8_t *want_recv, *want_c, *want_scratch; /* NULL: not looked at */
    bool poisoned;                              /* no call came */
};

/* ---- scatter_site.c ---- */
void site_open(struct site *t, struct world *w, const struct shape *shape);
void site_close(struct site *t);
void site_call(struct site *t, cudaStream_t stream);
/* The first element of C whose sum this rank gets; it gets `got`. */
size_t site_first(const struct site *t);
/* A reduce-scatter of `count` elements for each rank; or an all-reduce of all of them. */
ncclResult_t world_reduce(struct world *w, const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

void turn_open(struct turn *u, struct site *t);
void turn_close(struct turn *u);
/* New data on the device, in order on the stream, and what the GEMM makes of it. */
void turn_load(struct turn *u, cudaStream_t stream);
/* The integers of the first `count` elements that this rank gets of `from`, beginning at `at`; as rank `me` of the
 * communicator whose ranks are turned around or not. */
void turn_expect(struct turn *u, int *const *from, size_t at, size_t count, bool turned);
void turn_expect_c(struct turn *u);
void turn_fetch(struct turn *u, cudaStream_t stream);
/* The host has waited. */
void turn_check(struct turn *u, const char *what);

size_t elem_bytes(enum elem type);
ncclDataType_t nccl_type(enum elem type);
void elem_put(enum elem type, uint8_t *to, size_t i, double value);
int integer(uint64_t seed, uint64_t i, int reach);

/* What is on `from` now comes before what `to` does next. */
void edge(struct world *w, int event, cudaStream_t from, cudaStream_t to);

/* ---- scatter_gemm.c ---- */
void gemm_open(struct world *w);
void gemm_close(struct world *w);
/* Columns [first, first + n) of C from as many columns of op(B), beginning at `from`, with another beta or the shape's
 * own (-1). */
void site_gemm_part(struct site *t, int from, int first, int n, int beta, cudaStream_t stream);
void site_gemm(struct site *t, cudaStream_t stream);
/* Another one: so many elements of `to`, as many of `from` times the first of these. */
void other_gemm(struct site *t, const void *from, void *to, int rows, cudaStream_t stream);

/* ---- cases ---- */
struct scatter_case {
    const char *name, *list;
    void (*body)(struct world *w, const struct scatter_case *c);
    const void *arg;
    int ranks; /* at least */
};
/* Each ends with a row without a name. */
extern const struct scatter_case form_cases[], plain_cases[], between_cases[], instead_cases[], look_cases[],
    group_cases[], unlike_cases[], loop_cases[], reuse_cases[], tried_cases[], graph_cases[], graph_wrong_cases[],
    meet_cases[], end_cases[], changed_cases[], kept_cases[], copy_cases[];

/* ---- scatter_forms.c ---- */

/* GEMM and call, as the shape says; the stream on which the result is ready. */
cudaStream_t turn_play(struct turn *u);
/* So many turns, in bursts. */
void site_play(struct site *t, int turns, const char *what);

/* A shape that most cases use. */
extern const struct shape usual;

#endif
