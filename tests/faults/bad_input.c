/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments: each call must give the code that NCCL itself gives (asked through pncclAllGather, which nothing
 * interposes), no rank may hang or drift out of step, and the communicator must work afterwards.
 *
 *   bad_input            on all ranks, and on one rank only while the others call a good gather
 *   bad_input crowded    more ranks than devices: NCCL refuses on every rank
 *   bad_input overflow   a count whose bytes overflow (the software GPU reports what NCCL would then touch)
 */
#include "player.h"

#include <string.h>

struct bad {
    const char *what;
    bool no_send, no_recv, no_comm;
    size_t count;
    int type;
};

static const struct bad cases[] = {
    {"send NULL", true, false, false, 1000, ncclInt8}, {"recv NULL", false, true, false, 1000, ncclInt8},
    {"both NULL", true, true, false, 1000, ncclInt8},  {"NULL and count 0", true, true, false, 0, ncclInt8},
    {"count 0", false, false, false, 0, ncclInt8},     {"type 99", false, false, false, 1000, 99},
    {"type -1", false, false, false, 1000, -1},        {"type ncclNumTypes", false, false, false, 1000, ncclNumTypes},
    {"comm NULL", false, false, true, 1000, ncclInt8},
};

typedef ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);

static ncclResult_t call(all_gather gather, const struct bad *bad, const struct rank *r, const struct buffers *b)
{
    return gather(bad->no_send ? NULL : b->send, bad->no_recv ? NULL : b->recv, bad->count, (ncclDataType_t)bad->type,
                  bad->no_comm ? NULL : r->comm, r->stream);
}

static void same_code(const struct bad *bad, const struct rank *r, const struct buffers *b)
{
    ncclResult_t nccl = call(pncclAllGather, bad, r, b), ours = call(ncclAllGather, bad, r, b);
    CHECK(nccl == ours, "rank %d: %s: result %d, NCCL's is %d", r->rank, bad->what, (int)ours, (int)nccl);
    CHECK((nccl == ncclSuccess) == (bad->count == 0), "rank %d: %s: NCCL says %d", r->rank, bad->what, (int)nccl);
}

static void good(const struct rank *r, const struct buffers *b, unsigned round)
{
    buffers_fill(b, r, round);
    NCCL(player_gather(r, b, 10000));
    buffers_check(b, r, round);
}

/* Errors inside a group come out at its end. */
static void grouped(const struct bad *bad, const struct rank *r, const struct buffers *b)
{
    ncclResult_t in[2], out[2];
    for (int ours = 0; ours < 2; ours++) {
        NCCL(ncclGroupStart());
        in[ours] = call(ours ? ncclAllGather : pncclAllGather, bad, r, b);
        out[ours] = ncclGroupEnd();
    }
    CHECK(in[0] == in[1] && out[0] == out[1], "rank %d: %s in a group: %d and %d, NCCL's are %d and %d", r->rank,
          bad->what, (int)in[1], (int)out[1], (int)in[0], (int)out[0]);
}

static void all_cases(struct rank *r, const struct buffers *b)
{
    unsigned round = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        same_code(&cases[i], r, b);
        good(r, b, round++);
        grouped(&cases[i], r, b);
        good(r, b, round++);
        if ((int)i % r->nranks == r->rank) /* the others do not know */
            same_code(&cases[i], r, b);
        good(r, b, round++);
    }
}

/* The number of a communicator that is gone, and the same twice. */
static void destroyed(struct rank *r, const struct buffers *b)
{
    const struct bad plain = {"destroyed", false, false, false, 1000, ncclInt8};
    ncclResult_t async = ncclSuccess;
    NCCL(ncclCommDestroy(r->comm));
    same_code(&plain, r, b);
    CHECK(ncclCommGetAsyncError(r->comm, &async) == pncclCommGetAsyncError(r->comm, &async), "ncclCommGetAsyncError");
    CHECK(ncclCommDestroy(r->comm) == pncclCommDestroy(r->comm), "ncclCommDestroy");
    CHECK(ncclCommAbort(r->comm) == pncclCommAbort(r->comm), "ncclCommAbort");
    CHECK(ncclCommDestroy(NULL) == pncclCommDestroy(NULL), "ncclCommDestroy(NULL)");
    CHECK(ncclCommGetAsyncError(NULL, &async) == pncclCommGetAsyncError(NULL, &async), "ncclCommGetAsyncError(NULL)");
    CHECK(ncclCommInitRank(NULL, r->nranks, r->id, r->rank) == pncclCommInitRank(NULL, r->nranks, r->id, r->rank),
          "comm NULL");
    CHECK(ncclCommInitRank(&r->comm, 2, r->id, 7) == pncclCommInitRank(&r->comm, 2, r->id, 7), "rank 7 of 2");
}

static void overflow(const struct rank *r, const struct buffers *b)
{
    const struct bad huge = {"overflow", false, false, false, SIZE_MAX / 2, ncclInt32};
    same_code(&huge, r, b);
    good(r, b, 0);
}

int main(int argc, char **argv)
{
    struct rank r = player_start();
    static struct buffers b;
    const char *what = argc > 1 ? argv[1] : "";
    ncclResult_t e = ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank);
    if (!strcmp(what, "crowded")) {
        fprintf(stderr, "rank %d: ncclCommInitRank: %s\n", r.rank, ncclGetErrorString(e));
        return e == ncclInvalidUsage ? 0 : 1;
    }
    NCCL(e);
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, 100000);
    if (!strcmp(what, "overflow")) {
        overflow(&r, &b);
        return 0;
    }
    all_cases(&r, &b);
    destroyed(&r, &b);
    return 0;
}
