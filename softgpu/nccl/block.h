/* SPDX-License-Identifier: Apache-2.0 */
/* The shared-memory block of one communicator: rendezvous, doorbells and the channels between its ranks.
 *
 * The memory is a memfd that belongs to nobody's name space: the unique id says which process holds it under which
 * descriptor, and the others open it through /proc/PID/fd. When the last process is gone, however it went, so is the
 * memory. All ranks must be in one PID name space. */
#ifndef SOFTGPU_NCCL_BLOCK_H
#define SOFTGPU_NCCL_BLOCK_H

#include "nccl_api.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BLOCK_SECRET_BYTES 16
#define CHAN_SLOTS 4
#define CHAN_CHUNK (128u << 10)

/* What an ncclUniqueId holds. */
struct block_id {
    uint64_t magic;
    int32_t pid, fd;
    unsigned char secret[BLOCK_SECRET_BYTES];
};
_Static_assert(sizeof(struct block_id) <= NCCL_UNIQUE_ID_BYTES, "must fit the unique id");

enum rank_state { RANK_ABSENT, RANK_HERE, RANK_LEFT, RANK_ABORTED };

/* What a rank tells the others when it arrives. */
struct rank_info {
    int32_t pid, device, share_gpu; /* share_gpu: this rank accepts another one on its GPU */
    uint64_t host_hash;
    unsigned char gpu_uuid[16];
    char bus_id[16];
};

/* One call of split or shrink: two of them, as a rank may begin the next while another still reads the last one. */
struct derive_slot {
    int32_t color, key;
    struct block_id child; /* written by the new communicator's first rank */
    _Atomic uint64_t child_seq;
};

struct rank_slot {
    _Atomic int32_t claimed, state;
    struct rank_info info;
    _Atomic uint64_t derive_seq;
    _Atomic uint64_t window_seq; /* registrations of windows that this rank has come to */
    _Atomic uint32_t connects;   /* kinds of collectives whose first one this rank has come to: connect.c */
    struct derive_slot derive[2];
    struct block_id grow;               /* made by this rank for ncclCommGrow */
    _Atomic uint64_t grow_seq;          /* for which call; written behind it */
    _Alignas(64) _Atomic uint32_t bell; /* rung after every change that this rank may be waiting for */
    _Atomic uint32_t sleeping;
};

/* A byte stream from one rank to another: `tail` counts the chunks written, `head` those read. */
struct chan {
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
    struct {
        uint64_t total; /* bytes of the whole message */
        uint32_t bytes; /* of this chunk */
        uint32_t sig;   /* which operation the message belongs to */
    } hdr[CHAN_SLOTS];
    _Alignas(4096) unsigned char data[CHAN_SLOTS][CHAN_CHUNK];
};

struct block_header {
    uint64_t magic;
    unsigned char secret[BLOCK_SECRET_BYTES];
    int32_t creator;
    _Atomic int32_t nranks; /* 0 until the first rank comes */
    _Atomic int32_t arrived, left;
    _Atomic int32_t poison; /* the error (ncclResult_t) that ended the communicator for all ranks */
};

struct block {
    struct block_header *hdr; /* the mapping */
    size_t bytes;
    int nranks, rank;
    struct rank_slot *slots;
    struct chan *chans; /* [from * nranks + to] */
    int *pidfds;        /* per rank; -1: this process */
    _Atomic unsigned char *dead;
};

ncclResult_t block_create(struct block_id *id);

/* Maps the block, takes the place of `rank` and returns when all ranks have done so, or with an error on every rank
 * that is still waiting. `abort_flag` ends the wait with ncclInternalError. */
ncclResult_t block_join(struct block *b, const struct block_id *id, int nranks, int rank, const struct rank_info *me,
                        const _Atomic int *abort_flag);

/* Tells the others that this rank has gone (RANK_LEFT or RANK_ABORTED) and unmaps; safe on a block never joined. */
void block_leave(struct block *b, enum rank_state how);
void block_unmap(struct block *b);

/* True once the process of `rank` has ended (a zombie too) or the rank has left the communicator. */
int block_rank_gone(struct block *b, int rank);

void block_ring(struct block *b, int rank);
void block_ring_all(struct block *b);

/* Waits until this rank's bell is no longer `seen`, at most `timeout_ms`. */
void block_wait(struct block *b, uint32_t seen, int timeout_ms);

/* Ends the communicator for all ranks with `error`; the first error stays. */
void block_poison(struct block *b, ncclResult_t error);

static inline struct rank_slot *block_me(struct block *b)
{
    return &b->slots[b->rank];
}

static inline struct chan *block_chan(struct block *b, int from, int to)
{
    return &b->chans[(size_t)from * (size_t)b->nranks + (size_t)to];
}

#endif
