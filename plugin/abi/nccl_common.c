/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of NCCL's names. */
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include "plugin/abi/nccl_common.h"

static const char *const funcs[] = {
    [SLR_NCCL_BROADCAST] = "Broadcast",
    [SLR_NCCL_REDUCE] = "Reduce",
    [SLR_NCCL_ALL_GATHER] = "AllGather",
    [SLR_NCCL_REDUCE_SCATTER] = "ReduceScatter",
    [SLR_NCCL_ALL_REDUCE] = "AllReduce",
    [SLR_NCCL_SEND_RECV] = "SendRecv",
    [SLR_NCCL_SEND] = "Send",
    [SLR_NCCL_RECV] = "Recv",
    [SLR_NCCL_ALL_TO_ALL] = "AlltoAll",
    [SLR_NCCL_SCATTER] = "Scatter",
    [SLR_NCCL_GATHER] = "Gather",
    [SLR_NCCL_PUT_SIGNAL] = "PutSignal",
    [SLR_NCCL_SIGNAL] = "Signal",
    [SLR_NCCL_WAIT_SIGNAL] = "WaitSignal",
};
static const char *const algos[] = {
    [SLR_NCCL_TREE] = "Tree",
    [SLR_NCCL_RING] = "Ring",
    [SLR_NCCL_COLLNET_DIRECT] = "CollNetDirect",
    [SLR_NCCL_COLLNET_CHAIN] = "CollNetChain",
    [SLR_NCCL_NVLS] = "NVLS",
    [SLR_NCCL_NVLS_TREE] = "NVLSTree",
    [SLR_NCCL_PAT] = "PAT",
};
static const char *const protos[] = {[SLR_NCCL_LL] = "LL", [SLR_NCCL_LL128] = "LL128", [SLR_NCCL_SIMPLE] = "Simple"};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
_Static_assert(COUNT(funcs) == SLR_NCCL_FUNCS && COUNT(algos) == SLR_NCCL_ALGOS && COUNT(protos) == SLR_NCCL_PROTOS,
               "each has a name");

static const char *name_of(const char *const *list, int count, int number)
{
    return number == -1 ? "default" : number >= 0 && number < count ? list[number] : "?";
}

/* `none` is the word that stands for -1. */
static int number_of(const char *const *list, int count, const char *none, const char *name, size_t len)
{
    for (int i = 0; i < count; i++)
        if (strlen(list[i]) == len && !strncasecmp(list[i], name, len))
            return i;
    return strlen(none) == len && !strncasecmp(none, name, len) ? -1 : -2;
}

const char *slr_tune_func_name(int func)
{
    return name_of(funcs, COUNT(funcs), func);
}

const char *slr_tune_algo_name(int algo)
{
    return name_of(algos, COUNT(algos), algo);
}

const char *slr_tune_proto_name(int proto)
{
    return name_of(protos, COUNT(protos), proto);
}

int slr_tune_func_number(const char *name, size_t len)
{
    return number_of(funcs, SLR_NCCL_TUNED_FUNCS, "any", name, len); /* they stand first in the table */
}

int slr_tune_algo_number(const char *name, size_t len)
{
    return number_of(algos, COUNT(algos), "default", name, len);
}

int slr_tune_proto_number(const char *name, size_t len)
{
    return number_of(protos, COUNT(protos), "default", name, len);
}

/* ---- data types ---- */

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [ncclInt8] = {"int8", 1},     [ncclUint8] = {"uint8", 1},     [ncclInt32] = {"int32", 4},
    [ncclUint32] = {"uint32", 4}, [ncclInt64] = {"int64", 8},     [ncclUint64] = {"uint64", 8},
    [ncclFloat16] = {"fp16", 2},  [ncclFloat32] = {"fp32", 4},    [ncclFloat64] = {"fp64", 8},
    [ncclBfloat16] = {"bf16", 2}, [ncclFloat8e4m3] = {"e4m3", 1}, [ncclFloat8e5m2] = {"e5m2", 1},
};

/* The application's value, or that of a later NCCL: it may be outside of the table. */
static bool known_type(ncclDataType_t type)
{
    return (size_t)type < sizeof types / sizeof *types && types[type].bytes;
}

const char *slr_type_name(ncclDataType_t type)
{
    return known_type(type) ? types[type].name : "?";
}

size_t slr_type_bytes(ncclDataType_t type)
{
    return known_type(type) ? types[type].bytes : 0;
}
