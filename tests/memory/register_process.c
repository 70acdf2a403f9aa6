/* SPDX-License-Identifier: Apache-2.0 */
/* One process, one thread, one device for each rank: windows that are registered in a group, and gathers in groups.
 *
 *   process RANKS MEMORY ROUNDS
 *
 *   MEMORY  cuda; virtual, to which all devices have access; own: virtual, to which only the rank's device has
 */
#include <string.h>
#include "../order/forms.h"
#include "virtual.h"

enum { MAX = 8, SHARD = 64 << 10 };

struct one {
    ncclComm_t comm;
    cudaStream_t stream;
    struct virtual v[2];
    struct gather g;
    ncclWindow_t window[2];
};

static void alloc(struct one *o, const char *memory, int rank, int nranks)
{
    size_t bytes[2] = {SHARD, SHARD * (size_t)nranks};
    uint8_t *p[2];
    for (int i = 0; i < 2; i++) {
        if (!strcmp(memory, "cuda")) {
            CUDA(cudaMalloc((void **)&p[i], bytes[i]));
            continue;
        }
        virtual_alloc(&o->v[i], bytes[i], 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                      strcmp(memory, "own") ? nranks : 0);
        p[i] = (uint8_t *)(uintptr_t)o->v[i].p;
    }
    o->g = (struct gather){.rank = rank, .nranks = nranks, .shard = SHARD, .send = p[0], .recv = p[1]};
    CUDA(cudaMallocHost((void **)&o->g.host, bytes[1]));
    CUDA(cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking));
}

static void give_back(struct one *o)
{
    uint8_t *p[2] = {o->g.send, o->g.recv};
    for (int i = 0; i < 2; i++)
        if (o->v[i].p)
            virtual_free(&o->v[i]);
        else
            CUDA(cudaFree(p[i]));
    CUDA(cudaFreeHost(o->g.host));
    CUDA(cudaStreamDestroy(o->stream));
}

static void gather_all(struct one *o, int n, uint64_t seed)
{
    for (int r = 0; r < n; r++) {
        CUDA(cudaSetDevice(r));
        gather_load(&o[r].g, seed, o[r].stream);
    }
    NCCL(ncclGroupStart());
    for (int r = 0; r < n; r++)
        gather_call(&o[r].g, o[r].comm, o[r].stream);
    NCCL(ncclGroupEnd());
    for (int r = 0; r < n; r++) {
        CUDA(cudaSetDevice(r));
        gather_check(&o[r].g, seed, o[r].stream, "process");
    }
}

int main(int argc, char **argv)
{
    static struct one o[MAX];
    ncclComm_t comms[MAX];
    int n = argc > 3 ? atoi(argv[1]) : 0;
    if (n < 2 || n > MAX)
        return 2;
    NCCL(ncclCommInitAll(comms, n, NULL));
    for (int r = 0; r < n; r++) {
        CUDA(cudaSetDevice(r));
        o[r].comm = comms[r];
        alloc(&o[r], argv[2], r, n);
    }
    gather_all(o, n, 0); /* NCCL's, as the first where ranks share a process */
    NCCL(ncclGroupStart());
    for (int r = 0; r < n; r++) {
        NCCL(ncclCommWindowRegister(o[r].comm, o[r].g.send, SHARD, &o[r].window[0], NCCL_WIN_COLL_SYMMETRIC));
        NCCL(ncclCommWindowRegister(o[r].comm, o[r].g.recv, SHARD * (size_t)n, &o[r].window[1],
                                    NCCL_WIN_COLL_SYMMETRIC));
    }
    NCCL(ncclGroupEnd());
    for (int i = 0; i < atoi(argv[3]); i++)
        gather_all(o, n, (uint64_t)i);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            NCCL(ncclCommWindowDeregister(o[r].comm, o[r].window[i]));
    for (int r = 0; r < n; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclCommDestroy(o[r].comm));
        give_back(&o[r]);
    }
    return wrong_count() ? 1 : 0;
}
