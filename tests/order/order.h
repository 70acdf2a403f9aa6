/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of order.c: one row for each way to look at a gather. */
#ifndef TESTS_FORMS_ORDER_H
#define TESTS_FORMS_ORDER_H

#include "forms.h"

#define SHARD ((size_t)256 << 10)
#define GEMM_K 64 /* rows of the gathered matrix of floats; its columns follow from SHARD */

#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            DIE(3, "%s: error %d", #call, (int)e_);                                                                    \
    } while (0)

/* Of the last two the streams are of other contexts (order_context.c). */
enum stream_kind { STREAM_OWN, STREAM_BLOCKING, STREAM_LEGACY, STREAM_PER_THREAD, STREAM_GREEN, STREAM_CREATED };
/* The host reads the next two without a CUDA call; of the last one `send` is likewise of another context. */
enum recv_kind { RECV_DEVICE, RECV_MAPPED, RECV_MANAGED, RECV_CREATED };

struct look {
    const struct order_case *c;
    struct gather g;
    ncclComm_t comm, comm2; /* the same ranks */
    cudaStream_t s, other, third;
    cudaEvent_t event;
    cublasHandle_t blas; /* where the case has floats */
    float *one;          /* the unit matrix, GEMM_K x GEMM_K */
    uint8_t *side, *seen, *device_send,
        *device_recv;        /* `side`: device, as large as recv; `seen`: pinned, what is checked in the end */
    void *pool;              /* stream-ordered memory, where the case takes some */
    volatile unsigned *flag; /* mapped */
    size_t all;              /* bytes of recv */
    uint64_t seed;
    bool late; /* this rank is the one that the others wait for */
};

struct order_case {
    const char *name;
    void (*look)(struct look *l); /* after the call: leaves in l->seen what a correct program sees, the whole gather */
    void (*before)(struct look *l);     /* well before the call */
    void (*on_the_way)(struct look *l); /* on the stream, behind the delay of a late rank */
    enum stream_kind stream;
    enum recv_kind recv;
    bool two_comms, floats;
    bool quiet; /* a missing join does not show: the whole device is waited for, slipring's streams too */
};

/* Each ends with a row without a name. */
extern const struct order_case order_host_cases[], order_stream_cases[], order_send_cases[], order_event_cases[],
    order_comm_cases[], order_group_cases[], order_overtake_cases[], order_small_cases[], order_context_cases[],
    order_thread_cases[], order_foreign_cases[];

/* Green contexts of the device, and one of cuCtxCreate: a stream of one of them, memory of the latter. */
void contexts_open(void);
cudaStream_t contexts_stream(bool is_green);
uint8_t *contexts_memory(size_t bytes);

/* seen <- device memory, on a stream, and waits for it. */
void see(struct look *l, const void *device, cudaStream_t stream);

/* side, or `to`, <- the gathered matrix times one: a GEMM whose result is its operand. */
void gemm_identity_open(struct look *l);
void gemm_identity_close(struct look *l);
void gemm_identity(struct look *l, const void *from, cudaStream_t stream);
void gemm_identity_to(struct look *l, const void *from, void *to, cudaStream_t stream);

#endif
