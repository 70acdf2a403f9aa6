/* SPDX-License-Identifier: Apache-2.0 */
/* When the all-gathers that NCCL makes run beside a GEMM of the application, they are given fewer
 * channels, so that NCCL's kernel leaves it more of the device (SLIPRING_TUNE_OVERLAP_CHANNELS).
 * Only what happens on a rank shows the overlap, but every rank has to give the same number of
 * channels at the same call, or the communicator hangs. So a rank proposes, and all change over at
 * one call that none of them has decided yet.
 *
 * Calls are the all-gathers of one communicator that NCCL asks its tuner about: the same sequence on
 * all ranks. comm/agreed_change.h has the protocol. There is one change, for good. */
#ifndef SLR_PLUGIN_TUNER_CHANNEL_LIMIT_H
#define SLR_PLUGIN_TUNER_CHANNEL_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include "plugin/comm/agreed_change.h"

#ifndef SLR_CHANNEL_LIMIT_AHEAD
#define SLR_CHANNEL_LIMIT_AHEAD 256u /* calls */
#endif
#define SLR_CHANNEL_LIMIT_WINDOW 16u /* gathers that a rank looks back on */

struct slr_channel_limit {
    struct slr_agreed agreed;
    uint32_t history; /* of the last gathers: 1 where a GEMM ran beside it */
    unsigned known;   /* how many of them */
};

void slr_channel_limit_init(struct slr_channel_limit *limit, struct slr_agreed_shared *shared, int rank, int nranks);

/* The next call. True: it gets fewer channels; all ranks return the same for the same call. */
bool slr_channel_limit_call(struct slr_channel_limit *limit);

/* A gather was passed while a GEMM ran beside it, or not. Proposes when half of the last ones did.
 */
void slr_channel_limit_seen(struct slr_channel_limit *limit, bool beside);

#endif
