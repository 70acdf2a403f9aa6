/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks that gather until a file is there; rank 1 comes MS milliseconds later to each call.
 *
 *   top_ranks MS FILE */
#include <unistd.h>
#include "tests/programs/ranks.h"

enum { BYTES = 4096, SECONDS = 100 };

struct arguments {
    unsigned late_us;
    const char *until;
};

static void body(struct rank *r)
{
    const struct arguments *a = r->arg;
    void *send, *recv;
    rank_open(r);
    CUDA(cudaMalloc(&send, BYTES));
    CUDA(cudaMalloc(&recv, (size_t)r->nranks * BYTES));
    /* Both make the same calls: rank 0's shard says whether there is another one. */
    for (uint8_t go = 1; go;) {
        if (r->rank == 0)
            go = access(a->until, F_OK) != 0;
        else
            usleep(a->late_us);
        to_device(send, &go, 1);
        NCCL(ncclAllGather(send, recv, BYTES, ncclInt8, r->comm, r->stream));
        CUDA(cudaStreamSynchronize(r->stream));
        CUDA(cudaMemcpy(&go, recv, 1, cudaMemcpyDeviceToHost));
    }
    rank_close(r);
}

int main(int argc, char **argv)
{
    struct arguments a;
    CHECK(argc == 3, "usage: top_ranks MS FILE");
    a.late_us = (unsigned)atoi(argv[1]) * 1000;
    a.until = argv[2];
    return ranks_run(2, SECONDS, body, &a);
}
