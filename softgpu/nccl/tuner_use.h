/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithm, protocol and channels of a collective: chosen as NCCL 2.28 chooses them, with a tuner plugin if one is
 * loaded (v5 down to v2), and what they mean to the timing model.
 *
 * This NCCL has rings for all five collectives and trees for all-reduce, each with all three protocols, and 32
 * channels, of which it takes 8 by itself. Its cost table always finds ring and Simple cheapest. The data move the same
 * way whatever is chosen, but ranks that choose differently do not understand each other (exchange.c), as with NCCL.
 *
 * Modelled time, an invention for tests of tuning (not what any GPU does): the bytes that cross the link count by
 *
 *   protocol    LL 2.0    LL128 0.8    Simple 1.0
 *   algorithm   ring 1.0  tree 0.9
 *   channels    c <= 8: 8 / c    9..16: 0.9    more: 1.1
 *
 * so ring, Simple and 8 channels are as if there were no tuner, and the best is LL128 with 9 to 16 channels, by tree
 * where there is one. */
#ifndef SOFTGPU_NCCL_TUNER_USE_H
#define SOFTGPU_NCCL_TUNER_USE_H

#include <nccl.h>
#include "plugin/abi/tuner.h"

struct ncclComm;
struct op;

/* A communicator's tuner; `symbol` NULL: none. */
struct comm_tuner {
    const void *symbol;
    int version; /* place in the list of versions */
    void *context;
};

/* When the communicator has met its peers; and when it goes. */
ncclResult_t tuner_start(struct ncclComm *comm);
void tuner_stop(struct ncclComm *comm);

/* Sets the operation's algo, proto and channels. */
ncclResult_t tuner_choose(struct op *op);

/* By how much the bytes of the operation count in the timing model. */
double tuner_scale(const struct op *op);

#endif
