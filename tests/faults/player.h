/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a fault test: a plain NCCL program that knows nothing of slipring, with data that every rank can compute
 * by itself, so that a gather is checked without another gather. Built on ../programs/ranks.h; started by launch.c. */
#ifndef TESTS_FAULTS_PLAYER_H
#define TESTS_FAULTS_PLAYER_H

#include "../programs/ranks.h"
#include "board.h"

#define HANG_STATUS 5 /* exit status: something that must end in time did not */

struct buffers {
    size_t shard, all; /* bytes */
    uint8_t *send, *recv, *host;
};

/* Rank, number of ranks, device; the unique id from rank 0. */
struct rank player_start(void);

void buffers_make(struct buffers *b, const struct rank *r, size_t shard);
void buffers_free(struct buffers *b);

/* Puts this rank's shard of `round` into send and poison into recv, by the rank's stream. */
void buffers_fill(const struct buffers *b, const struct rank *r, unsigned round);

/* Dies with status 1 unless recv holds every rank's shard of `round`. */
void buffers_check(const struct buffers *b, const struct rank *r, unsigned round);

/* Waits until the rank's stream is idle, or the communicator is in error. The error, if any, is the result; the stream
 * may then still be busy. Dies with HANG_STATUS after `ms`. */
ncclResult_t player_wait(const struct rank *r, int ms);

/* The same, and ncclInProgress when neither has happened after `ms`. */
ncclResult_t player_try(const struct rank *r, int ms);

/* Waits only for the stream, for instance after an error. */
void player_drain(const struct rank *r, int ms);

/* ncclAllGather of int8 and player_wait. */
ncclResult_t player_gather(const struct rank *r, const struct buffers *b, int ms);

int64_t player_ms(void);

#endif
