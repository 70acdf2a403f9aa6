/* SPDX-License-Identifier: Apache-2.0 */
/* The ring's order of operations, recorded from fake driver functions and then executed by a model of N ranks.
 *
 * The model has one in-order hardware queue for each rank, the worst case (CUDA_DEVICE_MAX_CONNECTIONS=1): an operation
 * runs only when everything that was enqueued before it on any stream of the rank has run. Any order of ranks must end,
 * and every wait must be met by data of the right piece.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include "kernels/flags.h"
#include "kernels/ring.h"
#include "kernels/timing.h"

enum { MAX_OPS = 200000, MAX_RANKS = 8 };
enum kind { WAIT, WAIT_EQUAL, WRITE, COPY };
struct op {
    enum kind kind;
    CUdeviceptr address, from; /* of the word; of a copy's target and source */
    bool wide;                 /* the word */
    uint64_t value;
    size_t bytes;
};
static struct queue {
    struct op op[MAX_OPS];
    int count, next;
} * queues;
static int current; /* rank whose calls are being recorded */

static void push(struct op op)
{
    struct queue *q = &queues[current];
    cr_assert_lt(q->count, MAX_OPS);
    q->op[q->count++] = op;
}

static CUresult wait32(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags)
{
    (void)s;
    cr_assert(flags == CU_STREAM_WAIT_VALUE_GEQ || flags == CU_STREAM_WAIT_VALUE_EQ);
    push((struct op){.kind = flags == CU_STREAM_WAIT_VALUE_EQ ? WAIT_EQUAL : WAIT, .address = a, .value = v});
    return CUDA_SUCCESS;
}

static CUresult write32(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned flags)
{
    (void)s;
    cr_assert_eq(flags, CU_STREAM_WRITE_VALUE_DEFAULT);
    push((struct op){.kind = WRITE, .address = a, .value = v});
    return CUDA_SUCCESS;
}

static CUresult batch(CUstream s, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags)
{
    (void)flags;
    for (unsigned i = 0; i < n; i++)
        if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            push((struct op){
                .kind = WAIT, .wide = true, .address = ops[i].waitValue.address, .value = ops[i].waitValue.value64});
        else if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            push((struct op){
                .kind = WRITE, .wide = true, .address = ops[i].writeValue.address, .value = ops[i].writeValue.value64});
        else if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32)
            wait32(s, ops[i].waitValue.address, ops[i].waitValue.value, ops[i].waitValue.flags);
        else
            write32(s, ops[i].writeValue.address, ops[i].writeValue.value, ops[i].writeValue.flags);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    (void)s;
    push((struct op){.kind = COPY, .address = to, .from = from, .bytes = n});
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *s, unsigned flags, int priority)
{
    (void)priority;
    cr_assert_eq(flags, CU_STREAM_NON_BLOCKING);
    *s = (CUstream)malloc(1);
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *e, unsigned flags)
{
    (void)flags;
    *e = (CUevent)malloc(1);
    return CUDA_SUCCESS;
}

/* Records of events and waits for them, in the order of the calls. */
static struct order_call {
    bool record;
    CUevent event;
    CUstream stream;
} order[4096];
static unsigned orders;

static CUresult note_order(bool record, CUevent e, CUstream s)
{
    order[orders++ % 4096] = (struct order_call){record, e, s};
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent e, CUstream s)
{
    return note_order(true, e, s);
}

static CUresult wait_event(CUstream s, CUevent e, unsigned flags)
{
    cr_assert_eq(flags, 0);
    return note_order(false, e, s);
}

static CUresult priorities(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_SUCCESS;
}

static void use_fakes(void)
{
    slr_real.cuStreamWaitValue32 = wait32;
    slr_real.cuStreamWriteValue32 = write32;
    slr_real.cuStreamBatchMemOp = batch;
    slr_real.cuMemcpyAsync = copy;
    slr_real.cuStreamCreateWithPriority = stream_create;
    slr_real.cuEventCreate = event_create;
    slr_real.cuEventRecord = event_record;
    slr_real.cuStreamWaitEvent = wait_event;
    slr_real.cuCtxGetStreamPriorityRange = priorities;
}

struct world {
    int n;
    size_t slot, shard;
    uint32_t start; /* pieces issued before: near the wrap of the 32-bit words */
    void *flags;
    struct slr_ring ring[MAX_RANKS];
    unsigned char *slots[MAX_RANKS], *send[MAX_RANKS], *recv[MAX_RANKS], *elsewhere[MAX_RANKS];
    struct slr_route route[MAX_RANKS][MAX_RANKS]; /* of each rank */
};

static void build(struct world *w)
{
    use_fakes();
    queues = calloc((size_t)w->n, sizeof *queues);
    w->flags = aligned_alloc(SLR_FLAG_LINE, slr_flags_bytes(w->n));
    for (int o = 0; o < w->n; o++)
        for (int r = 0; r < w->n; r++) {
            atomic_store(slr_flag_ready(w->flags, w->n, o, r), slr_ready_value(w->start, 0));
            atomic_store(slr_flag(w->flags, w->n, SLR_FLAG_BROKEN, o, r), 0);
            atomic_store(slr_flag(w->flags, w->n, SLR_FLAG_DONE, o, r), w->start);
            atomic_store(slr_flag(w->flags, w->n, SLR_FLAG_OPEN, o, r), w->start);
        }
    for (int r = 0; r < w->n; r++) {
        w->slots[r] = calloc(SLR_SLOTS, w->slot);
        w->send[r] = malloc(w->shard);
        w->recv[r] = malloc(w->shard * (size_t)w->n);
        w->elsewhere[r] = malloc(w->shard);
    }
    for (int r = 0; r < w->n; r++) {
        struct slr_ring *ring = &w->ring[r];
        *ring =
            (struct slr_ring){.rank = r, .nranks = w->n, .flags = w->flags, .dflags = (CUdeviceptr)(uintptr_t)w->flags};
        ring->slots[0].bytes = w->slot;
        for (int o = 0; o < w->n; o++)
            ring->slots[0].at[o] = (CUdeviceptr)(uintptr_t)w->slots[o];
        for (int o = 0; o < w->n; o++) {
            atomic_store(&ring->expected[o], slr_ready_value(w->start, 0));
            atomic_store(&ring->corrected[o], slr_ready_value(w->start, 0));
        }
        atomic_store(&ring->issued, w->start);
        cr_assert_eq(slr_ring_open(ring), SLR_OK);
    }
}

static enum slr_status gather(struct slr_ring *ring, const struct slr_gather *g)
{
    enum slr_status s = slr_ring_begin(ring, g);
    return s == SLR_OK ? slr_ring_finish(ring, g) : s;
}

static bool step(int r)
{
    struct queue *q = &queues[r];
    if (q->next == q->count)
        return false;
    const struct op *op = &q->op[q->next];
    _Atomic uint32_t *word = (_Atomic uint32_t *)(uintptr_t)op->address;
    _Atomic uint64_t *wide = (_Atomic uint64_t *)(uintptr_t)op->address;
    if (op->kind == WAIT && op->wide && (int64_t)(atomic_load(wide) - op->value) < 0)
        return false;
    if (op->kind == WAIT && !op->wide && !slr_flag_reached(atomic_load(word), (uint32_t)op->value))
        return false;
    if (op->kind == WAIT_EQUAL && atomic_load(word) != op->value)
        return false;
    if (op->kind == WRITE && op->wide)
        atomic_store(wide, op->value);
    if (op->kind == WRITE && !op->wide)
        atomic_store(word, (uint32_t)op->value);
    if (op->kind == COPY)
        memcpy((void *)(uintptr_t)op->address, (const void *)(uintptr_t)op->from, op->bytes);
    q->next++;
    return true;
}

/* Runs queues in a random order; `favourite` runs as far as it can whenever it is drawn, which lets ranks run far ahead
 * of each other. */
static void execute(const struct world *w, unsigned seed)
{
    srand(seed);
    for (int idle = 0; idle < 64 * w->n;) {
        int r = rand() % w->n, steps = 0, burst = rand() % 3 ? 1 : 1000;
        while (steps < burst && step(r))
            steps++;
        idle = steps ? 0 : idle + 1;
    }
    for (int r = 0; r < w->n; r++)
        cr_assert_eq(queues[r].next, queues[r].count, "rank %d is stuck at operation %d of %d", r, queues[r].next,
                     queues[r].count);
}

/* Both halves of a way from each owner to each reader, drawn by `seed`; 0: all by slots. */
static void draw_routes(struct world *w, unsigned seed)
{
    static const struct {
        enum slr_source source;
        enum slr_delivery delivery;
    } way[] = {{SLR_FROM_SLOT, SLR_BY_SLOT},
               {SLR_FROM_PLACE, SLR_ZERO_COPY},
               {SLR_FROM_EXPECTED, SLR_AS_EXPECTED},
               {SLR_FROM_EXPECTED, SLR_CORRECTED},  /* elsewhere */
               {SLR_FROM_EXPECTED, SLR_CORRECTED}}; /* nowhere */
    srand(seed);
    for (int o = 0; o < w->n; o++)
        for (int r = 0; r < w->n; r++) {
            unsigned i = seed ? (unsigned)rand() % 5 : 0;
            const unsigned char *from = way[i].delivery == SLR_CORRECTED ? w->elsewhere[o] : w->send[o];
            w->route[r][o].source = way[i].source;
            w->route[r][o].from = i == 4 ? 0 : (CUdeviceptr)(uintptr_t)from;
            w->route[o][r].delivery = way[i].delivery;
            w->route[o][r].to = (CUdeviceptr)(uintptr_t)(w->recv[r] + (size_t)o * w->shard);
        }
}

/* Several gathers on the same buffers would overwrite what the model checks, so each has its own byte pattern and is
 * checked after its own execution, except in the last round, where two are enqueued before anything runs. */
static void gathers(struct world *w, int calls, uint32_t pieces, unsigned seed, bool mixed)
{
    for (int c = 0; c < calls; c++) {
        draw_routes(w, mixed ? seed * 1000 + (unsigned)c : 0);
        for (int r = 0; r < w->n; r++) {
            for (size_t i = 0; i < w->shard; i++)
                w->send[r][i] = (unsigned char)((i + (size_t)r * 77 + (size_t)c * 1301 + seed) * 2654435761u >> 13);
            memset(w->recv[r], 0xee, w->shard * (size_t)w->n);
            struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)w->send[r],
                                   .recv = (CUdeviceptr)(uintptr_t)w->recv[r],
                                   .route = mixed ? w->route[r] : NULL};
            g.plan = slr_plan_make(w->shard, w->n, w->slot, pieces);
            current = r;
            for (int repeat = 0; repeat < (c == calls - 1 ? 2 : 1); repeat++)
                cr_assert_eq(gather(&w->ring[r], &g), SLR_OK);
        }
        execute(w, seed * 100 + (unsigned)c);
        for (int r = 0; r < w->n; r++) {
            for (int o = 0; o < w->n; o++)
                cr_assert_eq(memcmp(w->recv[r] + (size_t)o * w->shard, w->send[o], w->shard), 0,
                             "rank %d, shard of %d, call %d", r, o, c);
            cr_expect(slr_ring_complete(&w->ring[r]));
        }
    }
}

Test(ring_order, ends_and_is_exact_in_any_order)
{
    for (int n = 2; n <= MAX_RANKS; n += n == 2 ? 1 : n == 3 ? 1 : 4)
        for (unsigned seed = 1; seed <= 6; seed++) {
            struct world w = {
                .n = n, .slot = 4096, .shard = seed % 2 ? 30011 : 3, .start = seed % 3 ? 0 : UINT32_MAX - 5};
            build(&w);
            gathers(&w, 4, seed % 4 ? 0 : 3, seed, false);
        }
}

Test(ring_order, ends_and_is_exact_whatever_the_ways)
{
    for (int n = 2; n <= 5; n++)
        for (unsigned seed = 1; seed <= 40; seed++) {
            struct world w = {.n = n, .slot = 4096, .shard = 30011, .start = seed % 3 ? 0 : UINT32_MAX - 50};
            build(&w);
            gathers(&w, 6, seed % 4, seed, true);
        }
}

/* So many pieces of calls that were complete, in which nobody wrote a word but `ready` and `done`: gathers where all shards
 * are read where they lie, or that a rank comes to behind its peers. */
static void skip(struct world *w, uint32_t pieces)
{
    for (int o = 0; o < w->n; o++) {
        const uint32_t last = atomic_load(&w->ring[o].issued) + pieces;
        for (int r = 0; r < w->n && r != o; r++) {
            atomic_store(slr_flag_ready(w->flags, w->n, o, r), slr_ready_value(last, 0));
            atomic_store(slr_flag_ready(w->flags, w->n, r, o), slr_ready_value(last, 0));
            atomic_store(slr_flag(w->flags, w->n, SLR_FLAG_DONE, o, r), last);
            atomic_store(slr_flag(w->flags, w->n, SLR_FLAG_DONE, r, o), last);
        }
        atomic_store(&w->ring[o].issued, last);
    }
}

/* A gather that needs no word but these. */
static void gather_from_places(struct world *w)
{
    for (int r = 0; r < w->n; r++) {
        struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)w->send[r],
                               .recv = (CUdeviceptr)(uintptr_t)w->recv[r],
                               .route = w->route[r]};
        for (int o = 0; o < w->n; o++) {
            w->route[r][o].source = SLR_FROM_PLACE;
            w->route[r][o].delivery = SLR_ZERO_COPY;
            w->route[r][o].from = (CUdeviceptr)(uintptr_t)w->send[o];
        }
        g.plan = slr_plan_make(w->shard, w->n, w->slot, 1);
        current = r;
        cr_assert_eq(gather(&w->ring[r], &g), SLR_OK);
    }
    execute(w, 1);
}

/* Numbers are compared cyclically: a word or a number that nothing has changed for half of the range is not taken for
 * one that is ahead, nor waited for. */
Test(ring_order, what_nothing_has_changed_for_long_stays_behind)
{
    enum { LONG = 400000000, TIMES = 24 };
    struct world w = {.n = 3, .slot = 4096, .shard = 30011};
    build(&w);
    gathers(&w, 2, 0, 1, false); /* staged */
    gathers(&w, 3, 0, 7, true);  /* opened, expected, corrected */
    for (int i = 0; i < TIMES; i++) {
        skip(&w, LONG);
        gather_from_places(&w);
        for (int o = 0; o < w.n; o++) {
            cr_assert(slr_ring_complete(&w.ring[o]), "rank %d is not idle after %d times %d pieces", o, i + 1, LONG);
            for (int r = 0; r < w.n; r++) {
                const uint32_t open = slr_flag_piece(w.flags, w.n, SLR_FLAG_OPEN, o, r);
                cr_assert(o == r || slr_ring_peer_served(&w.ring[o], r));
                cr_assert(o == r || !slr_flag_reached(open, atomic_load(&w.ring[o].issued) + 1),
                          "rank %d may write to %d before that says so, after %d times %d pieces", o, r, i + 1, LONG);
            }
        }
        if (i % 8 == 7) { /* of a launch */
            for (current = 0; current < w.n; current++)
                cr_assert_eq(slr_ring_await_slots(&w.ring[current], NULL), SLR_OK);
            execute(&w, 2);
        }
    }
}

/* The model is able to find a deadlock and an overwritten slot. */
Test(ring_order, the_model_finds_a_deadlock, .signal = 0)
{
    struct world w = {.n = 2, .slot = 4096, .shard = 100};
    build(&w);
    current = 0;
    wait32(NULL, (CUdeviceptr)(uintptr_t)slr_flag(w.flags, 2, SLR_FLAG_READY, 1, 0), 1, CU_STREAM_WAIT_VALUE_GEQ);
    srand(1);
    for (int i = 0; i < 100; i++)
        cr_expect(!step(0));
}

Test(ring_order, release_lets_waits_end)
{
    struct world w = {.n = 3, .slot = 4096, .shard = 50000};
    build(&w);
    struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)w.send[0], .recv = (CUdeviceptr)(uintptr_t)w.recv[0]};
    g.plan = slr_plan_make(w.shard, w.n, w.slot, 0);
    current = 0;
    cr_assert_eq(gather(&w.ring[0], &g), SLR_OK);
    while (step(0))
        ;
    cr_assert_lt(queues[0].next, queues[0].count);
    cr_expect(!slr_ring_peer_served(&w.ring[0], 1));
    slr_ring_release(&w.ring[0], 1);
    slr_ring_release(&w.ring[0], 2);
    while (step(0))
        ;
    cr_expect_eq(queues[0].next, queues[0].count);
}

/* Rank 0 runs ahead as far as it can. Then it gives up: its own waits are released while the others, who know nothing
 * of that, have read nothing yet, and it writes over its slots. Nobody takes that for its shard. */
Test(ring_order, who_is_late_takes_nothing_from_slots_that_are_written_over)
{
    struct world w = {.n = 3, .slot = 4096, .shard = 50000};
    build(&w);
    for (current = 0; current < w.n; current++) {
        struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)w.send[current],
                               .recv = (CUdeviceptr)(uintptr_t)w.recv[current]};
        g.plan = slr_plan_make(w.shard, w.n, w.slot, 0);
        cr_assert_eq(gather(&w.ring[current], &g), SLR_OK);
    }
    while (step(0))
        ;
    slr_ring_release(&w.ring[0], 1);
    slr_ring_release(&w.ring[0], 2);
    while (step(0))
        ;
    cr_assert_eq(queues[0].next, queues[0].count);
    while ((int)step(1) + step(2) > 0) /* each of both */
        ;
    for (int r = 1; r < w.n; r++)
        cr_expect_lt(queues[r].next, queues[r].count, "rank %d completes what is not rank 0's", r);
}

static void expect_order(const struct order_call *want, unsigned n)
{
    cr_assert_eq(orders, n);
    for (unsigned i = 0; i < n; i++)
        cr_expect(order[i].record == want[i].record && order[i].event == want[i].event &&
                      order[i].stream == want[i].stream,
                  "call %u", i);
    orders = 0;
}

/* The carrier comes after the application's stream and after the gather, each once for a gather; who is joined comes
 * after the carrier. */
Test(ring_order, an_event_that_carries_a_gather_comes_after_all_of_it)
{
    struct world w = {.n = 2, .slot = 4096, .shard = 100};
    build(&w);
    struct slr_ring *ring = &w.ring[0];
    CUstream origin = (CUstream)malloc(1), consumer = (CUstream)malloc(1);
    struct slr_gather g = {
        .send = (CUdeviceptr)(uintptr_t)w.send[0], .recv = (CUdeviceptr)(uintptr_t)w.recv[0], .stream = origin};
    g.plan = slr_plan_make(w.shard, w.n, w.slot, 0);
    current = 0;
    for (int call = 0; call < 2; call++) {
        cr_assert_eq(gather(ring, &g), SLR_OK);
        orders = 0;
        cr_assert_eq(slr_ring_join(ring, origin), SLR_OK);
        expect_order((struct order_call[]){{false, ring->now.finished, origin}}, 1);
        cr_assert_eq(slr_ring_carry(ring, origin, false), SLR_OK);
        expect_order((struct order_call[]){{true, ring->before, origin},
                                           {false, ring->before, ring->carrier},
                                           {false, ring->now.finished, ring->carrier}},
                     3);
        cr_assert_eq(slr_ring_carry(ring, origin, false), SLR_OK);
        expect_order(NULL, 0);
        cr_assert_eq(slr_ring_wait_before(ring, consumer), SLR_OK);
        expect_order((struct order_call[]){{false, ring->before, consumer}}, 1);
        cr_assert_eq(slr_ring_join(ring, consumer), SLR_OK);
        expect_order(
            (struct order_call[]){{true, ring->now.finished, ring->carrier}, {false, ring->now.finished, consumer}}, 2);
    }
}

static bool is_stamp(const struct slr_timing *r, CUevent e)
{
    for (unsigned i = 0; i < r->created; i++)
        if (r->event[i] == e)
            return true;
    return false;
}

/* Peer 1 takes the shard from the slot, 2 from its place, 3 expects nothing; what comes from them likewise. */
static void mixed_gather(struct world *w, struct slr_ring *ring, CUstream app)
{
    struct slr_route route[4] = {
        {0},
        {.source = SLR_FROM_SLOT, .delivery = SLR_BY_SLOT},
        {.source = SLR_FROM_PLACE, .delivery = SLR_ZERO_COPY, .from = (CUdeviceptr)(uintptr_t)w->send[2]},
        {.source = SLR_FROM_EXPECTED, .delivery = SLR_CORRECTED, .to = (CUdeviceptr)(uintptr_t)w->recv[3]}};
    struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)w->send[0],
                           .recv = (CUdeviceptr)(uintptr_t)w->recv[0],
                           .stream = app,
                           .route = route};
    g.plan = slr_plan_make(w->shard, w->n, w->slot, 5);
    atomic_store(&ring->issued, 0);
    queues[0].count = 0;
    orders = 0;
    cr_assert_eq(slr_ring_entry(ring, app, false), SLR_OK);
    cr_assert_eq(gather(ring, &g), SLR_OK);
    cr_assert_eq(slr_ring_wait_chunk(ring, app, 0, 1), SLR_OK);
    cr_assert_eq(slr_ring_join_measured(ring, app), SLR_OK);
}

/* A measured gather does what it does unmeasured, in the same order; nothing waits for a stamp. So what ring.h says of
 * deadlocks holds for it as well. */
Test(ring_order, measuring_only_adds_records_of_its_own_events)
{
    static struct op ops[MAX_OPS];
    static struct order_call plain[4096];
    struct world w = {.n = 4, .slot = 4096, .shard = 15000};
    struct slr_timing record = {0};
    CUstream app = (CUstream)malloc(1);
    build(&w);
    struct slr_ring *ring = &w.ring[0];
    current = 0;
    mixed_gather(&w, ring, app);
    int count = queues[0].count;
    unsigned calls = orders, kept = 0;
    memcpy(ops, queues[0].op, (size_t)count * sizeof *ops);
    memcpy(plain, order, sizeof plain);

    slr_timing_begin(&record);
    ring->now.timing = &record;
    mixed_gather(&w, ring, app);
    cr_assert_eq(queues[0].count, count);
    for (int i = 0; i < count; i++)
        cr_expect(ops[i].kind == queues[0].op[i].kind && ops[i].address == queues[0].op[i].address &&
                      ops[i].from == queues[0].op[i].from && ops[i].value == queues[0].op[i].value &&
                      ops[i].bytes == queues[0].op[i].bytes,
                  "operation %d", i);
    for (unsigned i = 0; i < orders; i++) {
        if (order[i].record && is_stamp(&record, order[i].event))
            continue;
        cr_assert_lt(kept, calls);
        cr_expect(order[i].record == plain[kept].record && order[i].event == plain[kept].event &&
                      order[i].stream == plain[kept].stream,
                  "call %u", i);
        kept++;
    }
    cr_expect_eq(kept, calls);
    cr_expect_gt(orders, calls + 20, "stamps were recorded");
    cr_expect_eq(record.cut, 0);
}
