/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/program.h"

#include "base/counters.h"
#include "base/log.h"
#include "plugin/comm/comm.h"

bool slr_trial_record(CUevent *event, CUstream stream)
{
    if (!*event && slr_real.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        *event = NULL;
    return *event && slr_real.cuEventRecord(*event, stream) == CUDA_SUCCESS;
}

void slr_trial_drop(CUevent *event)
{
    if (*event)
        slr_real.cuEventDestroy(*event);
    *event = NULL;
}

#define RESOLUTION 0.002

void slr_blocks_open(struct slr_blocks *b, const struct slr_turns *turns)
{
    b->turns = *turns;
    b->upto = slr_trials_end(turns);
    b->begun = b->ended = 0;
}

void slr_blocks_call(struct slr_blocks *b, uint64_t number, CUstream stream)
{
    const uint64_t at = number - b->turns.after, block = at / b->turns.run;
    if (at % b->turns.run == 0 && block > 0 && slr_trial_record(&b->end[block - 1], stream))
        b->ended |= 1u << (block - 1);
    if (at % b->turns.run == SLR_DUEL_FIRST && slr_trial_record(&b->begin[block], stream))
        b->begun |= 1u << block;
}

bool slr_blocks_over(const struct slr_blocks *b, uint64_t next)
{
    if (next <= b->upto)
        return false;
    for (unsigned i = 0; i < 2 * b->turns.rounds; i++)
        if ((b->ended & 1u << i) && slr_real.cuEventQuery(b->end[i]) == CUDA_ERROR_NOT_READY)
            return false;
    return true;
}

void slr_blocks_read(const struct slr_blocks *b, float ms[2][SLR_TRIAL_ROUNDS])
{
    for (unsigned i = 0; i < 2 * SLR_TRIAL_ROUNDS; i++) {
        float *to = &ms[slr_duel_way(i)][i / 2];
        const bool known = i < 2 * b->turns.rounds && (b->begun & b->ended & 1u << i);
        if (!known || slr_real.cuEventElapsedTime(to, b->begin[i], b->end[i]) != CUDA_SUCCESS || *to < 0)
            *to = 0;
    }
}

void slr_blocks_close(struct slr_blocks *b)
{
    for (unsigned i = 0; i < SLR_BLOCKS; i++) {
        slr_trial_drop(&b->begin[i]);
        slr_trial_drop(&b->end[i]);
    }
}

void slr_blocks_slowest(float ms[2][SLR_TRIAL_ROUNDS], const float of_rank[2][SLR_TRIAL_ROUNDS], uint32_t rounds,
                        bool first)
{
    for (int way = 0; way < 2; way++)
        for (uint32_t i = 0; i < rounds; i++) {
            const float one = of_rank[way][i];
            const bool known = one > 0 && (first || ms[way][i] > 0);
            ms[way][i] = !known ? 0 : !first && ms[way][i] > one ? ms[way][i] : one;
        }
}

void slr_blocks_add(struct slr_block_pairs *pairs, float ms[2][SLR_TRIAL_ROUNDS], uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        const double ring = (double)ms[SLR_WAY_RING][i], nccl = (double)ms[SLR_WAY_NCCL][i];
        if (ring <= 0 || nccl <= 0)
            continue;
        const double less = 2 * (nccl - ring) / (nccl + ring), off = less - pairs->mean;
        pairs->n++;
        pairs->mean += off / pairs->n;
        pairs->squares += off * (less - pairs->mean);
    }
}

/* Student's t, one side, by degrees of freedom; beyond the last one it is taken for that. */
#define LEAST 8
static const double least[2][LEAST] = {{3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397},   /* 0.9 */
                                       {31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896}}; /* 0.99 */

int slr_blocks_judge(const struct slr_block_pairs *pairs, bool again)
{
    if (pairs->n < 2)
        return -1;
    const double t = least[again][pairs->n - 2 < LEAST ? pairs->n - 2 : LEAST - 1];
    if (pairs->mean * pairs->mean * pairs->n * (pairs->n - 1) <= pairs->squares * t * t ||
        (pairs->mean < RESOLUTION && pairs->mean > -RESOLUTION))
        return -1;
    return pairs->mean > 0 ? SLR_WAY_RING : SLR_WAY_NCCL;
}

/* By way, of the rounds of which both are known; 0: there are none. */
static void mean_of(const float ms[2][SLR_TRIAL_ROUNDS], uint32_t rounds, double mean[2])
{
    uint32_t n = 0;
    mean[SLR_WAY_RING] = mean[SLR_WAY_NCCL] = 0;
    for (uint32_t i = 0; i < rounds; i++)
        if (ms[SLR_WAY_RING][i] > 0 && ms[SLR_WAY_NCCL][i] > 0) {
            n++;
            for (int way = 0; way < 2; way++)
                mean[way] += ((double)ms[way][i] - mean[way]) / n;
        }
}

void slr_blocks_tell(const struct slr_comm *c, unsigned sites, const char *of, const struct slr_turns *turns,
                     const float ms[2][SLR_TRIAL_ROUNDS], const struct slr_block_pairs *pairs, int felt)
{
    const uint32_t calls = turns->run - SLR_DUEL_FIRST;
    double mean[2];
    mean_of(ms, turns->rounds, mean);
    if (of) {
        slr_log(SLR_LOG_INFO, "duel_of",
                "comm=%s crank=%d of=%s calls=%u with_ms=%.4f without_ms=%.4f rounds=%u less=%.4f by=%s", c->name,
                c->rank, of, calls, mean[SLR_WAY_RING], mean[SLR_WAY_NCCL], pairs->n, pairs->mean,
                felt == SLR_WAY_RING   ? "with"
                : felt == SLR_WAY_NCCL ? "without"
                                       : "none");
        return;
    }
    if (felt >= 0) {
        atomic_fetch_add(&slr_counters.felt, sites);
        atomic_fetch_add(&slr_counters.felt_calls, calls);
        atomic_fetch_add(&slr_counters.felt_ns, (uint64_t)(mean[felt] * 1e6));
        atomic_fetch_add(&slr_counters.felt_nccl_ns, (uint64_t)(mean[SLR_WAY_NCCL] * 1e6));
    }
    slr_log(SLR_LOG_INFO, "duel",
            "comm=%s crank=%d sites=%u calls=%u ring_ms=%.4f nccl_ms=%.4f rounds=%u less=%.4f by=%s", c->name, c->rank,
            sites, calls, mean[SLR_WAY_RING], mean[SLR_WAY_NCCL], pairs->n, pairs->mean,
            felt == SLR_WAY_RING   ? "ring"
            : felt == SLR_WAY_NCCL ? "nccl"
            : sites                ? "sites"
                                   : "none");
}
