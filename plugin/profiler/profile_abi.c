/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that NCCL loads, one for each version of its profiler interface (abi/profiler.h). They only translate. */
#include "plugin/abi/profiler.h"
#include "plugin/profiler/profile_impl.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/util/process.h"

#define EXPORTED __attribute__((visibility("default")))

/* What is asked for. Kernel channels have a time stamp from v4 on, and are of no use before. */
#define MASK_V1 (SLR_PROFILE_COLL | SLR_PROFILE_P2P)
#define MASK_V4 (MASK_V1 | SLR_PROFILE_KERNEL_CH)
#define MASK_V6 (MASK_V4 | SLR_PROFILE_CE_COLL)

/* Off, without memory, or where nothing is wanted: no context and no events, and never an error, which would fail
 * NCCL's init. */
static ncclResult_t open_comm(void **context, int *mask, int wanted, const struct slr_profile_comm *comm)
{
    *context = wanted ? slr_profile_open(comm) : NULL;
    *mask = *context ? wanted : 0;
    return ncclSuccess;
}

static ncclResult_t stop_event(void *handle)
{
    slr_profile_stop(handle);
    return ncclSuccess;
}

/* Of kernel channels, for which v1 to v3 are not asked. */
static ncclResult_t channel_state(void *handle, int what, const union slr_profile_state *args)
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

/* NCCL of v1 has no type behind this one. */
static unsigned type_v1(unsigned type)
{
    return type <= ncclBfloat16 ? type + 1 : 0;
}

static ncclResult_t start_v1(void *context, void **handle, const struct slr_profile_event_v1 *e)
{
    *handle = NULL;
    if (e->type == SLR_PROFILE_COLL) {
        struct slr_profile_op op = {.func = slr_tune_func_name(e->coll.func),
                                    .algo = slr_tune_algo_name(e->coll.algo),
                                    .proto = slr_tune_proto_name(e->coll.proto),
                                    .type = type_v1(e->coll.datatype),
                                    .seq = e->coll.seq,
                                    .count = e->coll.count,
                                    .channels = e->coll.channels,
                                    .peer = -1,
                                    .rank = e->rank,
                                    .hash = e->coll.comm_hash};
        *handle = slr_profile_start(context, &op);
    } else if (e->type == SLR_PROFILE_P2P) {
        struct slr_profile_op op = {.func = slr_tune_func_name(e->p2p.func),
                                    .type = type_v1(e->p2p.datatype),
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
                             .type = slr_profile_type_id((e)->coll.datatype),                                          \
                             .seq = (e)->coll.seq,                                                                     \
                             .count = (e)->coll.count,                                                                 \
                             .channels = (e)->coll.channels,                                                           \
                             .peer = -1,                                                                               \
                             .rank = (e)->rank,                                                                        \
                             more})
#define P2P(e, more...)                                                                                                \
    ((struct slr_profile_op){.func = (e)->p2p.func,                                                                    \
                             .type = slr_profile_type_id((e)->p2p.datatype),                                           \
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

/* The copy engines' collectives have no kernel, so no GPU time; "MC" and "UC" is how their ranks synchronise. */
static void *start_ce(void *context, const struct slr_profile_event_v6 *e)
{
    struct slr_profile_op op = {.func = e->ce_coll.func,
                                .algo = "CE",
                                .proto = e->ce_coll.sync_strategy,
                                .type = slr_profile_type_id(e->ce_coll.datatype),
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

#define UNTOLD .nranks = -1, .rank = -1
#define TOLD .hash = hash, .nranks = nranks, .rank = rank, .log = log

/* Each callback does this copy's work, or hands on to the copy that was loaded first (process.h). `own` is this copy's
 * table by a name that another copy's can not take the place of, as it does of an exported one. init has the arguments
 * that the version has, first those that are answers. */
#define TABLE(v, params, with, wanted, ...)                                                                            \
    extern EXPORTED const struct slr_profiler_v##v ncclProfiler_v##v;                                                  \
    extern const struct slr_profiler_v##v own_v##v __attribute__((alias("ncclProfiler_v" #v), visibility("hidden")));  \
    static inline const struct slr_profiler_v##v *first_v##v(void)                                                     \
    {                                                                                                                  \
        static struct slr_first first;                                                                                 \
        return slr_first_instance(&first, "ncclProfiler_v" #v, &own_v##v);                                             \
    }                                                                                                                  \
    static inline const struct slr_profiler_v##v *other_v##v(void)                                                     \
    {                                                                                                                  \
        const struct slr_profiler_v##v *first = first_v##v();                                                          \
        return first != &own_v##v ? first : NULL;                                                                      \
    }                                                                                                                  \
    static ncclResult_t open_v##v(params)                                                                              \
    {                                                                                                                  \
        const struct slr_profiler_v##v *other = other_v##v();                                                          \
        return other ? other->init with                                                                                \
                     : open_comm(context, mask, first_v##v() ? (wanted) : 0,                                           \
                                 &(struct slr_profile_comm){.version = (v), __VA_ARGS__});                             \
    }                                                                                                                  \
    static ncclResult_t begin_v##v(void *context, void **handle, const struct slr_profile_event_v##v *e)               \
    {                                                                                                                  \
        const struct slr_profiler_v##v *other = other_v##v();                                                          \
        return other ? other->start_event(context, handle, e) : start_v##v(context, handle, e);                        \
    }                                                                                                                  \
    static ncclResult_t stop_v##v(void *handle)                                                                        \
    {                                                                                                                  \
        const struct slr_profiler_v##v *other = other_v##v();                                                          \
        return other ? other->stop_event(handle) : stop_event(handle);                                                 \
    }                                                                                                                  \
    static ncclResult_t state_v##v(void *handle, int state, const union slr_profile_state *args)                       \
    {                                                                                                                  \
        const struct slr_profiler_v##v *other = other_v##v();                                                          \
        return other ? other->record_event_state(handle, state, args) : channel_state(handle, state, args);            \
    }                                                                                                                  \
    static ncclResult_t end_v##v(void *context)                                                                        \
    {                                                                                                                  \
        const struct slr_profiler_v##v *other = other_v##v();                                                          \
        return other ? other->finalize(context) : finalize(context);                                                   \
    }                                                                                                                  \
    const struct slr_profiler_v##v ncclProfiler_v##v = {SLR_PLUGIN_NAME, open_v##v,  begin_v##v,                       \
                                                        stop_v##v,       state_v##v, end_v##v}

TABLE(1, SLR_PROFILE_INIT_V1, (context, mask), MASK_V1, UNTOLD);
TABLE(2, SLR_PROFILE_INIT_V1, (context, mask), MASK_V1, UNTOLD);
TABLE(3, SLR_PROFILE_INIT_V1, (context, mask), MASK_V1, UNTOLD);
TABLE(4, SLR_PROFILE_INIT_V4, (context, mask, name, hash, nnodes, nranks, rank, log), MASK_V4, TOLD);
TABLE(5, SLR_PROFILE_INIT_V5, (context, hash, mask, name, nnodes, nranks, rank, log), MASK_V4, TOLD);
TABLE(6, SLR_PROFILE_INIT_V5, (context, hash, mask, name, nnodes, nranks, rank, log), MASK_V6, TOLD);
