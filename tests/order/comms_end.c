/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to end communicators, and what is left of them. */
#include "comms.h"

#include <dirent.h>
#include <string.h>

struct two {
    ncclComm_t a, b;
    struct gather g;
    cudaStream_t stream;
};

static struct two open_two(const struct rank *r)
{
    struct two t = {.a = comm_first(r)};
    NCCL(ncclCommSplit(t.a, 0, r->rank, &t.b, NULL));
    gather_alloc(&t.g, r->rank, r->nranks, SMALL);
    CUDA(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
    return t;
}

static void close_two(struct two *t)
{
    CUDA(cudaStreamDestroy(t->stream));
    gather_free(&t->g);
}

static void start(struct two *t, ncclComm_t comm, uint64_t seed)
{
    gather_load(&t->g, seed, t->stream);
    gather_call(&t->g, comm, t->stream);
}

static void finalize(struct rank *r)
{
    struct two t = open_two(r);
    start(&t, t.a, 1);
    NCCL(ncclCommFinalize(t.a));
    gather_check(&t.g, 1, t.stream, "before Finalize");
    NCCL(ncclCommDestroy(t.a));
    start(&t, t.b, 2);
    NCCL(ncclCommFinalize(t.b));
    NCCL(ncclCommDestroy(t.b));
    gather_check(&t.g, 2, t.stream, "before Finalize and Destroy");
    close_two(&t);
}

/* Nobody waits for the gather before the end; a rank comes late to it. */
static void at_once(struct rank *r)
{
    struct two t = open_two(r);
    if (r->rank == 1)
        hold(t.stream, 40);
    start(&t, t.a, 1);
    NCCL(ncclCommDestroy(t.a));
    gather_check(&t.g, 1, t.stream, "destroyed right after the gather");
    if (r->rank == 0)
        sleep_ms(40);
    start(&t, t.b, 2);
    NCCL(ncclCommDestroy(t.b));
    CUDA(cudaMemsetAsync(t.g.send, 0xee, SMALL, t.stream));
    gather_check(&t.g, 2, t.stream, "destroyed right after the gather, one rank late");
    close_two(&t);
}

static void orders(struct rank *r)
{
    struct two t = open_two(r);
    start(&t, t.a, 1);
    gather_check(&t.g, 1, t.stream, "the first");
    start(&t, t.b, 2);
    gather_check(&t.g, 2, t.stream, "the second");
    NCCL(ncclCommDestroy(r->rank % 2 ? t.a : t.b));
    NCCL(ncclCommDestroy(r->rank % 2 ? t.b : t.a));
    close_two(&t);
}

/* One rank keeps its communicator; the others go on without it, and end. */
static void late(struct rank *r)
{
    struct two t = open_two(r);
    start(&t, t.a, 1);
    gather_check(&t.g, 1, t.stream, "the gather");
    if (r->rank == 0)
        sleep_ms(300);
    NCCL(ncclCommDestroy(t.a));
    start(&t, t.b, 2);
    gather_check(&t.g, 2, t.stream, "the other communicator");
    if (r->rank == 1) {
        sleep_ms(300);
        /* Its peers have ended their processes. */
        CUDA(cudaDeviceSynchronize());
    }
    NCCL(ncclCommDestroy(t.b));
    close_two(&t);
}

/* ---- a hundred times ---- */

struct left {
    int fds, threads, maps;
    size_t device_free;
};

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    if (!d)
        DIE(3, "%s", path);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int lines(const char *path, const char *with)
{
    FILE *f = fopen(path, "r");
    char line[512];
    int n = 0;
    if (!f)
        DIE(3, "%s", path);
    while (fgets(line, sizeof line, f))
        n += strstr(line, with) != NULL;
    fclose(f);
    return n;
}

static struct left look(void)
{
    struct left l = {.fds = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
    size_t total;
    l.maps = lines("/proc/self/maps", "slipring");
    CUDA(cudaMemGetInfo(&l.device_free, &total));
    return l;
}

/* What was still on its way out before may be gone now. */
static bool no_more(struct left before, struct left now)
{
    return now.fds <= before.fds && now.threads <= before.threads && now.maps <= before.maps &&
           now.device_free >= before.device_free;
}

/* What a communicator leaves may go a little later, in the background. */
static void expect_nothing_left(const struct rank *r, struct left before)
{
    struct left now = look();
    for (int i = 0; i < 150 && !no_more(before, now); i++) {
        sleep_ms(20);
        now = look();
    }
    EXPECT(no_more(before, now),
           "rank %d: fds %d -> %d, threads %d -> %d, mappings %d -> %d, free device memory %zu -> %zu", r->rank,
           before.fds, now.fds, before.threads, now.threads, before.maps, now.maps, before.device_free,
           now.device_free);
}

static void hundred(struct rank *r)
{
    enum { WARM_UP = 3, TIMES = 100 };
    ncclComm_t all = comm_first(r), comm;
    ncclUniqueId id;
    struct left before = {0};
    check_one(all, "the first");
    for (int i = 0; i < TIMES; i++) {
        if (i == WARM_UP) {
            sleep_ms(300);
            before = look();
        }
        if (i % 2) {
            more_ids(r, all, &id, 1);
            NCCL(ncclCommInitRank(&comm, r->nranks, id, r->rank));
        } else {
            NCCL(ncclCommSplit(all, 0, r->rank, &comm, NULL));
        }
        check_one(comm, "one of a hundred");
        NCCL(ncclCommDestroy(comm));
    }
    expect_nothing_left(r, before);
    check_one(all, "the first, at the end");
    NCCL(ncclCommDestroy(all));
}

const struct comm_case comm_end_cases[] = {
    {"finalize", 3, finalize}, {"destroy-at-once", 3, at_once}, {"destroy-orders", 3, orders},
    {"destroy-late", 3, late}, {"hundred", 2, hundred},         {NULL, 0, NULL},
};
