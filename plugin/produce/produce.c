/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/produce/produce.h"

#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/status.h"
#include "cache/captures.h"
#include "cache/handles.h"
#include "kernels/gemm.h"
#include "kernels/timing.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/produce/product.h"
#include "plugin/produce/product_parts.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"
#include "plugin/util/consumer.h"
#include "plugin/util/process.h"

enum {
    LATEST = 32, /* GEMMs that a reduce-scatter is compared with */
    PAIRS = 256, /* that are known */
    /* Reduce-scatters, the first ones, of what no GEMM has computed: then GEMMs are left alone. And for so many copies
     * are looked for. */
    UNMADE = 64,
    SURE = 4,    /* a pair may be wrong so many times more often than right */
    VAIN = 8,    /* parts that were cut in vain before a GEMM is left alone; one of so many has to be sent */
    NARROW = 64, /* columns: blocks have multiples of these */
    BLOCKS = 4,  /* of a shard, where nothing else is known, */
};
#define BLOCK_BYTES ((size_t)8 << 20) /* but of no fewer bytes */

struct pair {
    uint64_t gemm; /* slr_consumer_hash(); 0: free */
    CUcontext ctx; /* ranks may be threads of one process */
    struct slr_label comm;
    int rank;
    const struct slr_collective *kind;
    size_t shard;
    bool copied; /* what is sent is a copy of what the GEMM writes */
    bool apart;  /* that has been so, or what is received was written elsewhere: something may be early there */
    int balance; /* right more often than wrong, within bounds */
    /* GEMMs in parts, and those whose parts were sent. A buffer may be used again for what a copy makes: the GEMM has
     * written there, but long before. */
    uint64_t cut, sent;
};

struct seen {
    struct slr_consumer what;
    uint64_t gemm;
    CUcontext ctx;
    uintptr_t c;
    size_t bytes;
    bool copied; /* it has written elsewhere, and that was copied to c */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pair pairs[PAIRS];
static struct seen latest[LATEST];
static unsigned seen_count;
static enum { NOT_YET, WATCHING, GIVEN_UP } watch;
static unsigned unmade; /* UNMADE or more: does not matter any more */
static unsigned looked; /* calls for whose copies the gate is kept open */

/* ---- what is known; under the lock ---- */

static struct pair *pair_of(uint64_t gemm, CUcontext ctx)
{
    for (unsigned i = 0; i < PAIRS; i++)
        if (pairs[i].gemm == gemm && pairs[i].ctx == ctx)
            return &pairs[i];
    return NULL;
}

static void add_pair(const struct slr_call *call, const struct seen *writer)
{
    const uint64_t gemm = writer->gemm;
    const struct slr_comm *c = call->comm;
    struct pair *pair = pair_of(gemm, c->shared.ctx);
    if (!pair)
        pair = pair_of(0, NULL);
    if (!pair) /* as good as any */
        pair = &pairs[gemm % PAIRS];
    if (pair->gemm != gemm || pair->ctx != c->shared.ctx || pair->shard != call->shard ||
        pair->kind != call->flow->kind || memcmp(&pair->comm, &c->id, sizeof pair->comm) != 0)
        *pair = (struct pair){.gemm = gemm,
                              .ctx = c->shared.ctx,
                              .comm = c->id,
                              .rank = c->rank,
                              .kind = call->flow->kind,
                              .shard = call->shard};
    pair->copied = writer->copied;
    pair->apart |= pair->copied || (call->flow->kind->gets_all && call->send != call->recv);
    if (pair->balance < SURE)
        pair->balance++;
}

static bool in_vain(const struct pair *pair)
{
    return pair->cut >= VAIN && pair->sent * VAIN < pair->cut;
}

static void wrong(uint64_t gemm, CUcontext ctx)
{
    struct pair *pair = pair_of(gemm, ctx);
    if (pair && pair->balance > -SURE)
        pair->balance--;
}

static const struct seen *writer_of(CUcontext ctx, uintptr_t c, size_t bytes)
{
    for (unsigned i = 1; i <= LATEST && i <= seen_count; i++) {
        const struct seen *s = &latest[(seen_count - i) % LATEST];
        if (s->ctx == ctx && s->c == c && s->bytes == bytes)
            return s;
    }
    return NULL;
}

/* ---- learning ---- */

/* Under the lock. */
static void look_on(bool made)
{
    if (watch == NOT_YET) {
        watch = WATCHING;
        atomic_fetch_add(&slr_gemm_watch, SLR_GEMM_WATCH_PRODUCTS);
        atomic_fetch_add(&slr_gate_word,
                         1); /* so copies are seen; where they are made in parts, solo.c's keeps it so */
    }
    if (looked < UNMADE && ++looked == UNMADE)
        atomic_fetch_sub(&slr_gate_word, 1);
    if (made)
        unmade = UNMADE;
    if (unmade < UNMADE && ++unmade == UNMADE) {
        watch = GIVEN_UP;
        atomic_fetch_sub(&slr_gemm_watch, SLR_GEMM_WATCH_PRODUCTS);
    }
}

void slr_produce_learn(struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    pthread_mutex_lock(&lock);
    /* Parts are of equal shards. */
    const struct seen *writer = call->bytes == call->shard * (size_t)slr_comm_shards(c)
                                    ? writer_of(c->shared.ctx, (uintptr_t)call->send, call->bytes)
                                    : NULL;
    if (writer) {
        add_pair(call, writer);
        const struct pair *pair = pair_of(writer->gemm, c->shared.ctx);
        if (pair && !in_vain(pair))
            call->made = writer->what;
    }
    look_on(writer != NULL);
    pthread_mutex_unlock(&lock);
}

static void note_copy(const struct slr_observed *o)
{
    const CUcontext ctx = slr_stream_context(o->stream);
    pthread_mutex_lock(&lock);
    const struct seen *writer = writer_of(ctx, o->end[1], o->bytes);
    if (writer && !writer->copied) {
        struct seen copy = *writer;
        copy.c = o->end[0];
        copy.copied = true;
        latest[seen_count++ % LATEST] = copy;
    }
    pthread_mutex_unlock(&lock);
}

bool slr_produce_copy(const struct slr_observed *o, uint64_t joins, CUresult *answer)
{
    if (!o->bytes)
        return false;
    note_copy(o);
    *answer = CUDA_SUCCESS;
    return slr_product_copy(o, joins);
}

void slr_produce_right(const struct slr_product *p)
{
    pthread_mutex_lock(&lock);
    struct pair *pair = pair_of(p->key, p->ctx);
    if (pair)
        pair->sent++;
    pthread_mutex_unlock(&lock);
}

/* The communicator that is expected to send what the GEMM writes, held, and what is known of it; NULL: none. */
static struct slr_comm *expected(const struct slr_gemm *gemm, const struct slr_consumer *what, uint64_t name,
                                 CUcontext ctx, struct pair *out)
{
    *out = (struct pair){.rank = -1};
    pthread_mutex_lock(&lock);
    latest[seen_count++ % LATEST] =
        (struct seen){.what = *what,
                      .gemm = name,
                      .ctx = ctx,
                      .c = (uintptr_t)gemm->c,
                      .bytes = (size_t)gemm->m * (size_t)gemm->n * slr_gemm_type_bytes(gemm->ctype)};
    const struct pair *pair = pair_of(name, ctx);
    if (pair && pair->balance > -SURE && !in_vain(pair))
        *out = *pair;
    pthread_mutex_unlock(&lock);
    return out->rank < 0 ? NULL : slr_comm_find_id(&out->comm, out->rank);
}

/* ---- the GEMM ---- */

static int64_t width(int64_t cols, int64_t blocks, int64_t quantum)
{
    /* Without a pace (kernels/gemm_parts.h) nothing is too fine. */
    const int64_t least = slr_get(SLR_S_FLOP_PER_BYTE) ? NARROW : 1, step = least > quantum ? least : quantum;
    const int64_t w = (cols + blocks - 1) / blocks;
    const int64_t up = (w + step - 1) / step * step;
    return up < cols ? up : cols;
}

/* Of the peers' shards the one that is sent so many others behind the first; behind all of them the own one. Over hosts
 * those of the next host, and so on. */
static int shard_at(const struct slr_comm *c, int64_t i)
{
    const int host = (c->host + 1 + (int)(i / c->nranks)) % c->spans;
    return host * c->nranks + (c->rank + 1 + (int)(i % c->nranks)) % c->nranks;
}

/* Shard by shard, or `across`, a block of each in turn. */
static unsigned cut(struct slr_product *p, const struct slr_gemm *gemm, int64_t blocks, int64_t quantum, bool across)
{
    const int shards = slr_comm_shards(p->comm);
    const int64_t cols = gemm->n / shards, w = width(cols, blocks, quantum), each = (cols + w - 1) / w;
    const size_t col = (size_t)gemm->m * slr_gemm_type_bytes(gemm->ctype);
    const int64_t parts = each * shards;
    if (parts > SLR_PRODUCT_PARTS)
        return 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t at = (across ? i / shards : i % each) * w;
        p->part[i] = (struct slr_scatter_part){.shard = shard_at(p->comm, across ? i % shards : i / each),
                                               .at = (size_t)at * col,
                                               .bytes = (size_t)(at + w < cols ? w : cols - at) * col};
    }
    return (unsigned)parts;
}

static bool event_at(struct slr_product *p, unsigned i)
{
    return p->event[i] || SLR_CU(cuEventCreate, &p->event[i], CU_EVENT_DISABLE_TIMING) == SLR_OK;
}

static cublasStatus_t block(const struct slr_product *p, const struct slr_gemm *gemm, unsigned i, bool only_ask)
{
    const size_t col = (size_t)gemm->m * slr_gemm_type_bytes(gemm->ctype);
    const int64_t first =
        (int64_t)(((size_t)p->part[i].shard * (p->bytes / (size_t)slr_comm_shards(p->comm)) + p->part[i].at) / col);
    const int64_t cols = (int64_t)(p->part[i].bytes / col);
    if (only_ask)
        return slr_gemm_block_ready(gemm, first, cols) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    return slr_gemm_block(gemm, first, cols);
}

/* False: not all of it; then the whole GEMM does it again, which it can (slr_gemm_blocks). */
static bool compute(struct slr_product *p, const struct slr_gemm *gemm)
{
    bool good = true;
    for (unsigned i = 0; i < p->parts && good; i++)
        good = event_at(p, i) && block(p, gemm, i, true) == CUBLAS_STATUS_SUCCESS;
    const int room = p->comm->spans > 1 ? slr_gemm_leave_room(gemm, SLR_RAIL_BLOCKS) : -1;
    for (unsigned i = 0; i < p->parts && good; i++) {
        good = block(p, gemm, i, false) == CUBLAS_STATUS_SUCCESS;
        /* Before anything can go on behind the part. */
        slr_timing_did(p->timing, SLR_TRACK_APP, p->stream, SLR_SPAN_GEMM, -1, (int)i, 0);
        good = good && SLR_CU(cuEventRecord, p->event[i], p->stream) == SLR_OK;
        p->part[i].done = p->event[i];
    }
    if (room >= 0)
        slr_gemm_take_room(gemm, room);
    return good;
}

static void note(const struct slr_product *p, const struct slr_gemm *gemm, const struct slr_collective *kind)
{
    const struct slr_comm *c = p->comm;
    if (slr_log_enabled(SLR_LOG_INFO) &&
        slr_log_first(slr_mix(slr_mix(p->key, p->parts), slr_comm_id(c) ^ 5 ^ (uint64_t)kind->id << 3)))
        slr_log(SLR_LOG_INFO, "produced", "op=%s comm=%s crank=%d m=%lld n=%lld k=%lld shard=%zu parts=%u", kind->op,
                c->name, c->rank, (long long)gemm->m, (long long)gemm->n, (long long)gemm->k,
                p->bytes / (size_t)slr_comm_shards(c), p->parts);
}

/* What is captured is not tried. */
static uint32_t tried_blocks(struct slr_comm *c, const struct slr_gemm *gemm, CUstream stream, const struct pair *pair,
                             bool captured)
{
    if (slr_get(pair->kind->setting) != SLR_SCATTERS_AUTO)
        return SLR_TRIALS_BLOCKS;
    if (c->spans > 1)
        return atomic_load(&c->summing) ? SLR_TRIALS_BLOCKS : 0;
    return captured ? slr_trials_blocks_chosen(c, pair->shard, pair->kind, gemm)
                    : slr_trials_blocks(c, pair->shard, pair->kind, gemm, stream);
}

/* Of a shard. 0: the GEMM stays whole. */
static int64_t blocks_of(struct slr_comm *c, const struct slr_gemm *gemm, CUstream stream, const struct pair *pair,
                         bool captured)
{
    const size_t shard = pair->shard;
    const uint32_t tried = tried_blocks(c, gemm, stream, pair, captured);
    const uint64_t set = slr_get(SLR_S_PARTS) / (uint64_t)slr_comm_shards(c);
    if (set && tried)
        return (int64_t)set;
    if (tried != SLR_TRIALS_BLOCKS)
        return tried;
    if (!slr_get(SLR_S_FLOP_PER_BYTE) || shard >= BLOCKS * BLOCK_BYTES)
        return BLOCKS;
    return shard > BLOCK_BYTES ? (int64_t)(shard / BLOCK_BYTES) : 1;
}

/* Its parts, on the stream, and that they are a product. */
static bool put(struct slr_product *p, const struct slr_gemm *gemm, bool captured)
{
    if (p->parts == 0 || (captured && !slr_captured_begin(p)))
        return false;
    p->timing = (captured ? slr_timeline_capture_expect : slr_timeline_expect)(p->comm, p->stream);
    const bool good = compute(p, gemm);
    if (good)
        (captured ? slr_captured_end : slr_product_made)(p);
    return good;
}

static void fill(struct slr_product *p, const struct slr_gemm *gemm, CUstream stream, uint64_t name, size_t shard)
{
    p->key = name;
    p->ctx = p->comm->shared.ctx;
    p->stream = stream;
    p->c = (CUdeviceptr)(uintptr_t)gemm->c;
    p->copied = false;
    p->bytes = shard * (size_t)slr_comm_shards(p->comm);
    p->elem = slr_gemm_type_bytes(gemm->ctype);
    p->used[0] = slr_gemm_ranges(gemm);
    p->gemms = 1;
}

/* Under the communicator's lock. */
static bool produce(struct slr_comm *c, const struct slr_gemm *gemm, CUstream stream, const struct pair *pair,
                    int64_t quantum)
{
    const bool captured = slr_stream_may_capture(stream);
    const size_t most = slr_scatter_room(c, pair->shard); /* 0: it is being connected */
    if (most && pair->shard > most)                       /* its parts would not be sent */
        return false;
    if (captured && pair->copied) /* captured.c looks for C itself */
        return false;
    const int64_t blocks = blocks_of(c, gemm, stream, pair, captured);
    if (!blocks || slr_shared_work_begin(&c->shared) != SLR_OK)
        return false;
    struct slr_product *p = captured ? slr_captured_of(c) : slr_product_of(c);
    bool good = false;
    if (p) {
        fill(p, gemm, stream, pair->gemm, pair->shard);
        p->turn = pair->apart && !captured ? slr_solo_turn(stream) : 0;
        p->parts = cut(p, gemm, blocks, quantum, pair->kind->gets_all);
        good = put(p, gemm, captured);
    }
    if (good) {
        note(p, gemm, pair->kind);
        atomic_fetch_add(&slr_counters.scatters_produced, !captured); /* replays count */
    }
    if (p && captured)
        slr_captured_give_back(c, p);
    slr_shared_work_end();
    return good;
}

static bool stays_whole(const struct slr_comm *c, CUstream stream, size_t shard)
{
    return slr_reach_doubtful() || !slr_get(SLR_S_FUSE) || slr_get(SLR_S_STRICT) || slr_get(SLR_S_PARTS) == 1 ||
           slr_region_gemms() || stream == CU_STREAM_PER_THREAD ||
           (slr_stream_may_capture(stream) &&
            (c->spans > 1 || !slr_graphs_take(c, shard) || slr_captured_elsewhere(stream)));
}

bool slr_produce_gemm(struct slr_gemm *gemm, CUstream stream, CUcontext ctx, uint64_t joins, cublasStatus_t *result)
{
    struct pair known;
    if (slr_gemm_describe(gemm) != SLR_R_FUSED)
        return false;
    const struct slr_consumer what = slr_trials_name(gemm, SLR_CONSUMER_C);
    const uint64_t name = slr_consumer_hash(&what);
    struct slr_comm *c = expected(gemm, &what, name, ctx, &known);
    if (!c)
        return false;
    bool done = false;
    int64_t quantum;
    if (c->shared.ctx == ctx && c->pass == SLR_R_RING && atomic_load(&c->error) == ncclSuccess &&
        !stays_whole(c, stream, known.shard) && slr_gemm_blocks(gemm, slr_comm_shards(c), known.shard, &quantum)) {
        slr_lane_lock(c->lane);
        done = produce(c, gemm, stream, &known, quantum);
        if (c->product)
            c->product->joins = joins;
        slr_lane_unlock(c->lane);
        pthread_mutex_lock(&lock);
        wrong(name, ctx); /* until the call comes */
        struct pair *pair = done ? pair_of(name, ctx) : NULL;
        if (pair)
            pair->cut++;
        pthread_mutex_unlock(&lock);
    }
    slr_comm_put(c);
    if (done)
        *result = CUBLAS_STATUS_SUCCESS;
    return done;
}

/* A peer's GEMM could use the result's memory, and sends some parts before others are computed. */
static bool peers_reach(const struct slr_call *call)
{
    return slr_memory_given((CUdeviceptr)(uintptr_t)call->recv, call->bytes) ||
           slr_shared_any_in_one_process(&call->comm->shared);
}

bool slr_produce_unused(const struct slr_product *p, const struct slr_call *call, uint64_t joins)
{
    if (call->send == call->recv)
        return true;
    const bool stood_before = p->joins == joins && !p->allocated;
    const bool unused =
        stood_before && !peers_reach(call) && !slr_product_uses(p, (CUdeviceptr)(uintptr_t)call->recv, call->bytes);
    return unused && slr_stream_name(call->stream, false) == p->stream && slr_solo_still(p->stream, p->turn);
}

void slr_produce_close(struct slr_comm *c, bool gone)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < PAIRS; i++)
        if (pairs[i].gemm && pairs[i].rank == c->rank && memcmp(&pairs[i].comm, &c->id, sizeof c->id) == 0)
            pairs[i] = (struct pair){0};
    pthread_mutex_unlock(&lock);
    slr_captured_close(c, gone);
    slr_product_close(c, gone);
}
