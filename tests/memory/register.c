/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that are registered with NCCL, and what becomes of them.
 *
 *   register RANKS CASE HOW MEMORY WHICH [ROUNDS]
 *
 *   HOW     register (ncclCommRegister), window, group (windows in a group), not
 *   MEMORY  cuda (cudaMalloc), nccl (ncclMemAlloc), pool (cudaMallocAsync); virtual: of the driver's virtual memory
 *           management; pieces: likewise, and the buffer spans two allocations; private: made without a handle type
 *   WHICH   both, send, recv: the buffers that are registered
 *
 *   first     gathers from the first call on, the ranks in each order
 *   again     registered, used, deregistered, used again, freed; the next buffers have other sizes and data, and often
 *             the addresses of the last
 *   early     deregistered right behind the call, while a peer comes late to it
 *   remap     other memory is mapped where the buffers were, without a word to NCCL but the end of the registration
 *   met       buffers that nobody has registered, often enough to be met
 *   anew      such ones, made and freed again and again, reservation and all; each is made before the one before is freed,
 *             so that what peers have offered is mapped where that was
 *   comms     the same buffers in several communicators, which end one by one
 *   dies      the last rank is killed while the others register
 *   abort     a communicator is aborted while a peer is late, and its receive buffer used for something else
 *   files     no descriptor is left open
 *   junk      the same, while a process of the same user sends nonsense to every socket that it finds
 *   grows     a reservation in which memory is mapped bit by bit, unmapped in the middle and mapped anew, while buffers
 *             lie across the parts
 *   sleeps    the memory of both buffers is unmapped, and other memory mapped there some time before it is used
 *   many      more buffers in turn than a rank can offer; then, with WHICH recv, a few others instead
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "buffers.h"

enum { SHARD = 64 << 10 };

static void first(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    bench_register(&b, r->comm);
    for (int i = 0; i < b.p->rounds; i++)
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i + 1);
    bench_deregister(&b, r->comm);
    rank_close(r);
    bench_free(&b);
}

static void again(struct rank *r)
{
    rank_open(r);
    for (int i = 0; i < ((const struct plan *)r->arg)->rounds; i++) {
        struct bench b = {.r = r, .p = r->arg};
        bench_alloc(&b, (size_t)SHARD << i % 3);
        bench_register(&b, r->comm);
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i * 2);
        bench_deregister(&b, r->comm);
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i * 2 + 1);
        bench_free(&b);
    }
    rank_close(r);
}

enum { EARLY_MS = 40 };

static void early(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    for (int i = 0; i < b.p->rounds; i++) {
        bool late = i % r->nranks == r->rank;
        bench_register(&b, r->comm);
        gather_load(&b.g, (uint64_t)i, r->stream);
        CUDA(cudaStreamSynchronize(r->stream));
        zero_barrier(r);
        if (late && i / r->nranks % 2)
            hold(r->stream, EARLY_MS);
        else if (late)
            sleep_ms(EARLY_MS);
        gather_call(&b.g, r->comm, r->stream);
        bench_deregister(&b, r->comm);
        gather_check(&b.g, (uint64_t)i, r->stream, "early");
        zero_barrier(r);
    }
    rank_close(r);
    bench_free(&b);
}

/* What was mapped at the address is what the peers still have open. */
static void remap(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    for (int i = 0; i < b.p->rounds; i++) {
        bench_register(&b, r->comm);
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i * 3);
        bench_deregister(&b, r->comm);
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i * 3 + 1);
        virtual_remap(&b.send_buffer.v);
        virtual_remap(&b.recv_buffer.v);
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i * 3 + 2);
    }
    rank_close(r);
    bench_free(&b);
}

static void met(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    zero_warm_up(r, &b.g);
    for (int i = 0; i < b.p->rounds; i++)
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i);
    rank_close(r);
    bench_free(&b);
}

static void anew(struct rank *r)
{
    const int rounds = ((const struct plan *)r->arg)->rounds;
    struct bench b[2];
    rank_open(r);
    for (int i = 0; i < rounds; i++) {
        struct bench *now = &b[i % 2];
        *now = (struct bench){.r = r, .p = r->arg};
        bench_alloc(now, SHARD);
        if (i > 0)
            bench_free(&b[(i + 1) % 2]);
        for (int j = 0; j < 4; j++) {
            bench_gather(now, r->comm, j % r->nranks, (uint64_t)(i * 4 + j));
            sleep_ms(40); /* it is met, offered and mapped */
        }
    }
    rank_close(r);
    bench_free(&b[(rounds + 1) % 2]);
}

enum { COMMS = 4 };

static void comms(struct rank *r)
{
    struct bench b[COMMS];
    ncclComm_t comm[COMMS];
    rank_open(r);
    comm[0] = r->comm;
    for (int k = 1; k < COMMS; k++)
        NCCL(ncclCommSplit(r->comm, 0, r->rank, &comm[k], NULL));
    b[0] = (struct bench){.r = r, .p = r->arg};
    bench_alloc(&b[0], SHARD);
    for (int k = 0; k < COMMS; k++) {
        b[k] = b[0]; /* the same buffers, handles of their own */
        bench_register(&b[k], comm[k]);
    }
    for (int k = COMMS - 1; k >= 0; k--) {
        for (int j = 0; j <= k; j++)
            bench_gather(&b[j], comm[j], j % r->nranks, (uint64_t)(k * COMMS + j));
        bench_deregister(&b[k], comm[k]);
        if (k > 0)
            NCCL(ncclCommDestroy(comm[k]));
    }
    rank_close(r);
    bench_free(&b[0]);
}

static void dies(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    time_t start = time(NULL);
    bench_register(&b, r->comm); /* SOFTGPU_FAIL kills the last rank while it maps the others' buffers */
    EXPECT(time(NULL) - start < 10, "rank %d: waited %d s for a dead peer", r->rank, (int)(time(NULL) - start));
    NCCL(ncclCommAbort(r->comm));
    buffer_free(b.p->memory, &b.send_buffer);
    buffer_free(b.p->memory, &b.recv_buffer);
}

enum { LATE_MS = 500, MARK = 0x11 };

static void untouched(const struct bench *b)
{
    size_t all = SHARD * (size_t)b->g.nranks;
    CUDA(cudaMemcpy(b->seen, b->g.recv, all, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i++)
        if (b->seen[i] != MARK) {
            wrong("rank %d: byte %zu of the receive buffer was written after the abort", b->g.rank, i);
            return;
        }
}

/* Rank 0 is first and offers its buffer; rank 1's data comes late. */
static void abort_early(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    bench_register(&b, r->comm);
    bench_gather(&b, r->comm, 0, 1);
    if (r->rank == 0)
        gather_call(&b.g, r->comm, r->stream);
    zero_barrier(r);
    if (r->rank == 1) {
        hold(r->stream, LATE_MS);
        gather_call(&b.g, r->comm, r->stream);
    }
    zero_barrier(r);
    if (r->rank == 0) {
        NCCL(ncclCommAbort(r->comm));
        CUDA(cudaMemset(b.g.recv, MARK, SHARD * (size_t)r->nranks));
        CUDA(cudaDeviceSynchronize());
    }
    sleep_ms(LATE_MS + LATE_MS / 2);
    if (r->rank == 0)
        untouched(&b);
    else
        NCCL(ncclCommAbort(r->comm));
    zero_barrier(r);
    bench_free(&b);
}

/* The datagram sockets of this network namespace that have an abstract name are whoever's they are. Who is stopped
 * keeps what was sent: not this program's output, for whose end somebody waits. */
static void send_junk(int s, const char *name, int file)
{
    char text[64] = {1, 2, 3};
    int fds[2] = {file, file};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    union {
        char bytes[CMSG_SPACE(sizeof fds)];
        struct cmsghdr align;
    } control = {0};
    size_t n = strlen(name);
    memcpy(a.sun_path + 1, name, n < sizeof a.sun_path - 1 ? n : sizeof a.sun_path - 1);
    for (size_t bytes = 1; bytes <= sizeof text; bytes += 21) {
        struct iovec body = {text, bytes};
        struct msghdr m = {.msg_name = &a,
                           .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n),
                           .msg_iov = &body,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), fds, sizeof fds);
        sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

static void junk_everywhere(void)
{
    char line[512];
    FILE *f = fopen("/proc/net/unix", "r");
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (f && fgets(line, sizeof line, f)) {
        char *name = strchr(line, '@');
        if (!name)
            continue;
        name[strcspn(name, "\n")] = '\0';
        send_junk(s, name + 1, null);
    }
    if (f)
        fclose(f);
    close(null);
    close(s);
}

/* The driver lets go of shared memory when it next looks; peers close it in their own time. */
static int settled_files(int limit)
{
    size_t have, total;
    int now = open_files();
    for (int t = 0; now > limit && t < 200; t++) {
        sleep_ms(10);
        CUDA(cudaMemGetInfo(&have, &total));
        now = open_files();
    }
    return now;
}

/* The first two rounds show how many files are open at times. */
static void files(struct rank *r)
{
    int most = 0;
    rank_open(r);
    for (int i = 0; i < ((const struct plan *)r->arg)->rounds; i++) {
        struct bench b = {.r = r, .p = r->arg};
        bench_alloc(&b, SHARD);
        bench_register(&b, r->comm);
        if (!strcmp(b.p->name, "junk"))
            junk_everywhere();
        bench_gather(&b, r->comm, i % r->nranks, (uint64_t)i);
        bench_deregister(&b, r->comm);
        bench_free(&b);
        zero_barrier(r);
        if (i < 2 && open_files() > most)
            most = open_files();
    }
    int now = settled_files(most);
    EXPECT(now <= most, "rank %d: %d open files, %d before", r->rank, now, most);
    zero_barrier(r);
    rank_close(r);
}

/* ---- as an allocator with expandable segments has it ---- */

enum { PARTS = 12 };

/* Both buffers lie across the border behind part `part`. */
static void across(struct bench *b, const struct virtual *v, int part, uint64_t seed)
{
    uint8_t *border = (uint8_t *)(uintptr_t)v->p + (size_t)(part + 1) * GRANULARITY;
    b->g.send = border - 4096;
    b->g.recv = border + GRANULARITY - 4096;
    for (int i = 0; i < b->p->rounds; i++) {
        bench_gather(b, b->r->comm, i % b->r->nranks, seed * 100 + (uint64_t)i);
        sleep_ms(i == 0 ? 60 : 0); /* the peers map it, if it is not mapped yet */
    }
}

static void grows(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    struct virtual v;
    rank_open(r);
    bench_alloc(&b, SHARD);
    virtual_reserve(&v, PARTS);
    virtual_map_parts(&v, 0, 3);
    across(&b, &v, 0, 1);
    virtual_map_parts(&v, 3, 3);
    across(&b, &v, 2, 2);
    virtual_map_parts(&v, 6, PARTS - 6);
    for (int part = 0; part + 2 < PARTS; part += 3)
        across(&b, &v, part, 3 + (uint64_t)part);
    CUDA(cudaDeviceSynchronize());
    zero_barrier(r);
    virtual_unmap_parts(&v, 4, 2);
    across(&b, &v, 0, 20);
    across(&b, &v, 8, 21);
    virtual_map_parts(&v, 4, 2);
    for (int part = 1; part + 2 < PARTS; part += 3)
        across(&b, &v, part, 30 + (uint64_t)part);
    CUDA(cudaDeviceSynchronize());
    rank_close(r);
    virtual_free(&v);
    b.g.send = b.send_buffer.p, b.g.recv = b.recv_buffer.p;
    bench_free(&b);
}

/* What the last rounds stage is counted by the test. */
static void sleeps(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    rank_open(r);
    bench_alloc(&b, SHARD);
    for (int i = 0; i < b.p->rounds; i++) {
        for (int k = 0; k < (i == 0 ? 6 : 2); k++) {
            bench_gather(&b, r->comm, 0, (uint64_t)(i * 8 + k));
            sleep_ms(i + k == 0 ? 200 : 0);
        }
        CUDA(cudaDeviceSynchronize());
        virtual_remap(&b.send_buffer.v);
        virtual_remap(&b.recv_buffer.v);
        sleep_ms(200);
    }
    rank_close(r);
    bench_free(&b);
}

enum { MANY = 136, FEW = 4 };

static void in_turn(struct bench *b, uint8_t **send, int n, int calls)
{
    uint8_t *own = b->g.send;
    for (int i = 0; i < calls; i++) {
        b->g.send = send[i % n];
        zero_round(b->r, &b->g, (uint64_t)i, "many");
        if (i % 8 == 0)
            sleep_ms(10);
    }
    b->g.send = own;
}

/* No registration: what each gather sends lies in the next of 136 blocks. */
static void many(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    uint8_t *send[MANY + FEW];
    rank_open(r);
    bench_alloc(&b, SHARD);
    for (int k = 0; k < MANY + FEW; k++)
        CUDA(cudaMalloc((void **)&send[k], SHARD));
    in_turn(&b, send, MANY, b.p->rounds * MANY);
    if (!b.p->send)
        in_turn(&b, send + MANY, FEW, b.p->rounds * MANY);
    for (int k = 0; k < MANY + FEW; k++)
        CUDA(cudaFree(send[k]));
    rank_close(r);
    bench_free(&b);
}

static const struct {
    const char *name;
    rank_body body;
} cases[] = {
    {"first", first}, {"again", again}, {"early", early}, {"remap", remap},       {"met", met},
    {"anew", anew},   {"comms", comms}, {"dies", dies},   {"abort", abort_early}, {"files", files},
    {"junk", files},  {"many", many},   {"grows", grows}, {"sleeps", sleeps},
};

int main(int argc, char **argv)
{
    static const char *const hows[] = {"not", "register", "window", "group"};
    static const char *const memories[] = {"cuda", "nccl", "pool", "virtual", "pieces", "private"};
    struct plan plan = {.rounds = 6};
    if (argc < 6)
        return 2;
    plan.name = argv[2];
    for (int i = 0; i < LENGTH(hows); i++)
        if (!strcmp(argv[3], hows[i]))
            plan.how = (enum how)i;
    for (int i = 0; i < LENGTH(memories); i++)
        if (!strcmp(argv[4], memories[i]))
            plan.memory = (enum memory)i;
    plan.send = strcmp(argv[5], "recv") != 0;
    plan.recv = strcmp(argv[5], "send") != 0;
    if (argc > 6)
        plan.rounds = atoi(argv[6]);
    for (int i = 0; i < LENGTH(cases); i++)
        if (!strcmp(cases[i].name, plan.name))
            return zero_run(atoi(argv[1]), 60, argv, cases[i].body, &plan);
    return 2;
}
