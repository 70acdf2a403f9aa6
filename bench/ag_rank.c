/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's way from init to finish. */
#include "ag_rank.h"

#include <stdlib.h>

/* NCCL 2.28 refuses two ranks on one GPU of one host; ranks that claim different hosts talk over
 * sockets. */
static void set_one_gpu(const struct ag_rank *r)
{
    char host[64];
    snprintf(host, sizeof(host), "ag_gemm-rank-%d", r->rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

static int choose_device(struct ag_rank *r)
{
    struct cudaDeviceProp prop;
    int count = 0;
    AG_CUDA(r, cudaGetDeviceCount(&count));
    r->record->device = r->options->one_gpu ? 0 : r->device_index % count;
    AG_CUDA(r, cudaSetDevice(r->record->device));
    AG_CUDA(r, cudaGetDeviceProperties(&prop, r->record->device));
    snprintf(r->record->device_name, sizeof(r->record->device_name), "%.255s", prop.name);
    return 0;
}

static int make_ids(struct ag_rank *r)
{
    for (int i = 0; i < r->options->comms; i++)
        AG_NCCL(r, ncclGetUniqueId(&r->shared->ids[i]));
    atomic_store(&r->shared->ids_ready, 1);
    return 0;
}

static int make_comms(struct ag_rank *r)
{
    if (r->rank == 0)
        AG_TRY(make_ids(r));
    while (!atomic_load(&r->shared->ids_ready)) {
        if (atomic_load(&r->shared->failed))
            return ag_failed(r, "rendezvous", "another rank", "failed");
        ag_sleep(1e-3);
    }
    for (int i = 0; i < r->options->comms; i++) {
        ag_enter(r, AG_PHASE_comm, i);
        AG_NCCL(r, ncclCommInitRank(&r->comms[i], r->shared->ranks, r->shared->ids[i], r->rank));
    }
    return 0;
}

static int finish(struct ag_rank *r)
{
    ag_enter(r, AG_PHASE_finish, 0);
    AG_TRY(ag_lanes_free(r));
    for (int i = 0; i < r->options->comms; i++)
        AG_NCCL(r, ncclCommDestroy(r->comms[i]));
    return 0;
}

static int run(struct ag_rank *r)
{
    ag_enter(r, AG_PHASE_init, 0);
    if (r->options->one_gpu)
        set_one_gpu(r);
    AG_TRY(choose_device(r));
    AG_TRY(make_comms(r));
    ag_enter(r, AG_PHASE_buffers, 0);
    AG_TRY(ag_lanes_make(r));
    if (r->options->check != AG_OFF)
        AG_TRY(ag_check_rounds(r));
    AG_TRY(ag_time_loops(r));
    if (r->options->check != AG_OFF) /* once more, with caches and staging warm */
        AG_TRY(ag_check_rounds(r));
    return finish(r);
}

void ag_rank_run(const struct ag_options *options, struct ag_shared *shared, int rank, int device_index)
{
    struct ag_rank *r = calloc(1, sizeof(*r));
    if (!r) {
        ag_end(shared, rank, AG_ERROR);
        return;
    }
    r->options = options;
    r->shared = shared;
    r->record = &shared->records[rank];
    r->rank = rank;
    r->device_index = device_index;
    r->data = (struct ag_data){ag_shape_of(options, shared->ranks), options->dtype, (uint64_t)options->seed};
    const int result = run(r);
    ag_end(shared, rank, result != 0 ? AG_ERROR : r->record->wrong ? AG_WRONG : AG_OK);
    free(r);
}
