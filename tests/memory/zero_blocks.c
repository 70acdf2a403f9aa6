/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that come and go.
 *
 *   blocks RANKS turnover ROUNDS [MIN-REUSED]   more sizes in turn than peers may have mapped: blocks go back to the
 *                               driver, and others get their addresses; at least MIN-REUSED times on all ranks
 *   blocks RANKS deep ROUNDS                    more buffers in one go, without waiting, than peers may have mapped
 *   blocks RANKS settle ROUNDS  ... of which few are used on; then nothing is mapped any more
 *   blocks RANKS free-in-flight ROUNDS          send is freed, and its memory given out again, right behind the call
 *   blocks RANKS vanish ROUNDS                  ... freed by cudaFreeAsync
 *   blocks RANKS die MILLISECONDS               the last rank dies; the others notice
 *   blocks RANKS many-comms ROUNDS              eight communicators gather from the same buffers and end one by one
 *   blocks RANKS leak ROUNDS                    all device memory comes back after everything has ended
 *   blocks RANKS group ROUNDS                   one process, one device a rank: all calls in one group, rank by rank,
 *                               ROUNDS calls for each rank in a group
 *   blocks RANKS ahead ROUNDS                   one thread a rank in one process, the first far ahead of the others
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "zero.h"

struct plan {
    const char *name;
    int rounds, reused;
};

enum { SIZES = 44, HELD = 4096 };

static size_t nth_size(int i)
{
    /* Eight classes for each power of two; 64 KiB and more. */
    return ((size_t)(8 + i % 8) << (13 + i / 8 % 6)) - 256;
}

/* ---- turnover ---- */

struct address {
    uint8_t *p;
    size_t size;
};

/* A block of another size where one was: the old one went back to the driver. A kept block serves its own class only,
 * which is up to an eighth larger than what was asked for. */
static int reuse(struct address *seen, int *count, uint8_t *p, size_t size)
{
    for (int i = 0; i < *count; i++)
        if (seen[i].p == p) {
            bool other = size > seen[i].size + seen[i].size / 4 || seen[i].size > size + size / 4;
            seen[i].size = size;
            return other;
        }
    if (*count < HELD)
        seen[(*count)++] = (struct address){p, size};
    return 0;
}

static void turnover(struct rank *r)
{
    const struct plan *p = r->arg;
    static struct address seen[HELD];
    int count = 0, reused = 0;
    struct gather g;
    zero_host(&g, r, nth_size(SIZES - 1));
    rank_open(r);
    for (int i = 0; i < p->rounds; i++) {
        /* An order of its own for each rank: addresses and generations differ. */
        size_t own = nth_size((i * 5 + r->rank * 7) % SIZES);
        g.shard = nth_size(i * 5 % SIZES / 2);
        zero_alloc(&g, own);
        reused += reuse(seen, &count, g.send, g.shard + own);
        reused += reuse(seen, &count, g.recv, g.shard * (size_t)g.nranks);
        for (int k = 0; k < 3; k++) {
            zero_round(r, &g, hash64((uint64_t)i, (uint64_t)k), "turnover");
            sleep_ms(15);
        }
        zero_free(&g);
    }
    rank_close(r);
    CUDA(cudaFreeHost(g.host));
    int all = zero_sum(r, reused);
    EXPECT(all >= p->reused, "only %d addresses were used again, on all ranks", all);
}

/* ---- more buffers in one go than peers may have mapped ---- */

enum { DEEP = 40 };

static void deep(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g[DEEP];
    rank_open(r);
    for (int k = 0; k < DEEP; k++)
        gather_alloc(&g[k], r->rank, r->nranks, nth_size(k / 8));
    for (int i = 0; i < p->rounds; i++) {
        for (int k = 0; k < DEEP; k++)
            gather_load(&g[k], (uint64_t)(i * DEEP + k), r->stream);
        CUDA(cudaStreamSynchronize(r->stream));
        zero_barrier(r);
        bool late = i % r->nranks == r->rank;
        if (late && i / r->nranks % 2)
            hold(r->stream, 150);
        else if (late)
            sleep_ms(150); /* the host is late as well: blocks that its peers have named are revoked before it comes */
        for (int k = 0; k < DEEP; k++)
            gather_call(&g[k], r->comm, r->stream);
        for (int k = 0; k < DEEP; k++)
            gather_check(&g[k], (uint64_t)(i * DEEP + k), r->stream, "deep");
    }
    rank_close(r);
    for (int k = 0; k < DEEP; k++)
        gather_free(&g[k]);
}

/* As many as may be mapped take the places of others. Those were used longest ago, and must not come back for one
 * another. */
static void settle(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g[DEEP];
    rank_open(r);
    for (int k = 0; k < DEEP; k++)
        gather_alloc(&g[k], r->rank, r->nranks, nth_size(k / 8));
    for (int i = 0; i < p->rounds; i++)
        for (int k = i < 3 ? 0 : DEEP - 4; k < DEEP; k++) {
            gather_load(&g[k], (uint64_t)(i * DEEP + k), r->stream);
            gather_call(&g[k], r->comm, r->stream);
            gather_check(&g[k], (uint64_t)(i * DEEP + k), r->stream, "settle");
            if (i < 3)
                sleep_ms(5);
        }
    sleep_ms(2500);
    rank_close(r);
    for (int k = 0; k < DEEP; k++)
        gather_free(&g[k]);
}

/* ---- freed while it is read ---- */

static void in_flight(struct rank *r, cudaError_t (*free_it)(struct rank *r, void *p))
{
    const struct plan *p = r->arg;
    struct gather g;
    zero_host(&g, r, 512 << 10);
    rank_open(r);
    zero_alloc(&g, 0);
    zero_warm_up(r, &g);
    for (int i = 0; i < p->rounds; i++) {
        uint8_t *other;
        gather_load(&g, (uint64_t)i, r->stream);
        CUDA(cudaStreamSynchronize(r->stream));
        zero_barrier(r);
        if (i % r->nranks == r->rank)
            hold(r->stream, 20);
        gather_call(&g, r->comm, r->stream);
        CUDA(free_it(r, g.send));
        CUDA(cudaMalloc((void **)&other, g.shard));
        CUDA(cudaMemsetAsync(other, 0x33, g.shard, r->stream));
        gather_check(&g, (uint64_t)i, r->stream, "freed right behind the call");
        g.send = other;
    }
    zero_free(&g);
    rank_close(r);
    CUDA(cudaFreeHost(g.host));
}

static cudaError_t plain_free(struct rank *r, void *p)
{
    (void)r;
    return cudaFree(p);
}

static cudaError_t free_async(struct rank *r, void *p)
{
    return cudaFreeAsync(p, r->stream);
}

static void free_in_flight(struct rank *r)
{
    in_flight(r, plain_free);
}

static void vanish(struct rank *r)
{
    in_flight(r, free_async);
}

/* ---- a peer that dies while blocks are mapped and closed ---- */

static void *die_later(void *ms)
{
    sleep_ms((unsigned)(uintptr_t)ms);
    _exit(0);
}

struct guard {
    ncclComm_t comm;
    _Atomic bool failed;
};

/* Looks for an error and aborts, as frameworks do on a thread of their own: the one that calls may wait inside a call,
 * for room in the queue of a stream that is held. It is given a while to come out and see `failed`. */
static void *abort_on_error(void *arg)
{
    struct guard *g = arg;
    ncclResult_t error = ncclSuccess;
    for (int i = 0; error == ncclSuccess && i < 1000; i++) {
        sleep_ms(10);
        NCCL(ncclCommGetAsyncError(g->comm, &error));
    }
    EXPECT(error != ncclSuccess, "nobody noticed that the peer died");
    atomic_store(&g->failed, true);
    sleep_ms(100);
    NCCL(ncclCommAbort(g->comm));
    return NULL;
}

static void die(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g[DEEP];
    pthread_t dies, guards;
    rank_open(r);
    for (int k = 0; k < DEEP; k++)
        gather_alloc(&g[k], r->rank, r->nranks, nth_size(k / 8));
    struct guard guard = {.comm = r->comm};
    if (r->rank == r->nranks - 1 && pthread_create(&dies, NULL, die_later, (void *)(uintptr_t)p->rounds))
        DIE(3, "no thread");
    if (pthread_create(&guards, NULL, abort_on_error, &guard))
        DIE(3, "no thread");
    /* Two gathers at least are in flight: something is whenever the library closes a mapping. */
    for (int i = 0; !atomic_load(&guard.failed); i++) {
        if (ncclAllGather(g[i % DEEP].send, g[i % DEEP].recv, g[i % DEEP].shard, ncclUint8, r->comm, r->stream))
            break;
        if (i % 4 == 0)
            sleep_ms(1);
    }
    pthread_join(guards, NULL);
}

/* ---- communicators ---- */

enum { COMMS = 8 };

static void many_comms(struct rank *r)
{
    const struct plan *p = r->arg;
    ncclComm_t all[COMMS];
    struct gather g;
    rank_open(r);
    all[0] = r->comm;
    for (int c = 1; c < COMMS; c++)
        NCCL(ncclCommSplit(all[0], 0, c % 2 ? r->rank : r->nranks - r->rank, &all[c], NULL));
    zero_host(&g, r, 128 << 10);
    zero_alloc(&g, 0);
    for (int i = 0; i < p->rounds; i++)
        for (int c = i / 4 % COMMS; c < COMMS; c++) {
            struct rank one = *r;
            NCCL(ncclCommUserRank(all[c], &one.rank));
            one.comm = all[c];
            g.rank = one.rank;
            zero_round(&one, &g, (uint64_t)(i * COMMS + c), "many communicators");
            if (c % 3 == 0)
                sleep_ms(10);
        }
    for (int c = COMMS - 1; c > 0; c--)
        NCCL(ncclCommDestroy(all[c]));
    rank_close(r);
    zero_free(&g);
    CUDA(cudaFreeHost(g.host));
}

/* ---- leaks ---- */

static void leak(struct rank *r)
{
    const struct plan *p = r->arg;
    size_t before, after, total;
    struct gather g;
    zero_host(&g, r, 256 << 10);
    CUDA(cudaMemGetInfo(&before, &total));
    ncclUniqueId id = r->id;
    for (int i = 0; i < p->rounds; i++) {
        r->id = id;
        if (i == 0) {
            rank_open(r);
        } else { /* another communicator each time, without another meeting of the program's own */
            ncclComm_t next;
            NCCL(ncclCommSplit(r->comm, 0, r->rank, &next, NULL));
            NCCL(ncclCommDestroy(r->comm));
            r->comm = next;
        }
        g.shard = 256 << 10;
        zero_alloc(&g, 0);
        for (int k = 0; k < 6; k++) {
            zero_round(r, &g, (uint64_t)(i * 6 + k), "leak");
            sleep_ms(30);
        }
        if (i % 2)
            zero_free(&g); /* offered blocks are freed while the communicator lives, or after it */
        if (i == p->rounds - 1)
            rank_close(r);
        if (i % 2 == 0)
            zero_free(&g);
    }
    after = zero_wait_free(before, 5000);
    /* A block that is being given back may be counted as kept and as free for a moment. */
    EXPECT(after >= before, "rank %d: %zu bytes of device memory are missing", r->rank, before - after);
    CUDA(cudaFreeHost(g.host));
}

/* ---- ranks in one process ---- */

static void open_all(struct rank *r, struct gather *g, size_t shard)
{
    ncclComm_t comms[8];
    NCCL(ncclCommInitAll(comms, r[0].nranks, NULL));
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        r[i].rank = i;
        r[i].nranks = r[0].nranks;
        r[i].arg = r[0].arg;
        r[i].comm = comms[i];
        CUDA(cudaStreamCreateWithFlags(&r[i].stream, cudaStreamNonBlocking));
        gather_alloc(&g[i], i, r[0].nranks, shard);
    }
}

static void close_all(struct rank *r, struct gather *g)
{
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        CUDA(cudaStreamDestroy(r[i].stream));
        gather_free(&g[i]);
    }
    for (int i = 0; i < r[0].nranks; i++)
        NCCL(ncclCommDestroy(r[i].comm));
}

/* Three gathers in turn: two slots never hold the right data by chance. */
enum { SETS = 3 };

static void group_round(struct rank *r, struct gather g[SETS][8], int calls, uint64_t seed)
{
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        for (int k = 0; k < SETS; k++)
            gather_load(&g[k][i], seed * SETS + (uint64_t)k, r[i].stream);
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < r[0].nranks; i++)
        for (int c = 0; c < calls; c++)
            gather_call(&g[c % SETS][i], r[i].comm, r[i].stream);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        for (int k = 0; k < SETS; k++)
            gather_check(&g[k][i], seed * SETS + (uint64_t)k, r[i].stream, "group");
    }
}

static void group(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g[SETS][8];
    open_all(r, g[0], 64 << 10);
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        for (int k = 1; k < SETS; k++)
            gather_alloc(&g[k][i], i, r[0].nranks, 64 << 10);
    }
    for (int i = 0; i < 20; i++) {
        group_round(r, g, SETS, (uint64_t)i);
        sleep_ms(20);
    }
    group_round(r, g, p->rounds, 77);
    group_round(r, g, p->rounds, 78);
    for (int i = 0; i < r[0].nranks; i++) {
        CUDA(cudaSetDevice(i));
        for (int k = 1; k < SETS; k++)
            gather_free(&g[k][i]);
    }
    close_all(r, g[0]);
}

struct runner {
    struct rank *r;
    struct gather *g;
};

static void run_ahead(void *one)
{
    struct runner *x = one;
    const struct plan *p = x->r->arg;
    CUDA(cudaSetDevice(x->r->rank));
    gather_load(x->g, 5, x->r->stream);
    if (x->r->rank > 0)
        sleep_ms(1500);
    for (int i = 0; i < p->rounds; i++)
        gather_call(x->g, x->r->comm, x->r->stream);
    gather_check(x->g, 5, x->r->stream, "ahead");
}

static void ahead(struct rank *r)
{
    struct gather g[8];
    struct runner each[8];
    open_all(r, g, 64 << 10);
    for (int i = 0; i < r[0].nranks; i++)
        each[i] = (struct runner){&r[i], &g[i]};
    on_threads(r[0].nranks, each, sizeof *each, run_ahead);
    close_all(r, g);
}

static const struct {
    const char *name;
    rank_body body;
    bool one_process;
} cases[] = {
    {"turnover", turnover, false}, {"deep", deep, false},
    {"settle", settle, false},     {"free-in-flight", free_in_flight, false},
    {"vanish", vanish, false},     {"many-comms", many_comms, false},
    {"leak", leak, false},         {"die", die, false},
    {"group", group, true},        {"ahead", ahead, true},
};

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct plan plan = {.name = argv[2], .rounds = atoi(argv[3]), .reused = argc > 4 ? atoi(argv[4]) : 0};
    for (int c = 0; c < LENGTH(cases); c++) {
        if (strcmp(cases[c].name, plan.name))
            continue;
        if (!cases[c].one_process)
            return zero_run(atoi(argv[1]), 150, argv, cases[c].body, &plan);
        struct rank r[8] = {{.nranks = atoi(argv[1]), .arg = &plan}};
        cases[c].body(r);
        return wrong_count() ? 1 : 0;
    }
    return 2;
}
