/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/tuner/channel_limit.h"

void slr_channel_limit_init(struct slr_channel_limit *limit, struct slr_agreed_shared *shared, int rank, int nranks)
{
    *limit = (struct slr_channel_limit){
        .agreed = {
            .shared = shared, .rank = rank, .nranks = nranks, .ahead = SLR_CHANNEL_LIMIT_AHEAD, .place = UINT64_MAX}};
}

bool slr_channel_limit_call(struct slr_channel_limit *limit)
{
    uint64_t now = slr_agreed_call(&limit->agreed); /* which may move the place */
    return now >= limit->agreed.place;
}

void slr_channel_limit_seen(struct slr_channel_limit *limit, bool beside)
{
    /* Half of a window, as one GEMM beside a gather may be chance and the change is for good. */
    limit->history = (limit->history << 1 | beside) & ((1u << SLR_CHANNEL_LIMIT_WINDOW) - 1);
    limit->known += limit->known < SLR_CHANNEL_LIMIT_WINDOW;
    if (limit->agreed.changes > 0 || limit->known < SLR_CHANNEL_LIMIT_WINDOW ||
        2 * (unsigned)__builtin_popcount(limit->history) < SLR_CHANNEL_LIMIT_WINDOW)
        return;
    limit->known = 0; /* the next proposal only after as many gathers again */
    slr_agreed_propose(&limit->agreed);
}
