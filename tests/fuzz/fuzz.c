/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs: gathers, the GEMMs that use them, copies, fills, events, waits, frees, on several streams of several
 * processes. Every rank prints hashes of what it has seen; the same seed prints the same, whoever moves the bytes.
 *
 *   fuzz SEED [--list] [--steps N] [--without N,N,...]
 *
 * --list prints each operation before it is called, --steps ends after N steps, --without leaves steps out.
 */
#include "fuzz.h"

#include <stdarg.h>
#include <string.h>

struct options {
    uint64_t seed;
    bool list, pools;
    int steps;
    const char *without;
};

uint64_t uniform(struct prog *p, uint64_t n)
{
    return hash64(p->uniform_key, p->uniform_n++) % n;
}

uint64_t draw(struct prog *p, uint64_t n)
{
    return hash64(p->local_key, p->local_n++) % n;
}

static void begin_step(struct prog *p, int step)
{
    p->step = step;
    p->uniform_key = hash64(p->seed, (uint64_t)step);
    p->local_key = hash64(p->uniform_key, 1000 + (uint64_t)p->r->rank);
    p->uniform_n = p->local_n = 0;
}

void note(struct prog *p, const char *fmt, ...)
{
    char line[256];
    va_list args;
    if (!p->list)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fprintf(p->list, "op rank %d.%d step %d: %s\n", p->r->rank, p->thread, p->step, line);
}

/* One gather. The first part is equal on all ranks of the communicator. */
struct call {
    int comm, recv;
    bool integers; /* the shards are small integers of the program's type; else any bytes */
    int64_t k, columns;
    size_t count, shard; /* elements of `type`; bytes */
    ncclDataType_t type;

    struct buffer *from, *to;
    size_t send_off, recv_off;
    int stream;
};

static const struct {
    ncclDataType_t type;
    size_t bytes;
} types[] = {{ncclInt8, 1},    {ncclUint8, 1}, {ncclFloat16, 2}, {ncclBfloat16, 2},
             {ncclFloat32, 4}, {ncclInt32, 4}, {ncclInt64, 8},   {ncclFloat64, 8}};

static void draw_call(struct prog *p, struct call *c)
{
    static const int64_t inner[] = {4, 8, 8, 16, 32, 33, 64, 128, 256};
    const int kind = (int)uniform(p, 8), t = (int)uniform(p, LENGTH(types));
    const size_t most = uniform(p, 3) ? p->shard / 8 : p->shard;
    c->comm = (int)uniform(p, (uint64_t)p->comms);
    c->type = types[t].type;
    if (kind == 0) {
        c->count = 1 + uniform(p, (uniform(p, 3) ? most : 64) / types[t].bytes);
        c->shard = c->count * types[t].bytes;
        return;
    }
    c->integers = true;
    c->k = inner[uniform(p, LENGTH(inner))];
    int64_t fit = (int64_t)(most / p->elem) / c->k;
    size_t elements = (size_t)(c->k * (1 + (int64_t)uniform(p, fit > 2 ? (uint64_t)fit - 1 : 1)));
    c->columns = (int64_t)elements / c->k * p->comm[c->comm].nranks;
    if (kind == 1) { /* shards that are no whole columns */
        elements += 1 + uniform(p, (uint64_t)c->k - 1);
        c->columns = (int64_t)elements * p->comm[c->comm].nranks / c->k;
    }
    c->shard = elements * p->elem;
    const bool other = uniform(p, 4) == 0 && c->shard % types[t].bytes == 0;
    if (!other)
        c->type = p->type == API_S ? ncclFloat32 : p->type == API_EX_FP16 ? ncclFloat16 : ncclBfloat16;
    c->count = other ? c->shard / types[t].bytes : elements;
}

/* This rank's part: where from, where to, on which stream. Fills what it sends, if that has to be integers. */
static void prepare(struct prog *p, struct call *c, bool grouped)
{
    const struct comm *comm = &p->comm[c->comm];
    c->to = &p->buffer[FIRST_RECV + c->recv];
    c->stream = any_stream(p);
    if (!c->integers && ONE_IN(p, 2))
        c->recv_off = draw(p, 64) * 16 + (c->type == ncclInt8 ? draw(p, 16) : 0);
    c->from = &p->buffer[draw(p, SENDS)];
    c->send_off = ONE_IN(p, 2) ? draw(p, (c->from->bytes - c->shard) / 16 + 1) * 16 : 0;
    if (!grouped && ONE_IN(p, 5)) {
        struct buffer *b = &p->buffer[FIRST_RECV + (int)draw(p, RECVS)];
        c->from = b == c->to ? c->from : b;
    }
    if (ONE_IN(p, 3)) {
        c->from = c->to;
        c->send_off = c->recv_off + (size_t)comm->rank * c->shard;
    }
    if (c->integers && !is_small(c->from, c->send_off, c->shard))
        fill(p, c->from, c->send_off, c->shard, any_stream(p));
}

static void call(struct prog *p, struct call *c)
{
    const struct comm *comm = &p->comm[c->comm];
    const size_t all = c->shard * (size_t)comm->nranks;
    note(p, "gather on comm%d (rank %d of %d): %s+%zu to %s+%zu, %zu bytes each, type %d, on s%d", c->comm, comm->rank,
         comm->nranks, c->from->name, c->send_off, c->to->name, c->recv_off, c->shard, (int)c->type, c->stream);
    NCCL(ncclAllGather(c->from->at + c->send_off, c->to->at + c->recv_off, c->count, c->type, comm->handle,
                       p->stream[c->stream].handle));
    issued_in_group(p, c->stream, LIST(c->from), LIST(c->to));
    wrote(c->to, c->recv_off, all, false, 0);
    if (c->integers)
        wrote(c->to, 0, all, true, SMALL);
    c->to->k = c->k;
    c->to->columns = c->columns;
    c->to->stream = c->stream;
}

static void after(struct prog *p, const struct call *c)
{
    if (ONE_IN(p, 6))
        order_step(p);
    if (ONE_IN(p, 8))
        data_step(p);
    if (!ONE_IN(p, 3))
        multiply(p, c->to);
    if (ONE_IN(p, 4) && c->from != c->to)
        fill(p, c->from, c->send_off & ~(size_t)15, c->shard > 4 ? c->shard & ~(size_t)3 : 4, c->stream);
    if (ONE_IN(p, 8))
        multiply(p, c->to);
    if (ONE_IN(p, 8))
        tell(p, c->to);
}

static bool one_comm(const struct call *calls, int n)
{
    for (int i = 1; i < n; i++)
        if (calls[i].comm != calls[0].comm)
            return false;
    return true;
}

/* The streams of a group wait for each other, before it and behind it. NCCL promises it for a communicator. */
static void meet(struct prog *p, const struct call *calls, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && one_comm(calls, n); j++)
            seen_too(p, calls[i].stream, calls[j].stream);
}

/* One of the streams behind which the group's i-th call comes. */
static int met(struct prog *p, const struct call *calls, int n, int i)
{
    return calls[one_comm(calls, n) ? (int)draw(p, (uint64_t)n) : i].stream;
}

/* The same gather in a loop, as in training, where the memory of what is sent is given to the GEMM's result. */
static void again(struct prog *p, struct call *c)
{
    for (int i = 2 + (int)uniform(p, 5); i > 0; i--) {
        c->stream = p->stream[c->stream].used ? c->stream : any_stream(p);
        if (!is_small(c->from, c->send_off, c->shard))
            fill(p, c->from, c->send_off, c->shard, c->stream);
        need(p, c->stream, c->from, false);
        need(p, c->stream, c->to, true);
        begin(p, c->stream);
        call(p, c);
        if (ONE_IN(p, 6))
            order_step(p);
        if (ONE_IN(p, 8))
            data_step(p);
        multiply_into(p, c->to, c->from, c->send_off);
    }
}

static void gather_step(struct prog *p)
{
    const int kind = (int)uniform(p, 10), n = kind == 0 ? 3 : kind < 3 ? 2 : 1;
    const bool grouped = n > 1 || kind == 3;
    const int first = (int)uniform(p, RECVS);
    struct call calls[3] = {{0}};
    for (int i = 0; i < n; i++) {
        calls[i].recv = (first + i) % RECVS;
        draw_call(p, &calls[i]);
        prepare(p, &calls[i], grouped);
    }
    /* What is sent may be filled for another call of the group: all edges come after all fills. */
    for (int i = 0; i < n; i++) {
        need(p, met(p, calls, n, i), calls[i].from, false);
        need(p, met(p, calls, n, i), calls[i].to, true);
    }
    for (int i = 0; i < n; i++)
        begin(p, calls[i].stream);
    meet(p, calls, n);
    if (grouped) {
        note(p, "group begins");
        NCCL(ncclGroupStart());
    }
    for (int i = 0; i < n; i++)
        call(p, &calls[i]);
    if (grouped) {
        note(p, "group ends");
        NCCL(ncclGroupEnd());
    }
    meet(p, calls, n);
    for (int i = 0; i < n; i++)
        after(p, &calls[i]);
    if (n == 1 && calls[0].integers && uniform(p, 3) == 0)
        again(p, &calls[0]);
}

static bool left_out(const struct options *o, int step)
{
    const char *at = o->without;
    while (at && *at) {
        char *end;
        if (strtol(at, &end, 10) == step)
            return true;
        at = *end ? end + 1 : end;
    }
    return false;
}

static void run_step(struct prog *p)
{
    if (uniform(p, 40) == 0) {
        note(p, "all ranks rest");
        sleep_ms(60); /* time to map peers' memory, for a library that does so */
        return;
    }
    if (uniform(p, 5) < 2)
        gather_step(p);
    else if (ONE_IN(p, 4))
        multiply(p, &p->buffer[FIRST_RECV + (int)draw(p, RECVS)]);
    else if (ONE_IN(p, 2))
        order_step(p);
    else
        data_step(p);
}

/* The second thread's communicators are made from the first one's. */
static void open_comms(struct prog *p, ncclComm_t parent)
{
    struct rank *r = p->r;
    const bool halves = r->nranks == 4 && uniform(p, 2), reversed = uniform(p, 2);
    p->comms = 1 + (int)uniform(p, 2);
    if (parent)
        NCCL(ncclCommSplit(parent, 0, r->rank, &p->comm[0].handle, NULL));
    else
        NCCL(ncclCommInitRank(&p->comm[0].handle, r->nranks, r->id, r->rank));
    if (p->comms > 1)
        NCCL(ncclCommSplit(p->comm[0].handle, halves ? r->rank / 2 : 0, reversed ? -r->rank : r->rank,
                           &p->comm[1].handle, NULL));
    for (int c = 0; c < p->comms; c++) {
        NCCL(ncclCommUserRank(p->comm[c].handle, &p->comm[c].rank));
        NCCL(ncclCommCount(p->comm[c].handle, &p->comm[c].nranks));
    }
}

static void open_program(struct prog *p, ncclComm_t parent)
{
    static const enum api elements[] = {API_EX_BF16, API_EX_FP16, API_S};
    static const size_t shards[] = {2048, 4096, 32768, 65536, 300 << 10};
    begin_step(p, 0);
    p->type = elements[uniform(p, LENGTH(elements))];
    p->elem = api_elem(p->type);
    p->shard = shards[uniform(p, LENGTH(shards))];
    p->steps = 20 + (int)uniform(p, p->shared ? 20 : 60);
    open_comms(p, parent);
    order_open(p);
    data_open(p);
    BLAS(cublasCreate(&p->blas));
    BLAS(cublasLtCreate(&p->lt));
}

static void run_program(void *one)
{
    struct prog *p = one;
    const struct options *o = p->r->arg;
    CUDA(cudaSetDevice(p->device));
    for (int i = 1; i <= p->steps && i <= o->steps; i++) {
        begin_step(p, i);
        if (!left_out(o, i))
            run_step(p);
    }
}

static void close_program(struct prog *p)
{
    begin_step(p, 1000);
    for (int b = 0; b < BUFFERS; b++)
        tell(p, &p->buffer[b]);
    printf("rank %d.%d ends %016lx\n", p->r->rank, p->thread, (unsigned long)p->hash);
    data_close(p);
    BLAS(cublasDestroy(p->blas));
    BLAS(cublasLtDestroy(p->lt));
    order_close(p);
}

static int threads_of(const struct options *o)
{
    return hash64(o->seed, 98) % 4 == 0 ? 2 : 1;
}

static void body(struct rank *r)
{
    static struct prog all[2];
    const struct options *o = r->arg;
    const int threads = threads_of(o);
    setvbuf(stdout, NULL, _IOLBF, 4096);
    for (int t = 0; t < threads; t++) {
        struct prog *p = &all[t];
        *p = (struct prog){
            .r = r, .thread = t, .shared = threads > 1, .pools = o->pools, .hash = 1, .list = o->list ? stdout : NULL};
        p->seed = hash64(o->seed, (uint64_t)t);
        CUDA(cudaGetDevice(&p->device));
        open_program(p, t ? all[0].comm[0].handle : NULL);
    }
    on_threads(threads, all, sizeof *all, run_program);
    CUDA(cudaDeviceSynchronize());
    for (int t = 0; t < threads; t++)
        close_program(&all[t]);
    for (int t = threads - 1; t >= 0; t--)
        for (int c = all[t].comms - 1; c >= 0; c--)
            NCCL(ncclCommDestroy(all[t].comm[c].handle));
}

int main(int argc, char **argv)
{
    static const int ranks[] = {2, 2, 2, 3, 3, 4};
    struct options o = {.steps = 1000};
    bool good = argc > 1;
    o.seed = good ? strtoull(argv[1], NULL, 0) : 0;
    for (int i = 2; i < argc && good; i++) {
        if (!strcmp(argv[i], "--list"))
            o.list = true;
        else if (!strcmp(argv[i], "--pools"))
            o.pools = true;
        else if (i + 1 < argc && !strcmp(argv[i], "--steps"))
            o.steps = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(argv[i], "--without"))
            o.without = argv[++i];
        else
            good = false;
    }
    if (!good) {
        fprintf(stderr, "usage: fuzz SEED [--list] [--pools] [--steps N] [--without N,N,...]\n");
        return 2;
    }
    /* A lazy first launch waits for the other thread's gathers, whose peers may be in such a launch that waits for this
     * thread's: with NCCL alone as well. So CUDA's manual asks programs like that to load eagerly. */
    if (threads_of(&o) > 1)
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    return zero_run(ranks[hash64(o.seed, 99) % LENGTH(ranks)], 120, argv, body, &o);
}
