/* SPDX-License-Identifier: Apache-2.0 */
/* The structs that NCCL looks up. Each callback only turns its version's arguments into those of tuner.h.
 *
 * Arguments that can not be are answered with NCCL's defaults, not with an error: an error fails
 * the application's call. */
#include "plugin/abi/tuner.h"

#include "plugin/tuner/tuner.h"
#include "plugin/util/process.h"

#define TUNED(func) ((unsigned)(func) < SLR_NCCL_TUNED_FUNCS)

/* NCCL's channels are changed only where there is a choice of them. */
static void ask(void *context, struct slr_tuner_ask *a, int *channels, struct slr_tuner_choice *choice)
{
    *choice = (struct slr_tuner_choice){-1, -1, 0};
    if (!context || !TUNED(a->func))
        return;
    slr_tuner_choose(context, a, choice);
    if (channels && choice->channels > 0)
        *channels = choice->channels;
}

/* v3 and later. */
static ncclResult_t answer(void *context, int func, size_t bytes, int pipe_ops, float **cost, int algos, int protos,
                           int registered, int *channels)
{
    struct slr_tuner_choice choice;
    struct slr_tuner_ask a = {.func = func,
                              .bytes = bytes,
                              .pipe_ops = pipe_ops,
                              .registered = registered > 0,
                              .cost = (float *)cost, /* really [algos][protos] */
                              .algos = algos,
                              .protos = protos};
    /* NCCL's tables have 7 x 3 entries: what is far beyond that is none, and their product has to fit an int. */
    if (cost && algos > 0 && protos > 0 && algos <= 1024 && protos <= 1024)
        ask(context, &a, channels, &choice);
    return ncclSuccess;
}

static ncclResult_t make(int version, void **context, uint64_t comm_id, size_t nranks, size_t nnodes,
                         slr_nccl_logger log)
{
    if (!context)
        return ncclInvalidArgument;
    /* NULL: no memory, and NCCL's defaults. */
    struct slr_tuner *t = slr_tuner_new(version, comm_id, nranks, nnodes, slr_tuner_hooked(), log);
    /* It waits for the agreement of its communicator (tuner_match.c). */
    if (t && atomic_load(&t->state) == SLR_TUNER_WAITING)
        slr_tuner_made(t);
    *context = t;
    return ncclSuccess;
}

static ncclResult_t end(void *context)
{
    /* NULL: init had no memory. */
    slr_tuner_put(context);
    return ncclSuccess;
}

/* Where another copy of this library was loaded first, all calls go to its table, and where that copy has none of this
 * version they do nothing. The tables themselves are at the end. */
#define FIRST(v)                                                                                                       \
    static const struct slr_tuner_v##v own_v##v;                                                                       \
    static const struct slr_tuner_v##v *first_v##v(void)                                                               \
    {                                                                                                                  \
        static struct slr_first first;                                                                                 \
        return slr_first_instance(&first, "ncclTunerPlugin_v" #v, &own_v##v);                                          \
    }
FIRST(2)
FIRST(3)
FIRST(4)
FIRST(5)
FIRST(6)

#define FORWARD(v, ...)                                                                                                \
    do {                                                                                                               \
        const struct slr_tuner_v##v *first_ = first_v##v();                                                            \
        if (first_ != &own_v##v)                                                                                       \
            return first_ ? first_->__VA_ARGS__ : ncclSuccess;                                                         \
    } while (0)

#define OLD_INIT(v)                                                                                                    \
    static ncclResult_t init_v##v(SLR_TUNER_INIT_V2)                                                                   \
    {                                                                                                                  \
        if (!first_v##v() && context)                                                                                  \
            *context = NULL;                                                                                           \
        FORWARD(v, init(nranks, nnodes, log, context));                                                                \
        return make(v, context, 0, nranks, nnodes, log);                                                               \
    }
#define NEW_INIT(v)                                                                                                    \
    static ncclResult_t init_v##v(SLR_TUNER_INIT_V5)                                                                   \
    {                                                                                                                  \
        if (!first_v##v() && context)                                                                                  \
            *context = NULL;                                                                                           \
        FORWARD(v, init(context, comm_id, nranks, nnodes, log, domains, constants));                                   \
        return make(v, context, comm_id, nranks, nnodes, log);                                                         \
    }
#define END(v, what)                                                                                                   \
    static ncclResult_t end_v##v(void *context)                                                                        \
    {                                                                                                                  \
        FORWARD(v, what(context));                                                                                     \
        return end(context);                                                                                           \
    }
#define ANSWER(v)                                                                                                      \
    static ncclResult_t answer_v##v(SLR_TUNER_ASK_V4)                                                                  \
    {                                                                                                                  \
        FORWARD(v, get_coll_info(context, func, bytes, pipe_ops, cost, algos, protos, registered, channels));          \
        return answer(context, (int)func, bytes, pipe_ops, cost, algos, protos, registered, channels);                 \
    }

OLD_INIT(2)
OLD_INIT(3)
OLD_INIT(4)
NEW_INIT(5)
NEW_INIT(6)
END(2, destroy)
END(3, destroy)
END(4, destroy)
END(5, finalize)
END(6, finalize)
ANSWER(4)
ANSWER(5)
ANSWER(6)

static ncclResult_t answer_v3(SLR_TUNER_ASK_V3)
{
    FORWARD(3, get_coll_info(context, func, bytes, pipe_ops, cost, algos, protos, channels));
    return answer(context, (int)func, bytes, pipe_ops, cost, algos, protos, 0, channels);
}

static ncclResult_t answer_v2(SLR_TUNER_ASK_V2)
{
    struct slr_tuner_choice choice;
    struct slr_tuner_ask a = {
        .func = (int)func, .bytes = bytes, .pipe_ops = pipe_ops, .collnet = collnet > 0, .nvls = nvls > 0};
    FORWARD(2, get_coll_info(context, func, bytes, collnet, nvls, pipe_ops, algorithm, protocol, channels));
    ask(context, &a, channels, &choice);
    /* v2 takes both or neither. */
    if (algorithm && protocol && choice.algo >= 0 && choice.proto >= 0) {
        *algorithm = choice.algo;
        *protocol = choice.proto;
    }
    return ncclSuccess;
}

static const struct slr_tuner_v2 own_v2 = {SLR_PLUGIN_NAME, init_v2, answer_v2, end_v2};
static const struct slr_tuner_v3 own_v3 = {SLR_PLUGIN_NAME, init_v3, answer_v3, end_v3};
static const struct slr_tuner_v4 own_v4 = {SLR_PLUGIN_NAME, init_v4, answer_v4, end_v4};
static const struct slr_tuner_v5 own_v5 = {SLR_PLUGIN_NAME, init_v5, answer_v5, end_v5};
/* NCCL's chunk sizes stay: no get_chunk_size. */
static const struct slr_tuner_v6 own_v6 = {SLR_PLUGIN_NAME, init_v6, answer_v6, end_v6, NULL};

/* In a second copy of the library the exported names mean the first one's; the static names are its own. */
#define EXPORT(v) extern const struct slr_tuner_v##v ncclTunerPlugin_v##v __attribute__((alias("own_v" #v)))
EXPORT(2);
EXPORT(3);
EXPORT(4);
EXPORT(5);
EXPORT(6);
