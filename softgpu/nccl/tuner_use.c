/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_use.h"

#include <string.h>
#include "comm.h"
#include "plugin_load.h"

enum { V5, V4, V3, V2 };
static const char *const versions[] = {"ncclTunerPlugin_v5", "ncclTunerPlugin_v4", "ncclTunerPlugin_v3",
                                       "ncclTunerPlugin_v2", NULL};

#define DEFAULT_CHANNELS 8
#define COMM_CHANNELS 32

/* Ranks with one NCCL_HOSTID, or host name, are one node. */
static size_t nodes_of(const struct block *b)
{
    size_t n = 0;
    for (int i = 0; i < b->nranks; i++) {
        int j = 0;
        while (j < i && b->slots[j].info.host_hash != b->slots[i].info.host_hash)
            j++;
        n += j == i;
    }
    return n;
}

ncclResult_t tuner_start(struct ncclComm *comm)
{
    struct comm_tuner *t = &comm->tuner;
    size_t nranks = (size_t)comm->nranks, nnodes = nodes_of(&comm->block);
    struct slr_nvl_domains domains = {1, comm->nranks, comm->nranks};
    struct slr_tuner_constants constants = {0};
    uint64_t hash;
    memcpy(&hash, comm->block.hdr->secret, sizeof hash);
    t->symbol = plugin_use(PLUGIN_TUNER, versions, &t->version);
    if (!t->symbol)
        return ncclSuccess;
    switch (t->version) {
    case V5:
        return ((const struct slr_tuner_v5 *)t->symbol)
            ->init(&t->context, hash, nranks, nnodes, nccl_plugin_log, &domains, &constants);
    case V4:
        return ((const struct slr_tuner_v4 *)t->symbol)->init(nranks, nnodes, nccl_plugin_log, &t->context);
    case V3:
        return ((const struct slr_tuner_v3 *)t->symbol)->init(nranks, nnodes, nccl_plugin_log, &t->context);
    default:
        return ((const struct slr_tuner_v2 *)t->symbol)->init(nranks, nnodes, nccl_plugin_log, &t->context);
    }
}

void tuner_stop(struct ncclComm *comm)
{
    const struct comm_tuner *t = &comm->tuner;
    if (!t->symbol)
        return;
    switch (t->version) {
    case V5:
        ((const struct slr_tuner_v5 *)t->symbol)->finalize(t->context);
        break;
    case V4:
        ((const struct slr_tuner_v4 *)t->symbol)->destroy(t->context);
        break;
    case V3:
        ((const struct slr_tuner_v3 *)t->symbol)->destroy(t->context);
        break;
    default:
        ((const struct slr_tuner_v2 *)t->symbol)->destroy(t->context);
    }
    plugin_unuse(PLUGIN_TUNER);
}

/* The collectives that have a cost table, with NCCL's name; NULL: the others. */
static const char *tuned(const struct op *op, enum slr_nccl_func *func)
{
    static const struct {
        const char *name;
        enum slr_nccl_func func;
    } table[] = {
        [OP_ALL_GATHER] = {"AllGather", SLR_NCCL_ALL_GATHER},
        [OP_ALL_REDUCE] = {"AllReduce", SLR_NCCL_ALL_REDUCE},
        [OP_BROADCAST] = {"Broadcast", SLR_NCCL_BROADCAST},
        [OP_REDUCE] = {"Reduce", SLR_NCCL_REDUCE},
        [OP_REDUCE_SCATTER] = {"ReduceScatter", SLR_NCCL_REDUCE_SCATTER},
    };
    if ((size_t)op->kind >= sizeof table / sizeof *table || !table[op->kind].name)
        return NULL;
    *func = table[op->kind].func;
    return table[op->kind].name;
}

static void fill_costs(float cost[SLR_NCCL_ALGOS][SLR_NCCL_PROTOS], enum slr_nccl_func func, size_t bytes)
{
    static const float slower[SLR_NCCL_PROTOS] = {[SLR_NCCL_LL] = 2.0f, [SLR_NCCL_LL128] = 1.2f, [SLR_NCCL_SIMPLE] = 1};
    for (int a = 0; a < SLR_NCCL_ALGOS; a++)
        for (int p = 0; p < SLR_NCCL_PROTOS; p++) {
            float us = (10.0f + (float)bytes / 100e3f) * slower[p];
            cost[a][p] = a == SLR_NCCL_RING                                  ? us
                         : a == SLR_NCCL_TREE && func == SLR_NCCL_ALL_REDUCE ? us * 1.5f
                                                                             : SLR_COST_IGNORE;
        }
}

static void take_cheapest(struct op *op, float cost[SLR_NCCL_ALGOS][SLR_NCCL_PROTOS])
{
    float best = 3600e6f;
    for (int a = 0; a < SLR_NCCL_ALGOS; a++)
        for (int p = 0; p < SLR_NCCL_PROTOS; p++)
            if (cost[a][p] >= 0 && cost[a][p] < best) {
                best = cost[a][p];
                op->algo = a;
                op->proto = p;
            }
}

static ncclResult_t ask(const struct op *op, enum slr_nccl_func func, size_t bytes,
                        float cost[SLR_NCCL_ALGOS][SLR_NCCL_PROTOS], int *channels)
{
    const struct comm_tuner *t = &op->comm->tuner;
    size_t send, recv;
    int algo = -1, proto = -1;
    op_extents(op, &send, &recv);
    int registered = registered_with(op->comm, op->send, send) && registered_with(op->comm, op->recv, recv);
    float **table = (float **)cost;
    ncclResult_t rc;
    switch (t->version) {
    case V5:
        return ((const struct slr_tuner_v5 *)t->symbol)
            ->get_coll_info(t->context, func, bytes, 1, table, SLR_NCCL_ALGOS, SLR_NCCL_PROTOS, registered, channels);
    case V4:
        return ((const struct slr_tuner_v4 *)t->symbol)
            ->get_coll_info(t->context, func, bytes, 1, table, SLR_NCCL_ALGOS, SLR_NCCL_PROTOS, registered, channels);
    case V3:
        return ((const struct slr_tuner_v3 *)t->symbol)
            ->get_coll_info(t->context, func, bytes, 1, table, SLR_NCCL_ALGOS, SLR_NCCL_PROTOS, channels);
    default:
        rc = ((const struct slr_tuner_v2 *)t->symbol)
                 ->get_coll_info(t->context, func, bytes, 0, 0, 1, &algo, &proto, channels);
        if (algo >= 0 && algo < SLR_NCCL_ALGOS && proto >= 0 && proto < SLR_NCCL_PROTOS && cost[algo][proto] >= 0)
            cost[algo][proto] = 0;
        return rc;
    }
}

static const char *const algo_names[SLR_NCCL_ALGOS] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                                       "NVLS_TREE", "PAT"};
static const char *const proto_names[SLR_NCCL_PROTOS] = {"LL", "LL128", "SIMPLE"};

ncclResult_t tuner_choose(struct op *op)
{
    float cost[SLR_NCCL_ALGOS][SLR_NCCL_PROTOS];
    enum slr_nccl_func func = SLR_NCCL_BROADCAST;
    const char *name = tuned(op, &func);
    size_t send, recv, one = op->count * type_bytes(op->type);
    int channels = 0;
    op->algo = SLR_NCCL_RING;
    op->proto = SLR_NCCL_SIMPLE;
    op->channels = DEFAULT_CHANNELS;
    if (!name || op->comm->nranks == 1)
        return ncclSuccess;
    op_extents(op, &send, &recv);
    size_t bytes = send > recv ? send : recv;
    if (op->kind == OP_BROADCAST || op->kind == OP_REDUCE)
        bytes = one; /* also on ranks that only send or receive */
    fill_costs(cost, func, bytes);
    if (op->comm->tuner.symbol) {
        ncclResult_t rc = ask(op, func, bytes, cost, &channels);
        if (rc != ncclSuccess)
            return nccl_warn(rc, "%s : the tuner plugin failed", name);
    }
    take_cheapest(op, cost);
    if (channels > 0)
        op->channels = channels < COMM_CHANNELS ? channels : COMM_CHANNELS;
    if (op->comm->rank == 0)
        nccl_info(SLR_NCCL_SUBSYS_TUNING, "%s: %zu Bytes -> Algo %s proto %s channel{Lo..Hi}={0..%d}", name, one,
                  algo_names[op->algo], proto_names[op->proto], op->channels - 1);
    return ncclSuccess;
}

double tuner_scale(const struct op *op)
{
    static const double protocol[SLR_NCCL_PROTOS] = {
        [SLR_NCCL_LL] = 2.0, [SLR_NCCL_LL128] = 0.8, [SLR_NCCL_SIMPLE] = 1.0};
    double c = op->channels, channels = c <= 8 ? 8 / c : c <= 16 ? 0.9 : 1.1;
    return protocol[op->proto] * channels * (op->algo == SLR_NCCL_TREE ? 0.9 : 1.0);
}
