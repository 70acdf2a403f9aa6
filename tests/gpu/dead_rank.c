/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of dead.c: a plain NCCL and cuBLAS program whose data every rank can compute by itself. */
#include "dead_other.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "tests/programs/ranks.h"

enum { CHUNK = 32 << 20, LOOK_COLUMNS = 4, LOOK_ROWS = 16 };
#define START_US 90000000 /* CUDA's and NCCL's start, on a machine that is busy */
#define SETTLE_US 300000  /* after the error, for a stream that would complete by it */
#define DRAIN_US 5000000

struct slot {
    uint8_t *send, *recv, *c, *host;
    cudaEvent_t done;
    int round;   /* whose data it holds */
    bool queued; /* and not looked at yet */
};

struct player {
    struct rank r;
    struct dead_page *page;
    const struct dead_plan *plan;
    const struct dead_load *load;
    struct dead_outcome *out;
    bool victim;
    size_t shard, all; /* bytes */
    cublasHandle_t blas;
    uint8_t *a, *seen; /* A; pinned, what is looked at */
    cudaStream_t look; /* not the stream that may be held */
    struct slot slots[DEAD_SLOTS];
    struct dead_other other;
};

/* --- data: four bf16 in each word, -1, 0 or 1, so that sums are exact ------------------------------------------------
 */

static uint64_t seed_of(const struct player *p, int owner, int round)
{
    return hash64((uint64_t)p->plan->seed * 64 + (uint64_t)owner, (uint64_t)round);
}

static uint64_t word_of(uint64_t seed, size_t word)
{
    static const uint16_t values[4] = {0, 0x3f80, 0xbf80, 0};
    uint64_t bits = hash64(seed, word), w = 0;
    for (int i = 0; i < 4; i++)
        w |= (uint64_t)values[bits >> (2 * i) & 3] << (16 * i);
    return w;
}

static float as_float(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float element(uint64_t seed, size_t i)
{
    return as_float((uint16_t)(word_of(seed, i / 4) >> (16 * (i % 4))));
}

static uint64_t weight_seed(const struct player *p)
{
    return seed_of(p, 63, 0);
}

/* --- the page --------------------------------------------------------------------------------------------------------
 */

static void trouble(struct player *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!p->out->trouble[0])
        vsnprintf(p->out->trouble, sizeof p->out->trouble, format, args);
    va_end(args);
}

static void reach(struct player *p, uint32_t mark)
{
    if (atomic_load(&p->page->mark[p->r.rank]) < mark)
        atomic_store(&p->page->mark[p->r.rank], mark);
}

static bool wait_word(const _Atomic uint32_t *word, uint32_t value, int64_t us)
{
    for (int64_t end = dead_now() + us; atomic_load(word) < value;) {
        if (dead_now() > end)
            return false;
        dead_sleep(200);
    }
    return true;
}

static int64_t since_signal(const struct player *p)
{
    int64_t struck = atomic_load(&p->page->struck_us);
    return struck ? dead_now() - struck : 0;
}

/* --- one round -------------------------------------------------------------------------------------------------------
 */

static void fill(struct player *p, struct slot *s, int round)
{
    uint64_t seed = seed_of(p, p->r.rank, round), *words = (uint64_t *)s->host;
    for (size_t i = 0; i < p->shard / 8; i++)
        words[i] = word_of(seed, i);
    CUDA(cudaMemcpyAsync(s->send, s->host, p->shard, cudaMemcpyHostToDevice, p->r.stream));
    CUDA(cudaMemsetAsync(s->recv, 0xa5, p->all, p->r.stream));
    s->round = round;
}

static cublasStatus_t gemm(struct player *p, struct slot *s)
{
    const struct dead_load *l = p->load;
    float one = 1, zero = 0;
    int m = (int)l->m, n = (int)l->columns * DEAD_RANKS, k = (int)l->k;
    return cublasGemmEx(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, p->a, CUDA_R_16BF, m, s->recv, CUDA_R_16BF, k,
                        &zero, s->c, CUDA_R_16BF, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static void told(struct player *p, bool by_call)
{
    if (p->out->told_us != DEAD_NOT_TOLD)
        return;
    p->out->told_us = since_signal(p);
    p->out->told_by_call = by_call;
}

/* False: it returned an error. */
static bool call_now(struct player *p, struct slot *s)
{
    ncclResult_t e = ncclAllGather(s->send, s->recv, p->shard / 2, ncclBfloat16, p->r.comm, p->r.stream);
    if (e != ncclSuccess) {
        told(p, true);
        return false;
    }
    for (int i = 0; p->load->gemm && i < 1 + (p->victim ? 0 : p->load->more); i++) {
        const cublasStatus_t done = gemm(p, s);
        if (done == CUBLAS_STATUS_EXECUTION_FAILED && since_signal(p)) {
            told(p, true);
            return false;
        }
        BLAS(done);
    }
    CUDA(cudaEventRecord(s->done, p->r.stream));
    s->queued = true;
    reach(p, DEAD_CALLED);
    return true;
}

/* False: so did it, or another thread has aborted. */
static bool call(struct player *p, struct slot *s)
{
    dead_calls_begin(&p->other);
    const bool good = call_now(p, s);
    return dead_calls_end(&p->other) && good;
}

/* Device memory to `seen`, on the other stream. False: it does not come. */
static bool fetch(struct player *p, const uint8_t *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(p->seen, from, bytes, cudaMemcpyDeviceToHost, p->look));
    for (int64_t end = dead_now() + DRAIN_US; cudaStreamQuery(p->look) == cudaErrorNotReady;)
        if (dead_now() > end) {
            trouble(p, "a copy on another stream does not end");
            return false;
        }
    CUDA(cudaStreamQuery(p->look));
    return true;
}

/* Number of wrong words of what was gathered. */
static size_t wrong_words(struct player *p, const struct slot *s)
{
    const uint64_t seeds[DEAD_RANKS] = {seed_of(p, 0, s->round), seed_of(p, 1, s->round)};
    size_t wrong = 0;
    for (size_t at = 0, n; at < p->all; at += n) {
        n = p->all - at < CHUNK ? p->all - at : CHUNK;
        if (!fetch(p, s->recv + at, n))
            return 1;
        for (size_t i = 0; i < n / 8; i++) {
            size_t byte = at + i * 8;
            wrong += ((const uint64_t *)p->seen)[i] != word_of(seeds[byte / p->shard], byte % p->shard / 8);
        }
    }
    return wrong;
}

static float product(const struct player *p, int round, size_t row, size_t column)
{
    const struct dead_load *l = p->load;
    uint64_t a = weight_seed(p), b = seed_of(p, (int)(column / l->columns), round);
    float sum = 0;
    for (size_t x = 0; x < l->k; x++)
        sum += element(a, x * l->m + row) * element(b, column % l->columns * l->k + x);
    return sum;
}

/* A sample of C, from columns of both ranks. */
static size_t wrong_products(struct player *p, const struct slot *s)
{
    const struct dead_load *l = p->load;
    size_t wrong = 0, columns = l->columns * DEAD_RANKS;
    for (size_t i = 0; i < LOOK_COLUMNS; i++) {
        size_t column = (hash64((uint64_t)s->round, i) + i * columns / LOOK_COLUMNS) % columns;
        if (!fetch(p, s->c + column * l->m * 2, l->m * 2))
            return 1;
        for (size_t j = 0; j < LOOK_ROWS; j++) {
            size_t row = hash64(column, j) % l->m;
            wrong += as_float(((const uint16_t *)p->seen)[row]) != product(p, s->round, row, column);
        }
    }
    return wrong;
}

/* Its event is complete, that is: CUDA says that the data are there. */
static void look_at(struct player *p, struct slot *s)
{
    size_t words = wrong_words(p, s), products = p->load->gemm ? wrong_products(p, s) : 0;
    s->queued = false;
    if (words || products) {
        p->out->wrong++;
        trouble(p, "round %d: %zu wrong words, %zu wrong products", s->round, words, products);
    } else {
        p->out->right++;
    }
}

static bool complete(const struct slot *s)
{
    cudaError_t e = cudaEventQuery(s->done);
    if (e != cudaErrorNotReady)
        CUDA(e);
    return e == cudaSuccess;
}

static bool in_error(struct player *p)
{
    ncclResult_t error = ncclSuccess;
    if (p->plan->blind)
        return false;
    NCCL(ncclCommGetAsyncError(p->r.comm, &error));
    if (error != ncclSuccess && error != ncclInProgress)
        told(p, false);
    return p->out->told_us != DEAD_NOT_TOLD;
}

/* How long a rank waits for a round when nothing is told. */
static bool patient(const struct player *p, int64_t begin)
{
    int64_t passed = since_signal(p);
    if (p->plan->abort_stopped && !p->victim)
        return passed < SETTLE_US;
    if (passed && (p->plan->signal == SIGKILL || p->plan->abort_stopped))
        return passed < DEAD_PATIENCE_US || dead_now() - begin < DEAD_PATIENCE_US;
    return dead_now() - begin < START_US;
}

/* Waits for the round and looks at it. False: the communicator is in error, or patience is over. */
static bool finish(struct player *p, struct slot *s)
{
    for (int64_t begin = dead_now(); !complete(s); dead_sleep(100)) {
        if (in_error(p))
            return false;
        if (!patient(p, begin)) {
            if (p->plan->signal != SIGKILL && !p->plan->abort_stopped)
                trouble(p, "round %d does not end", s->round);
            return false;
        }
    }
    look_at(p, s);
    return true;
}

static bool play(struct player *p)
{
    const struct dead_load *l = p->load;
    for (int round = 0; round < l->rounds; round++) {
        struct slot *s = &p->slots[round % l->slots];
        if (round >= l->slots) {
            if (!finish(p, s))
                return false;
            fill(p, s, round);
        }
        if (!call(p, s))
            return false;
    }
    for (int round = l->rounds - l->slots; round < l->rounds; round++)
        if (!finish(p, &p->slots[round % l->slots]))
            return false;
    return true;
}

/* --- beginning and end -----------------------------------------------------------------------------------------------
 */

static void open_slot(struct player *p, struct slot *s)
{
    CUDA(cudaMalloc((void **)&s->send, p->shard));
    CUDA(cudaMalloc((void **)&s->recv, p->all));
    CUDA(cudaMalloc((void **)&s->c, p->load->gemm ? p->load->m * p->load->columns * DEAD_RANKS * 2 : 1));
    CUDA(cudaMallocHost((void **)&s->host, p->shard));
    CUDA(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
}

static void open_gemm(struct player *p)
{
    size_t words = p->load->m * p->load->k / 4;
    uint64_t *host = malloc(words * 8), seed = weight_seed(p);
    CHECK(host, "no memory");
    for (size_t i = 0; i < words; i++)
        host[i] = word_of(seed, i);
    CUDA(cudaMalloc((void **)&p->a, words * 8));
    to_device(p->a, host, words * 8);
    free(host);
    BLAS(cublasCreate(&p->blas));
    BLAS(cublasSetStream(p->blas, p->r.stream));
}

static void share_id(struct player *p)
{
    if (p->r.rank == 0) {
        NCCL(ncclGetUniqueId(&p->r.id));
        memcpy(p->page->id, &p->r.id, sizeof p->page->id);
        atomic_store(&p->page->id_there, 1);
        return;
    }
    CHECK(wait_word(&p->page->id_there, 1, START_US), "no unique id");
    memcpy(&p->r.id, p->page->id, sizeof p->r.id);
}

static void open_player(struct player *p)
{
    rank_place(p->r.rank, DEAD_RANKS);
    share_id(p);
    rank_open(&p->r);
    CUDA(cudaStreamCreateWithFlags(&p->look, cudaStreamNonBlocking));
    CUDA(cudaMallocHost((void **)&p->seen, CHUNK));
    for (int i = 0; i < p->load->slots; i++)
        open_slot(p, &p->slots[i]);
    if (p->load->gemm)
        open_gemm(p);
}

/* All that happens once only: connections, mappings, cuBLAS's kernels. Then every slot gets its data. */
static void warm_up(struct player *p)
{
    const int rounds = 6;
    /* The GEMM as the program makes it: when NCCL has the gather, nothing could let go of one that loads a kernel. */
    if (p->load->gemm)
        BLAS(gemm(p, &p->slots[0]));
    for (int round = 0; round < rounds; round++) {
        struct slot *s = &p->slots[round % p->load->slots];
        if (round >= rounds - 2)
            fill(p, s, 1000 + round);
        CHECK(call(p, s), "the warm-up fails");
        CUDA(cudaStreamSynchronize(p->r.stream));
        if (round >= rounds - 2)
            look_at(p, s);
    }
    CHECK(!p->out->wrong, "the warm-up is wrong: %s", p->out->trouble);
    p->out->right = 0;
    for (int i = 0; i < p->load->slots; i++)
        fill(p, &p->slots[i], i), p->slots[i].queued = false;
    CUDA(cudaStreamSynchronize(p->r.stream));
    atomic_store(&p->page->mark[p->r.rank], DEAD_READY);
    CHECK(wait_word(&p->page->mark[1 - p->r.rank], DEAD_READY, START_US), "the other one is not ready");
}

static void drain(struct player *p)
{
    int64_t end = dead_now() + DRAIN_US;
    while (cudaStreamQuery(p->r.stream) == cudaErrorNotReady && dead_now() < end)
        dead_sleep(200);
    p->out->drained = cudaStreamQuery(p->r.stream) != cudaErrorNotReady;
}

/* What is complete now counts: CUDA says so before anybody has aborted. Not when a call has returned the error: the
 * program then knows that nothing more is worth reading, and its stream may be let go. */
static void end_by_abort(struct player *p)
{
    dead_other_end(&p->other);
    p->out->freed = p->other.freed;
    p->out->told_by_call |= p->other.freed; /* what is complete now says nothing: it has been let go */
    p->out->all_complete = true;
    for (int i = 0; i < p->load->slots; i++) {
        struct slot *s = &p->slots[i];
        if (s->queued && complete(s) && !p->out->told_by_call)
            look_at(p, s);
        p->out->all_complete &= !s->queued;
    }
    p->out->complete = cudaStreamQuery(p->r.stream) == cudaSuccess;
    int64_t begin = dead_now();
    if (!p->other.freed)
        ncclCommAbort(p->r.comm);
    p->out->end_us = p->other.freed ? p->other.end_us : dead_now() - begin;
    drain(p);
}

static void end_well(struct player *p)
{
    dead_other_end(&p->other);
    p->out->all_complete = p->out->complete = true;
    NCCL(ncclCommDestroy(p->r.comm));
    drain(p);
}

/* --- the victim and the survivor -------------------------------------------------------------------------------------
 */

static void victim_here(struct player *p)
{
    atomic_store(&p->page->at, 1);
}

static void victim_waits(struct player *p)
{
    CHECK(wait_word(&p->page->resumed, 1, START_US), "not resumed");
}

static bool play_victim(struct player *p)
{
    bool good;
    switch (p->plan->when) {
    case DEAD_WAITING:
        CHECK(wait_word(&p->page->mark[1 - p->r.rank], DEAD_CALLED, START_US), "the other one has not called");
        /* fall through */
    case DEAD_BEFORE:
        victim_here(p);
        victim_waits(p);
        return play(p);
    case DEAD_BUSY:
        victim_here(p);
        good = play(p);
        victim_waits(p);
        return good;
    case DEAD_AFTER:
        good = play(p);
        victim_here(p);
        victim_waits(p);
        return good;
    }
    return false;
}

static bool play_survivor(struct player *p)
{
    if (p->plan->when == DEAD_BEFORE)
        while (!atomic_load(&p->page->struck_us))
            dead_sleep(200);
    bool good = play(p);
    while (good && !since_signal(p)) /* it was faster than the signal */
        dead_sleep(200);
    if (p->plan->signal == SIGKILL) {
        for (int64_t end = dead_now() + DEAD_PATIENCE_US / 3; good && dead_now() < end && !in_error(p);)
            dead_sleep(1000);
        dead_sleep(SETTLE_US);
        return false;
    }
    return good;
}

int dead_rank(struct dead_page *page, int rank)
{
    static struct player p; /* static: nothing is lost in the ways that end the process */
    p = (struct player){
        .r = {.rank = rank, .nranks = DEAD_RANKS}, .page = page, .plan = &page->plan, .load = &page->plan.load};
    p.out = &page->outcome[rank];
    p.out->told_us = DEAD_NOT_TOLD;
    p.victim = rank == page->plan.victim;
    p.shard = p.load->k * p.load->columns * 2;
    p.all = p.shard * DEAD_RANKS;
    open_player(&p);
    warm_up(&p);
    if (!p.plan->alone)
        dead_other_begin(&p.other, page, p.r.comm);
    bool good = p.victim ? play_victim(&p) : play_survivor(&p);
    if (good && !p.plan->abort_stopped) {
        CHECK(wait_word(&page->resumed, 1, START_US), "the other one is not resumed");
        end_well(&p);
    } else {
        end_by_abort(&p);
    }
    p.out->ended = true;
    reach(&p, DEAD_ENDED);
    return 0;
}
