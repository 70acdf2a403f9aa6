/* SPDX-License-Identifier: Apache-2.0 */
/* What a NCCL kernel does here: every operation becomes a list of transfers over the communicator's channels, and all
 * transfers of a list make progress together, so no order of sends and receives can lock up. */
#include "../bulk.h"
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_PASSES 16 /* then the doorbell: ranks outnumber cores */
#define WAIT_MS 10
#define CONTROL_BYTES 4096

enum xfer_kind { XFER_SEND, XFER_RECV, XFER_REDUCE };

struct xfer {
    enum xfer_kind kind;
    int peer; /* XFER_REDUCE: all other ranks */
    char *ptr;
    size_t bytes, done;
    int finished;
    uint32_t sig;
    const char *own; /* XFER_REDUCE: this rank's contribution, `ptr` takes the result */
    ncclDataType_t type;
    ncclRedOp_t op;
};

struct run {
    struct ncclComm *comm;
    struct block *b;
    int rank, nranks, data, blind;
    struct xfer *xfers;
    size_t count, room;
    unsigned char *busy;  /* [2 * nranks]: an earlier transfer of this pass holds that direction of that peer */
    const void **sources; /* [nranks], for reductions */
};

static ncclResult_t add(struct run *r, struct xfer x)
{
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 32;
        struct xfer *grown = realloc(r->xfers, room * sizeof *grown);
        if (!grown)
            return ncclSystemError;
        r->xfers = grown;
        r->room = room;
    }
    r->xfers[r->count++] = x;
    return ncclSuccess;
}

/* Without data small blocks are copied all the same, as the driver does: they carry control words. */
static int moves(const struct run *r, size_t bytes)
{
    return r->data || bytes <= CONTROL_BYTES;
}

static size_t chunk_bytes(const struct run *r, const struct xfer *x)
{
    size_t left = x->bytes - x->done;
    return !moves(r, x->bytes) ? 0 : left < CHAN_CHUNK ? left : CHAN_CHUNK;
}

/* A transfer of no bytes (or without data) is still one chunk: the peers meet. */
static void advance(const struct run *r, struct xfer *x, size_t bytes)
{
    x->done += bytes;
    x->finished = !moves(r, x->bytes) || x->done == x->bytes;
}

static int step_send(struct run *r, struct xfer *x)
{
    struct chan *c = block_chan(r->b, r->rank, x->peer);
    int moved = 0;
    while (!x->finished) {
        uint64_t tail = atomic_load_explicit(&c->tail, memory_order_relaxed);
        if (tail - atomic_load_explicit(&c->head, memory_order_acquire) == CHAN_SLOTS)
            break;
        unsigned slot = tail % CHAN_SLOTS;
        size_t bytes = chunk_bytes(r, x);
        if (bytes)
            bulk_copy(c->data[slot], x->ptr + x->done, bytes);
        c->hdr[slot].total = x->bytes;
        c->hdr[slot].bytes = (uint32_t)bytes;
        c->hdr[slot].sig = x->sig;
        atomic_store_explicit(&c->tail, tail + 1, memory_order_release);
        block_ring(r->b, x->peer);
        advance(r, x, bytes);
        moved = 1;
    }
    return moved;
}

static int chunk_ready(struct run *r, int peer)
{
    struct chan *c = block_chan(r->b, peer, r->rank);
    return atomic_load_explicit(&c->tail, memory_order_acquire) != atomic_load_explicit(&c->head, memory_order_relaxed);
}

/* The next chunk from `peer` if it belongs to this transfer, else an error: the ranks called different things. */
static ncclResult_t take_chunk(struct run *r, const struct xfer *x, int peer, const void **data)
{
    struct chan *c = block_chan(r->b, peer, r->rank);
    unsigned slot = atomic_load_explicit(&c->head, memory_order_relaxed) % CHAN_SLOTS;
    if (c->hdr[slot].total != x->bytes || c->hdr[slot].sig != x->sig || c->hdr[slot].bytes != chunk_bytes(r, x))
        return nccl_warn(ncclInvalidUsage,
                         "rank %d expects %zu bytes of operation %#x from rank %d, which sends %llu of operation %#x",
                         r->rank, x->bytes, (unsigned)x->sig, peer, (unsigned long long)c->hdr[slot].total,
                         (unsigned)c->hdr[slot].sig);
    *data = c->data[slot];
    return ncclSuccess;
}

static void drop_chunk(struct run *r, int peer)
{
    atomic_fetch_add_explicit(&block_chan(r->b, peer, r->rank)->head, 1, memory_order_release);
    block_ring(r->b, peer);
}

static ncclResult_t step_recv(struct run *r, struct xfer *x, int *moved)
{
    while (!x->finished && chunk_ready(r, x->peer)) {
        const void *data;
        size_t bytes = chunk_bytes(r, x);
        ncclResult_t rc = take_chunk(r, x, x->peer, &data);
        if (rc != ncclSuccess)
            return rc;
        if (bytes)
            bulk_copy(x->ptr + x->done, data, bytes);
        drop_chunk(r, x->peer);
        advance(r, x, bytes);
        *moved = 1;
    }
    return ncclSuccess;
}

/* The first peer whose next chunk has not come, or -1. */
static int reduce_waits_for(struct run *r)
{
    for (int p = 0; p < r->nranks; p++)
        if (p != r->rank && !chunk_ready(r, p))
            return p;
    return -1;
}

/* In rank order, so that the result does not depend on who came first. */
static ncclResult_t step_reduce(struct run *r, struct xfer *x, int *moved)
{
    while (!x->finished && reduce_waits_for(r) < 0) {
        size_t bytes = chunk_bytes(r, x);
        for (int p = 0; p < r->nranks; p++) {
            ncclResult_t rc = ncclSuccess;
            if (p == r->rank)
                r->sources[p] = x->own + x->done;
            else
                rc = take_chunk(r, x, p, &r->sources[p]);
            if (rc != ncclSuccess)
                return rc;
        }
        if (bytes)
            reduce_block(x->type, x->op, r->sources, r->nranks, x->ptr + x->done, bytes / type_bytes(x->type));
        for (int p = 0; p < r->nranks; p++)
            if (p != r->rank)
                drop_chunk(r, p);
        advance(r, x, bytes);
        *moved = 1;
    }
    return ncclSuccess;
}

static ncclResult_t step(struct run *r, struct xfer *x, int *moved)
{
    if (x->kind == XFER_REDUCE)
        return step_reduce(r, x, moved);
    unsigned char *busy = &r->busy[2 * x->peer + (x->kind == XFER_RECV)];
    ncclResult_t rc = ncclSuccess;
    if (*busy)
        return ncclSuccess;
    if (x->kind == XFER_SEND)
        *moved |= step_send(r, x);
    else
        rc = step_recv(r, x, moved);
    *busy = !x->finished;
    return rc;
}

static ncclResult_t pass(struct run *r, int *moved, int *left)
{
    *moved = *left = 0;
    memset(r->busy, 0, 2 * (size_t)r->nranks);
    for (size_t i = 0; i < r->count; i++) {
        struct xfer *x = &r->xfers[i];
        ncclResult_t rc = x->finished ? ncclSuccess : step(r, x, moved);
        if (rc != ncclSuccess)
            return rc;
        *left += !x->finished;
    }
    return ncclSuccess;
}

/* A peer that has gone and without which a transfer can not go on, or -1. */
static int gone_peer(struct run *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct xfer *x = &r->xfers[i];
        int peer = x->finished ? -1 : x->kind == XFER_REDUCE ? reduce_waits_for(r) : x->peer;
        if (peer >= 0 && peer != r->rank && block_rank_gone(r->b, peer))
            return peer;
    }
    return -1;
}

static ncclResult_t check_ended(struct run *r)
{
    if (atomic_load(&r->comm->abort))
        return ncclInternalError;
    if (atomic_load(&r->comm->revoked))
        return ncclInvalidUsage;
    return atomic_load(&r->b->hdr->poison) ? ncclRemoteError : ncclSuccess;
}

/* A peer may deliver everything and then leave: only what is still missing after its end was seen is an error. */
static ncclResult_t check_peers(struct run *r, int *suspect)
{
    int gone = r->blind ? -1 : gone_peer(r); /* NCCL's kernels only look at flags in memory */
    if (gone >= 0 && *suspect)
        return nccl_warn(ncclRemoteError, "rank %d waits for rank %d, which died or left", r->rank, gone);
    *suspect = gone >= 0;
    return ncclSuccess;
}

static ncclResult_t run_xfers(struct run *r)
{
    int moved, left, idle = 0, suspect = 0;
    for (;;) {
        uint32_t seen = atomic_load(&block_me(r->b)->bell);
        ncclResult_t rc = check_ended(r);
        if (rc == ncclSuccess)
            rc = pass(r, &moved, &left);
        if (rc != ncclSuccess || !left)
            return rc;
        idle = moved ? 0 : idle + 1;
        if (moved) {
            suspect = 0;
        } else if (idle < SPIN_PASSES) {
            sched_yield();
        } else {
            if ((rc = check_peers(r, &suspect)) != ncclSuccess)
                return rc;
            if (!suspect)
                block_wait(r->b, seen, WAIT_MS);
        }
    }
}

/* ---- operations as transfers ---- */

/* What ranks that talk to each other have in common. */
static uint32_t signature(const struct op *op)
{
    if (op->kind == OP_SEND || op->kind == OP_RECV)
        return OP_SEND;
    return (uint32_t)op->kind | (uint32_t)op->algo << 8 | (uint32_t)op->proto << 12 | (uint32_t)op->channels << 16;
}

static ncclResult_t send_to(struct run *r, const struct op *op, int peer, const void *ptr, size_t bytes)
{
    return add(
        r, (struct xfer){.kind = XFER_SEND, .peer = peer, .ptr = (char *)ptr, .bytes = bytes, .sig = signature(op)});
}

static ncclResult_t recv_from(struct run *r, const struct op *op, int peer, void *ptr, size_t bytes)
{
    return add(r, (struct xfer){.kind = XFER_RECV, .peer = peer, .ptr = ptr, .bytes = bytes, .sig = signature(op)});
}

static ncclResult_t reduce_all(struct run *r, const struct op *op, const void *own, void *dst, size_t bytes)
{
    return add(r, (struct xfer){.kind = XFER_REDUCE,
                                .ptr = dst,
                                .own = own,
                                .bytes = bytes,
                                .sig = signature(op),
                                .type = op->type,
                                .op = op->redop});
}

static void copy_local(const struct run *r, void *dst, const void *src, size_t bytes)
{
    if (moves(r, bytes) && dst != src && bytes)
        bulk_copy(dst, src, bytes);
}

/* Peers in rank-shifted order: not everybody's first transfer has the same target. */
static int nth_peer(const struct run *r, int i)
{
    return (r->rank + i) % r->nranks;
}

static ncclResult_t to_all(struct run *r, const struct op *op, const char *base, size_t bytes, size_t stride)
{
    ncclResult_t rc = ncclSuccess;
    for (int i = 1; i < r->nranks && rc == ncclSuccess; i++) {
        int p = nth_peer(r, i);
        rc = send_to(r, op, p, base + (size_t)p * stride, bytes);
    }
    return rc;
}

static ncclResult_t from_all(struct run *r, const struct op *op, char *base, size_t bytes)
{
    ncclResult_t rc = ncclSuccess;
    for (int i = 1; i < r->nranks && rc == ncclSuccess; i++) {
        int p = nth_peer(r, r->nranks - i);
        rc = recv_from(r, op, p, base + (size_t)p * bytes, bytes);
    }
    return rc;
}

static ncclResult_t finish_xfers(struct run *r, ncclResult_t rc)
{
    if (rc == ncclSuccess)
        rc = run_xfers(r);
    r->count = 0;
    return rc;
}

/* Reduce-scatter of n parts that differ by at most one element, then all-gather of the results. */
static ncclResult_t all_reduce(struct run *r, const struct op *op)
{
    size_t esz = type_bytes(op->type), n = (size_t)r->nranks, base = op->count / n, extra = op->count % n;
    ncclResult_t rc = ncclSuccess;
#define PART_AT(p) (((size_t)(p)*base + ((size_t)(p) < extra ? (size_t)(p) : extra)) * esz)
#define PART_BYTES(p) ((base + ((size_t)(p) < extra)) * esz)
    size_t mine = PART_AT(r->rank);
    for (int i = 1; i < r->nranks && rc == ncclSuccess; i++) {
        int p = nth_peer(r, i);
        rc = send_to(r, op, p, (const char *)op->send + PART_AT(p), PART_BYTES(p));
    }
    if (rc == ncclSuccess)
        rc = reduce_all(r, op, (const char *)op->send + mine, (char *)op->recv + mine, PART_BYTES(r->rank));
    rc = finish_xfers(r, rc);
    for (int i = 1; i < r->nranks && rc == ncclSuccess; i++) {
        int p = nth_peer(r, i);
        rc = send_to(r, op, p, (char *)op->recv + mine, PART_BYTES(r->rank));
        if (rc == ncclSuccess)
            rc = recv_from(r, op, p, (char *)op->recv + PART_AT(p), PART_BYTES(p));
    }
    return finish_xfers(r, rc);
#undef PART_AT
#undef PART_BYTES
}

static ncclResult_t collective(struct run *r, const struct op *op)
{
    size_t bytes = op->count * type_bytes(op->type), at = (size_t)r->rank * bytes;
    const char *send = op->send;
    char *recv = op->recv;
    int is_root = r->rank == op->root;
    ncclResult_t rc = ncclSuccess;
    switch (op->kind) {
    case OP_ALL_GATHER:
        copy_local(r, recv + at, send, bytes);
        rc = to_all(r, op, send, bytes, 0);
        return rc == ncclSuccess ? from_all(r, op, recv, bytes) : rc;
    case OP_ALL_TO_ALL:
        copy_local(r, recv + at, send + at, bytes);
        rc = to_all(r, op, send, bytes, bytes);
        return rc == ncclSuccess ? from_all(r, op, recv, bytes) : rc;
    case OP_REDUCE_SCATTER:
        rc = to_all(r, op, send, bytes, bytes);
        return rc == ncclSuccess ? reduce_all(r, op, send + at, recv, bytes) : rc;
    case OP_REDUCE:
        return is_root ? reduce_all(r, op, send, recv, bytes) : send_to(r, op, op->root, send, bytes);
    case OP_BROADCAST:
        if (is_root)
            copy_local(r, recv, send, bytes);
        return is_root ? to_all(r, op, send, bytes, 0) : recv_from(r, op, op->root, recv, bytes);
    case OP_GATHER:
        if (is_root)
            copy_local(r, recv + at, send, bytes);
        return is_root ? from_all(r, op, recv, bytes) : send_to(r, op, op->root, send, bytes);
    case OP_SCATTER:
        if (is_root)
            copy_local(r, recv, send + at, bytes);
        return is_root ? to_all(r, op, send, bytes, bytes) : recv_from(r, op, op->root, recv, bytes);
    default:
        return ncclInternalError;
    }
}

static int is_p2p(const struct op *op)
{
    return op->kind == OP_SEND || op->kind == OP_RECV;
}

/* Collectives one after another in the order of the calls, then all sends and receives together. */
static ncclResult_t run_ops(struct run *r, const struct op *ops)
{
    ncclResult_t rc = check_ended(r);
    for (const struct op *op = ops; op && rc == ncclSuccess; op = op->next)
        if (op->kind == OP_ALL_REDUCE)
            rc = all_reduce(r, op);
        else if (!is_p2p(op))
            rc = finish_xfers(r, collective(r, op));
    for (const struct op *op = ops; op && rc == ncclSuccess; op = op->next) {
        size_t bytes = op->count * type_bytes(op->type);
        if (op->kind == OP_SEND)
            rc = send_to(r, op, op->root, op->send, bytes);
        else if (op->kind == OP_RECV)
            rc = recv_from(r, op, op->root, op->recv, bytes);
    }
    return finish_xfers(r, rc);
}

ncclResult_t exchange_run(struct ncclComm *comm, const struct op *ops, int data)
{
    struct run r = {.comm = comm,
                    .b = &comm->block,
                    .rank = comm->rank,
                    .nranks = comm->nranks,
                    .data = data,
                    .blind = softdrv_get()->nccl_blind()};
    r.busy = malloc(2 * (size_t)r.nranks);
    r.sources = malloc((size_t)r.nranks * sizeof *r.sources);
    ncclResult_t rc = r.busy && r.sources ? run_ops(&r, ops) : ncclSystemError;
    free(r.busy);
    free(r.sources);
    free(r.xfers);
    return rc;
}
