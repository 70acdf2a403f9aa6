/* SPDX-License-Identifier: Apache-2.0 */
/* Names that NCCL gives, as numbers: a record holds them in a byte each, and they outlive the
 * library they came from.
 */
#include <sched.h>
#include <string.h>
#include "plugin/profiler/profile_sum.h"
#include "plugin/util/nccl_names.h"

#define NAME_BYTES 24

/* Filled from the front and never emptied, so a reader needs no lock: FREE -> WRITING -> WRITTEN.
 */
enum { FREE, WRITING, WRITTEN };
static struct {
    _Atomic int state;
    char text[NAME_BYTES]; /* as NCCL writes it */
    const char *shown;
} names[SLR_PROFILE_NAMES];

static bool same(unsigned i, const char *name)
{
    return strncmp(names[i].text, name, NAME_BYTES - 1) == 0;
}

/* Algorithms and protocols are called as in the tuner's lines and tables: NCCL tells profilers
 * "COLLNET_DIRECT" of what is CollNetDirect elsewhere. The result lives as long as the process:
 * `name` is a text of the table above. */
static const char *as_elsewhere(const char *name)
{
    char bare[NAME_BYTES];
    size_t n = 0;
    for (const char *p = name; *p; p++)
        if (*p != '_')
            bare[n++] = *p;
    int algo = slr_tune_algo_number(bare, n), proto = slr_tune_proto_number(bare, n);
    return algo >= 0 ? slr_tune_algo_name(algo) : proto >= 0 ? slr_tune_proto_name(proto) : name;
}

/* Names never leave: the first free place ends the search. */
unsigned slr_profile_name_id(const char *name)
{
    for (unsigned i = 0; name && *name && i < SLR_PROFILE_NAMES; i++) {
        int state = FREE;
        if (atomic_compare_exchange_strong(&names[i].state, &state, WRITING)) {
            strncpy(names[i].text, name, NAME_BYTES - 1);
            names[i].shown = as_elsewhere(names[i].text);
            atomic_store_explicit(&names[i].state, WRITTEN, memory_order_release);
            return i + 1;
        }
        /* Somebody writes this place now, perhaps the same name: wait for it, which takes moments.
         */
        while (atomic_load_explicit(&names[i].state, memory_order_acquire) != WRITTEN)
            sched_yield();
        if (same(i, name))
            return i + 1;
    }
    return 0;
}

const char *slr_profile_name(unsigned id)
{
    return id ? names[id - 1].shown : "?";
}

unsigned slr_profile_type_id(const char *nccl_name)
{
    static const char *const types[] = {
        [ncclInt8] = "Int8",         [ncclUint8] = "Uint8",           [ncclInt32] = "Int32",
        [ncclUint32] = "Uint32",     [ncclInt64] = "Int64",           [ncclUint64] = "Uint64",
        [ncclFloat16] = "Float16",   [ncclFloat32] = "Float32",       [ncclFloat64] = "Float64",
        [ncclBfloat16] = "Bfloat16", [ncclFloat8e4m3] = "Float8e4m3", [ncclFloat8e5m2] = "Float8e5m2",
    };
    if (!nccl_name)
        return 0;
    for (unsigned type = 0; strncmp(nccl_name, "nccl", 4) == 0 && type < sizeof types / sizeof *types; type++)
        if (strcmp(nccl_name + 4, types[type]) == 0)
            return type + 1;
    /* What NCCL up to 2.30 calls the only type that it has forgotten to name. */
    return strcmp(nccl_name, "Unknown") == 0 ? ncclUint8 + 1 : 0;
}
