/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a pending gather, in the log: what has made its streams wait, and which GEMMs came behind
 * it and read something else. */
#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "kernels/gemm.h"
#include "plugin/comm/comm.h"
#include "plugin/pending/pending_state.h"
#include "plugin/util/consumer.h"

#define GEMM_FORM "m=%lld n=%lld k=%lld trans=%s recv=%p a=%p b=%p reads=%s read_bytes=%zu"
#define GEMM_VALUES(x)                                                                                                 \
    (long long)(x).gemm->m, (long long)(x).gemm->n, (long long)(x).gemm->k, (x).trans, (x).recv, (x).gemm->a,          \
        (x).gemm->b, (x).reads, (x).bytes

/* A GEMM and what it reads of the gather. */
struct reader {
    const struct slr_gemm *gemm;
    const void *recv;
    const char *reads;
    size_t bytes;
    char trans[SLR_CONSUMER_TEXT];
};

static struct reader reader_of(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_gemm *gemm)
{
    const struct slr_consumer name = {.m = gemm->m, .op = {(int32_t)gemm->transa, (int32_t)gemm->transb}};
    struct reader x = {.gemm = gemm, .recv = (const void *)(uintptr_t)g->recv};
    x.reads = slr_gemm_reads(gemm, g, lane->ring.nranks, &x.bytes);
    slr_consumer_trans_text(&name, x.trans);
    return x;
}

/* Not the addresses: they may be others in each iteration. */
static uint64_t key_of(const struct slr_lane *lane, const struct slr_gather *g, uint64_t kind,
                       const struct slr_operation *op)
{
    const struct slr_gemm *gemm = op->gemm;
    uint64_t key =
        slr_mix(slr_mix(kind, g->plan.shard), slr_comm_id(lane->comm) ^ 1 ^ (uint64_t)(uintptr_t)op->attribute);
    if (gemm)
        key = slr_mix(key, slr_mix((uint64_t)gemm->m << 32 ^ (uint64_t)gemm->n, (uint64_t)gemm->k));
    return key;
}

static void log_gemm(const struct slr_lane *lane, const struct slr_gather *g, enum slr_reason why,
                     const struct slr_operation *op)
{
    const size_t shard = g->plan.shard;
    const struct reader x = reader_of(lane, g, op->gemm);
    if (op->attribute)
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s attribute=%s " GEMM_FORM,
                lane->comm->name, lane->ring.rank, shard, slr_reason_name(why), op->who, op->attribute, GEMM_VALUES(x));
    else
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s " GEMM_FORM, lane->comm->name,
                lane->ring.rank, shard, slr_reason_name(why), op->who, GEMM_VALUES(x));
}

void slr_note_join(const struct slr_lane *lane, const struct slr_gather *g, enum slr_reason why,
                   const struct slr_operation *op)
{
    slr_count(why);
    if (!slr_log_enabled(SLR_LOG_INFO) || !slr_log_first(key_of(lane, g, (uint64_t)why, op)))
        return;
    if (op->gemm)
        log_gemm(lane, g, why, op);
    else
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s", lane->comm->name, lane->ring.rank,
                g->plan.shard, slr_reason_name(why), op->who);
}

void slr_note_overtaken(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_operation *op)
{
    if (!op->gemm || !slr_log_enabled(SLR_LOG_INFO) || !slr_log_first(key_of(lane, g, SLR_R_COUNT, op)))
        return;
    const struct reader x = reader_of(lane, g, op->gemm);
    slr_log(SLR_LOG_INFO, "overtaken", "comm=%s crank=%d shard=%zu by=%s " GEMM_FORM, lane->comm->name, lane->ring.rank,
            g->plan.shard, op->who, GEMM_VALUES(x));
}
