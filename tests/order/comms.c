/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made and ended in every way; gathers on each are exact.
 *
 *   comms CASE [RANKS]     as many as the case needs, or so many if that is more
 */
#include "comms.h"

#include <string.h>

ncclComm_t comm_first(const struct rank *r)
{
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, r->nranks, r->id, r->rank));
    return comm;
}

void tell(ncclComm_t comm, void *data, size_t bytes, int root)
{
    void *device;
    CUDA(cudaMalloc(&device, bytes));
    CUDA(cudaMemcpy(device, data, bytes, cudaMemcpyHostToDevice));
    NCCL(ncclBroadcast(device, device, bytes, ncclUint8, root, comm, 0));
    CUDA(cudaMemcpy(data, device, bytes, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(device));
}

void more_ids(const struct rank *r, ncclComm_t comm, ncclUniqueId *ids, int n)
{
    for (int i = 0; i < n && r->rank == 0; i++)
        NCCL(ncclGetUniqueId(&ids[i]));
    tell(comm, ids, (size_t)n * sizeof *ids, 0);
}

void check_one(ncclComm_t comm, const char *what)
{
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    comm_check(comm, s, SMALL, 3, what);
    CUDA(cudaStreamDestroy(s));
}

int main(int argc, char **argv)
{
    const struct comm_case *const tables[] = {comm_make_cases, comm_split_cases, comm_end_cases};
    for (int t = 0; t < LENGTH(tables) && argc > 1; t++)
        for (const struct comm_case *c = tables[t]; c->name; c++)
            if (!strcmp(c->name, argv[1]))
                return forms_run(argc > 2 && c->procs > 1 && atoi(argv[2]) > c->procs ? atoi(argv[2]) : c->procs, 60,
                                 c->body, NULL);
    fprintf(stderr, "usage: comms CASE [RANKS]\n");
    return 2;
}
