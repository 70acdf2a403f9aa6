/* SPDX-License-Identifier: Apache-2.0 */
/* One process, four devices: communicators made in the ways that NCCL offers, and an all-gather on each.
 *
 *   tuner_comms all|group|split|threads */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, COUNT = 1024 };

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        int e_ = (int)(call);                                                                                          \
        if (e_) {                                                                                                      \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, e_);                                         \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

static ncclComm_t comm[N];
static float *send[N], *recv[N];
static cudaStream_t stream[N];
static ncclUniqueId id;

static void by_group(void)
{
    NEED(ncclGetUniqueId(&id));
    NEED(ncclGroupStart());
    for (int i = 0; i < N; i++) {
        NEED(cudaSetDevice(i));
        NEED(ncclCommInitRank(&comm[i], N, id, i));
    }
    NEED(ncclGroupEnd());
}

static void by_split(void)
{
    ncclComm_t parent[N];
    NEED(ncclCommInitAll(parent, N, NULL));
    NEED(ncclGroupStart());
    for (int i = 0; i < N; i++)
        NEED(ncclCommSplit(parent[i], 0, N - i, &comm[i], NULL));
    NEED(ncclGroupEnd());
    for (int i = 0; i < N; i++)
        NEED(ncclCommDestroy(parent[i]));
}

static void *one_rank(void *arg)
{
    int i = (int)(size_t)arg;
    NEED(cudaSetDevice(i));
    NEED(ncclCommInitRank(&comm[i], N, id, i));
    return NULL;
}

static void by_threads(void)
{
    pthread_t thread[N];
    NEED(ncclGetUniqueId(&id));
    for (int i = 0; i < N; i++)
        NEED(pthread_create(&thread[i], NULL, one_rank, (void *)(size_t)i));
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
}

static void gather(void)
{
    static float host[N * COUNT];
    int rank;
    NEED(ncclCommUserRank(comm[0], &rank));
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < COUNT; k++)
            host[k] = (float)(i + 1);
        NEED(cudaSetDevice(i));
        NEED(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        NEED(cudaMalloc((void **)&send[i], COUNT * sizeof(float)));
        NEED(cudaMalloc((void **)&recv[i], sizeof host));
        NEED(cudaMemcpy(send[i], host, COUNT * sizeof(float), cudaMemcpyHostToDevice));
        NEED(cudaDeviceSynchronize()); /* the stream does not wait for the default one */
    }
    NEED(ncclGroupStart());
    for (int i = 0; i < N; i++)
        NEED(ncclAllGather(send[i], recv[i], COUNT, ncclFloat, comm[i], stream[i]));
    NEED(ncclGroupEnd());
    for (int i = 0; i < N; i++) {
        NEED(cudaSetDevice(i));
        NEED(cudaStreamSynchronize(stream[i]));
        NEED(cudaMemcpy(host, recv[i], sizeof host, cudaMemcpyDeviceToHost));
        for (int k = 0; k < N * COUNT; k++) { /* a split by falling keys turns the ranks round */
            int from = k / COUNT, device = rank == 0 ? from : N - 1 - from;
            NEED(host[k] != (float)(device + 1));
        }
        NEED(cudaFree(send[i]));
        NEED(cudaFree(recv[i]));
        NEED(cudaStreamDestroy(stream[i]));
        NEED(ncclCommDestroy(comm[i]));
    }
}

int main(int argc, char **argv)
{
    const char *way = argc == 2 ? argv[1] : "";
    if (!strcmp(way, "all"))
        NEED(ncclCommInitAll(comm, N, NULL));
    else if (!strcmp(way, "group"))
        by_group();
    else if (!strcmp(way, "split"))
        by_split();
    else if (!strcmp(way, "threads"))
        by_threads();
    else
        return 2;
    gather();
    return 0;
}
