/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's data types: name for logs, bytes of an element. */
#include "plugin/util/nccl_type.h"

#include <stdbool.h>

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
