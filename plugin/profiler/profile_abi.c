/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that NCCL loads, one for each version of its profiler interface (abi/profiler.h). They
 * only translate. */
#include "base/wait.h"
#include "plugin/abi/profiler.h"
#include "plugin/profiler/profile_impl.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/util/process.h"

#define EXPORTED __attribute__((visibility("default")))

/* What is asked for. Kernel channels have a time stamp from v4 on, and are of no use before. */
#define MASK_V1 (SLR_PROFILE_COLL | SLR_PROFILE_P2P)
#define MASK_V4 (MASK_V1 | SLR_PROFILE_KERNEL_CH)
#define MASK_V6 (MASK_V4 | SLR_PROFILE_CE_COLL)

/* Off, or without memory: no context and no events, and never an error, which would fail NCCL's
 * init. */
static ncclResult_t open_comm(void **context, int *mask, int wanted, const struct slr_profile_comm *comm)
{
    *context = slr_profile_open(comm);
    *mask = *context ? wanted : 0;
    return ncclSuccess;
}

static ncclResult_t init_untold(void **context, int *mask, int version)
{
    struct slr_profile_comm comm = {.version = version, .nranks = -1, .rank = -1};
    return open_comm(context, mask, MASK_V1, &comm);
}

static ncclResult_t init_v1(void **context, int *mask)
{
    return init_untold(context, mask, 1);
}

static ncclResult_t init_v2(void **context, int *mask)
{
    return init_untold(context, mask, 2);
}

static ncclResult_t init_v3(void **context, int *mask)
{
    return init_untold(context, mask, 3);
}

static ncclResult_t init_v4(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks,
                            int rank, slr_nccl_logger log)
{
    (void)name, (void)nnodes;
    struct slr_profile_comm comm = {.version = 4, .hash = hash, .nranks = nranks, .rank = rank, .log = log};
    return open_comm(context, mask, MASK_V4, &comm);
}

static ncclResult_t init_v5(void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks,
                            int rank, slr_nccl_logger log)
{
    (void)name, (void)nnodes;
    struct slr_profile_comm comm = {.version = 5, .hash = hash, .nranks = nranks, .rank = rank, .log = log};
    return open_comm(context, mask, MASK_V4, &comm);
}

static ncclResult_t init_v6(void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks,
                            int rank, slr_nccl_logger log)
{
    (void)name, (void)nnodes;
    struct slr_profile_comm comm = {.version = 6, .hash = hash, .nranks = nranks, .rank = rank, .log = log};
    return open_comm(context, mask, MASK_V6, &comm);
}

static ncclResult_t stop_event(void *handle)
{
    slr_profile_stop(handle);
    return ncclSuccess;
}

/* Nothing that is asked for changes its state in v1 to v3. */
static ncclResult_t nothing(void *handle, int what, const union slr_profile_state_v1 *args)
{
    (void)handle, (void)what, (void)args;
    return ncclSuccess;
}

static ncclResult_t channel_state(void *handle, int what, const union slr_profile_state_v4 *args)
{
    if (what == SLR_PROFILE_STATE_KERNEL_CH_STOP && args)
        slr_profile_channel_ended(handle, args->kernel_ch.ptimer);
    return ncclSuccess;
}

static ncclResult_t finalize(void *context)
{
    slr_profile_close(context);
    return ncclSuccess;
}

/* ---- v1: numbers for names ---- */

static const char *func_v1(int func)
{
    /* NCCL of v1 has no function behind Recv. */
    return func >= 0 && func <= SLR_NCCL_RECV ? slr_tune_func_name(func) : NULL;
}

#define NAME(table, i) ((size_t)(i) < sizeof(table) / sizeof *(table) ? (table)[i] : NULL)

static const char *const algos_v1[] = {
    [SLR_NCCL_TREE] = "TREE",
    [SLR_NCCL_RING] = "RING",
    [SLR_NCCL_COLLNET_DIRECT] = "COLLNET_DIRECT",
    [SLR_NCCL_COLLNET_CHAIN] = "COLLNET_CHAIN",
    [SLR_NCCL_NVLS] = "NVLS",
    [SLR_NCCL_NVLS_TREE] = "NVLS_TREE",
    [SLR_NCCL_PAT] = "PAT",
};
static const char *const protos_v1[] = {[SLR_NCCL_LL] = "LL", [SLR_NCCL_LL128] = "LL128", [SLR_NCCL_SIMPLE] = "SIMPLE"};
static const char *const types_v1[] = {
    [ncclInt8] = "ncclInt8",        [ncclUint8] = "ncclUint8",     [ncclInt32] = "ncclInt32",
    [ncclUint32] = "ncclUint32",    [ncclInt64] = "ncclInt64",     [ncclUint64] = "ncclUint64",
    [ncclFloat16] = "ncclFloat16",  [ncclFloat32] = "ncclFloat32", [ncclFloat64] = "ncclFloat64",
    [ncclBfloat16] = "ncclBfloat16"};

static ncclResult_t start_v1(void *context, void **handle, const struct slr_profile_event_v1 *e)
{
    *handle = NULL;
    if (e->type == SLR_PROFILE_COLL) {
        struct slr_profile_op op = {.func = func_v1(e->coll.func),
                                    .algo = NAME(algos_v1, e->coll.algo),
                                    .proto = NAME(protos_v1, e->coll.proto),
                                    .datatype = NAME(types_v1, e->coll.datatype),
                                    .seq = e->coll.seq,
                                    .count = e->coll.count,
                                    .channels = e->coll.channels,
                                    .peer = -1,
                                    .rank = e->rank,
                                    .hash = e->coll.comm_hash};
        *handle = slr_profile_start(context, &op);
    } else if (e->type == SLR_PROFILE_P2P) {
        struct slr_profile_op op = {.func = func_v1(e->p2p.func),
                                    .datatype = NAME(types_v1, e->p2p.datatype),
                                    .count = e->p2p.count,
                                    .peer = e->p2p.peer,
                                    .rank = e->rank,
                                    .hash = e->p2p.comm_hash};
        *handle = slr_profile_start(context, &op);
    }
    return ncclSuccess;
}

/* ---- v2 and later: the same fields by the same names, in other places ---- */

#define COLL(e, more...)                                                                                               \
    ((struct slr_profile_op){.func = (e)->coll.func,                                                                   \
                             .algo = (e)->coll.algo,                                                                   \
                             .proto = (e)->coll.proto,                                                                 \
                             .datatype = (e)->coll.datatype,                                                           \
                             .seq = (e)->coll.seq,                                                                     \
                             .count = (e)->coll.count,                                                                 \
                             .channels = (e)->coll.channels,                                                           \
                             .peer = -1,                                                                               \
                             .rank = (e)->rank,                                                                        \
                             more})
#define P2P(e, more...)                                                                                                \
    ((struct slr_profile_op){.func = (e)->p2p.func,                                                                    \
                             .datatype = (e)->p2p.datatype,                                                            \
                             .count = (e)->p2p.count,                                                                  \
                             .peer = (e)->p2p.peer,                                                                    \
                             .rank = (e)->rank,                                                                        \
                             more})

#define START_V2_TO_V3(version)                                                                                        \
    static ncclResult_t start_v##version(void *context, void **handle, const struct slr_profile_event_v##version *e)   \
    {                                                                                                                  \
        *handle = NULL;                                                                                                \
        if (e->type == SLR_PROFILE_COLL)                                                                               \
            *handle = slr_profile_start(context, &COLL(e, .hash = e->coll.comm_hash));                                 \
        else if (e->type == SLR_PROFILE_P2P)                                                                           \
            *handle = slr_profile_start(context, &P2P(e, .hash = e->p2p.comm_hash));                                   \
        return ncclSuccess;                                                                                            \
    }
START_V2_TO_V3(2)
START_V2_TO_V3(3)

static ncclResult_t start_v4(void *context, void **handle, const struct slr_profile_event_v4 *e)
{
    *handle = NULL;
    if (e->type == SLR_PROFILE_COLL)
        *handle = slr_profile_start(context, &COLL(e, .timed = true));
    else if (e->type == SLR_PROFILE_P2P)
        *handle = slr_profile_start(context, &P2P(e, .channels = e->p2p.channels, .timed = true));
    else if (e->type == SLR_PROFILE_KERNEL_CH)
        *handle = slr_profile_channel(e->parent, e->kernel_ch.ptimer);
    return ncclSuccess;
}

/* An operation's kernel channels name it as their parent, an operation the application's call. */
#define START_V5(context, e)                                                                                           \
    ((e)->type == SLR_PROFILE_COLL_API  ? slr_profile_call(context, (e)->coll_api.datatype)                            \
     : (e)->type == SLR_PROFILE_P2P_API ? slr_profile_call(context, (e)->p2p_api.datatype)                             \
     : (e)->type == SLR_PROFILE_COLL    ? slr_profile_start(context, &COLL(e, .parent = (e)->parent, .timed = true))   \
     : (e)->type == SLR_PROFILE_P2P                                                                                    \
         ? slr_profile_start(context, &P2P(e, .parent = (e)->parent, .channels = (e)->p2p.channels, .timed = true))    \
     : (e)->type == SLR_PROFILE_KERNEL_CH ? slr_profile_channel((e)->parent, (e)->kernel_ch.ptimer)                    \
                                          : NULL)

static ncclResult_t start_v5(void *context, void **handle, const struct slr_profile_event_v5 *e)
{
    *handle = START_V5(context, e);
    return ncclSuccess;
}

/* The copy engines' collectives have no kernel, so no GPU time; "MC" and "UC" is how their ranks
 * synchronise. */
static void *start_ce(void *context, const struct slr_profile_event_v6 *e)
{
    struct slr_profile_op op = {.func = e->ce_coll.func,
                                .algo = "CE",
                                .proto = e->ce_coll.sync_strategy,
                                .datatype = e->ce_coll.datatype,
                                .seq = e->ce_coll.seq,
                                .count = e->ce_coll.count,
                                .peer = -1,
                                .rank = e->rank,
                                .parent = e->parent};
    return slr_profile_start(context, &op);
}

static ncclResult_t start_v6(void *context, void **handle, const struct slr_profile_event_v6 *e)
{
    *handle = e->type == SLR_PROFILE_CE_COLL ? start_ce(context, e) : START_V5(context, e);
    return ncclSuccess;
}

/* ---- the tables ---- */

/* Where another copy of this library was loaded first, its table does the work (process.h): found
 * out at the first init, and every call is then handed on to it. NULL: that copy has no such table,
 * and nothing is done. `own` is this copy's table by a name that another copy's can not take the
 * place of, as it does of an exported one. */
#define FIRST(version)                                                                                                 \
    static const struct slr_profiler_v##version *first_v##version(void)                                                \
    {                                                                                                                  \
        static struct slr_once once;                                                                                   \
        static const struct slr_profiler_v##version *first;                                                            \
        if (!slr_once_done(&once) && slr_once_begin(&once)) {                                                          \
            first = slr_first_instance("ncclProfiler_v" #version, &own_v##version);                                    \
            slr_once_end(&once);                                                                                       \
        }                                                                                                              \
        return first;                                                                                                  \
    }
#define OTHER(version, first) ((first) && (first) != &own_v##version)

/* The callbacks of one version: each does this copy's work, or hands on to the first copy's. */
#define EVENTS(version, states, own_state)                                                                             \
    extern EXPORTED const struct slr_profiler_v##version ncclProfiler_v##version;                                      \
    extern const struct slr_profiler_v##version own_v##version                                                         \
        __attribute__((alias("ncclProfiler_v" #version), visibility("hidden")));                                       \
    FIRST(version)                                                                                                     \
    static ncclResult_t begin_v##version(void *context, void **handle, const struct slr_profile_event_v##version *e)   \
    {                                                                                                                  \
        const struct slr_profiler_v##version *first = first_v##version();                                              \
        return OTHER(version, first) ? first->start_event(context, handle, e) : start_v##version(context, handle, e);  \
    }                                                                                                                  \
    static ncclResult_t stop_v##version(void *handle)                                                                  \
    {                                                                                                                  \
        const struct slr_profiler_v##version *first = first_v##version();                                              \
        return OTHER(version, first) ? first->stop_event(handle) : stop_event(handle);                                 \
    }                                                                                                                  \
    static ncclResult_t state_v##version(void *handle, int state, const union states *args)                            \
    {                                                                                                                  \
        const struct slr_profiler_v##version *first = first_v##version();                                              \
        return OTHER(version, first) ? first->record_event_state(handle, state, args)                                  \
                                     : own_state(handle, state, args);                                                 \
    }                                                                                                                  \
    static ncclResult_t end_v##version(void *context)                                                                  \
    {                                                                                                                  \
        const struct slr_profiler_v##version *first = first_v##version();                                              \
        return OTHER(version, first) ? first->finalize(context) : finalize(context);                                   \
    }

/* init with the arguments that this version has, first those that are answers. */
#define TABLE(version, params, args)                                                                                   \
    static ncclResult_t open_v##version params                                                                         \
    {                                                                                                                  \
        const struct slr_profiler_v##version *first = first_v##version();                                              \
        if (OTHER(version, first))                                                                                     \
            return first->init args;                                                                                   \
        *context = NULL;                                                                                               \
        *mask = 0;                                                                                                     \
        return first ? init_v##version args : ncclSuccess;                                                             \
    }                                                                                                                  \
    const struct slr_profiler_v##version ncclProfiler_v##version = {                                                   \
        SLR_PLUGIN_NAME, open_v##version, begin_v##version, stop_v##version, state_v##version, end_v##version}

EVENTS(1, slr_profile_state_v1, nothing)
EVENTS(2, slr_profile_state_v1, nothing)
EVENTS(3, slr_profile_state_v1, nothing)
EVENTS(4, slr_profile_state_v4, channel_state)
EVENTS(5, slr_profile_state_v4, channel_state)
EVENTS(6, slr_profile_state_v4, channel_state)
TABLE(1, (void **context, int *mask), (context, mask));
TABLE(2, (void **context, int *mask), (context, mask));
TABLE(3, (void **context, int *mask), (context, mask));
TABLE(4,
      (void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank,
       slr_nccl_logger log),
      (context, mask, name, hash, nnodes, nranks, rank, log));
TABLE(5,
      (void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks, int rank,
       slr_nccl_logger log),
      (context, hash, mask, name, nnodes, nranks, rank, log));
TABLE(6,
      (void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks, int rank,
       slr_nccl_logger log),
      (context, hash, mask, name, nnodes, nranks, rank, log));
