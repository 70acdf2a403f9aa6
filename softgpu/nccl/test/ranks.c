/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <sys/mman.h>
#include <sys/wait.h>

static char *shared_page(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static void be_rank(struct rank *r, int connect, rank_fn fn)
{
    r->cu = cu_load();
    cu_use(&r->cu, r->rank);
    OK(r->cu.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    if (connect)
        OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    fn(r);
    if (connect)
        OK(ncclCommDestroy(r->comm));
    exit(0); /* not _exit: sanitizers report at exit */
}

void start_ranks(pid_t *pids, int nranks, int connect, rank_fn fn)
{
    struct rank r = {.nranks = nranks, .shared = shared_page()};
    if (ncclGetUniqueId(&r.id) != ncclSuccess)
        abort();
    for (r.rank = 0; r.rank < nranks; r.rank++) {
        pids[r.rank] = fork();
        if (pids[r.rank] < 0)
            abort();
        if (!pids[r.rank])
            be_rank(&r, connect, fn);
    }
}

int wait_ranks(const pid_t *pids, int nranks)
{
    int bad = 0;
    for (int i = 0; i < nranks; i++) {
        int status = -1;
        if (waitpid(pids[i], &status, 0) != pids[i] || status)
            bad++;
    }
    return bad;
}

int run_ranks(int nranks, int connect, rank_fn fn)
{
    pid_t pids[MAX_RANKS];
    start_ranks(pids, nranks, connect, fn);
    return wait_ranks(pids, nranks);
}

void fill_bytes(unsigned char *p, size_t bytes, unsigned seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (unsigned char)(x >> 24);
    }
}

CUdeviceptr device_bytes(struct rank *r, size_t bytes, unsigned seed)
{
    CUdeviceptr mem;
    unsigned char *host = malloc(bytes + 1);
    fill_bytes(host, bytes, seed);
    OK(r->cu.cuMemAlloc(&mem, bytes + 1));
    if (bytes)
        OK(r->cu.cuMemcpyHtoD(mem, host, bytes));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    free(host);
    return mem;
}

int same_bytes(struct rank *r, CUdeviceptr mem, size_t bytes, unsigned seed)
{
    unsigned char *want = malloc(bytes + 1), *got = malloc(bytes + 1);
    fill_bytes(want, bytes, seed);
    if (bytes)
        OK(r->cu.cuMemcpyDtoH(got, mem, bytes));
    int same = !memcmp(want, got, bytes);
    free(want);
    free(got);
    return same;
}

ncclResult_t wait_async_error(ncclComm_t comm, ncclResult_t from, int ms)
{
    ncclResult_t rc = from;
    for (int i = 0; i < ms && rc == from; i++) {
        if (ncclCommGetAsyncError(comm, &rc) != ncclSuccess)
            return ncclInternalError;
        usleep(1000);
    }
    return rc;
}
