/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring for `slipring tune` (SLIPRING_TUNE_EXPLORE): for each communicator, collective and size class, call k is
 * made with a candidate that k alone decides, and its time on the stream is taken by events and logged: exploring,
 * without SLIPRING_TUNE_FILE, or confirming it (docs/tuning.md). The candidates are in the order of the cost table, so
 * all ranks choose alike by the number of the call. After SLIPRING_TUNE_EXPLORE rounds NCCL's default is used, or the
 * table decides. The ranks have agreed on both settings and the table (tuner_match.c).
 *
 * Measured are calls outside groups that are not captured; one at a time for each thread. */
#include "base/hash.h"
#include "base/settings.h"
#include "plugin/tuner/tune_table.h"
#include "plugin/tuner/tuner.h"

#include <pthread.h>
#include <string.h>
#include "base/status.h"
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/group_kept.h"
#include "plugin/abi/nccl_common.h"

/* Channels of the candidates of one algorithm and protocol; 0: NCCL's number. TIMERS: calls in flight in the process.
 * One that finds no timer uses up its candidate's turn all the same, as the other ranks count it. */
static const int channel_counts[] = {0, 4, 16};
enum { COUNTS = sizeof channel_counts / sizeof *channel_counts, TIMERS = 64 };

/* What the tuner answered to the call that this thread is in. */
struct answer {
    bool given;
    uint64_t comm_hash;
    struct slr_tuner_ask ask;
    struct slr_tuner_choice choice;
    size_t nnodes;
    uint32_t call;
    int candidate, candidates, size_class;
};

/* One measured call. */
struct timer {
    enum { FREE, CALLING, RUNNING } state;
    CUevent begin, end;
    CUstream stream;
    char comm[9];
    int crank, nranks;
    struct answer answer;
};

static struct timer timers[TIMERS]; /* state: under the lock; the rest: whoever has it CALLING */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct answer answered __attribute__((tls_model("initial-exec")));
static _Thread_local struct timer *calling __attribute__((tls_model("initial-exec")));

/* The n-th algorithm and protocol that NCCL has not excluded, from 0. False: there are not so many;
 * *n is then how many. */
static bool nth_pair(const struct slr_tuner_ask *ask, int *n, struct slr_tuner_choice *out)
{
    int found = 0;
    for (int i = 0; i < ask->algos * ask->protos; i++)
        if (ask->cost[i] >= 0 && found++ == *n) {
            out->algo = i / ask->protos;
            out->proto = i % ask->protos;
            return true;
        }
    *n = found;
    return false;
}

static const struct slr_tuner_choice nccls = {-1, -1, 0}; /* leave it to NCCL */

/* Exploring: how many candidates there are. */
static int count_pairs(const struct slr_tuner_ask *ask)
{
    struct slr_tuner_choice unused;
    int pairs = INT32_MAX;
    nth_pair(ask, &pairs, &unused);
    return 1 + pairs * COUNTS;
}

/* Candidate 0 is NCCL's default; then COUNTS of each pair. CollNet's channels can not be chosen. */
static struct slr_tuner_choice nth_candidate(const struct slr_tuner_ask *ask, int candidate)
{
    struct slr_tuner_choice choice = nccls;
    int pair = (candidate - 1) / COUNTS;
    if (candidate > 0 && nth_pair(ask, &pair, &choice))
        choice.channels = channel_counts[(candidate - 1) % COUNTS];
    bool collnet = choice.algo == SLR_NCCL_COLLNET_DIRECT || choice.algo == SLR_NCCL_COLLNET_CHAIN;
    choice.channels = collnet ? 0 : choice.channels;
    return choice;
}

/* A rule of defaults only is NCCL's choice, and there is nothing to compare. */
static bool wishes(const struct slr_tune_rule *rule)
{
    return rule && (rule->algo >= 0 || rule->proto >= 0 || rule->channels);
}

/* Confirming: of calls 2j and 2j + 1 each candidate gets one, the first of them by the parity of the ones in j. By the
 * parity of the call alone a program that makes two kinds of calls in turn would compare those. */
static int turn_of(uint32_t call)
{
    return __builtin_parity(call);
}

bool slr_explore_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, const struct slr_tune_rule *rule,
                        struct slr_tuner_choice *choice)
{
    const struct slr_tune_state *state = slr_tune_state();
    bool confirms = state->path[0];
    int size_class = ask->bytes ? 63 - __builtin_clzll(ask->bytes) : 0;
    if (!state->samples || !ask->cost || ask->pipe_ops != 1 || (confirms && !wishes(rule)))
        return false;
    int candidates = confirms ? 2 : count_pairs(ask);
    /* All ranks count the same calls, so all have the same candidate at the same call. */
    uint32_t call = tuner->explore.calls[ask->func][size_class][ask->registered]++;
    if (call / (unsigned)candidates >= state->samples)
        return false;
    int candidate = confirms ? turn_of(call) : (int)(call % (unsigned)candidates);
    if (confirms)
        *choice = candidate ? (struct slr_tuner_choice){rule->algo, rule->proto, rule->channels} : nccls;
    else
        *choice = nth_candidate(ask, candidate);
    /* NCCL asks inside of the application's call, on its thread: slr_explore_end finds it there. */
    answered = (struct answer){.given = true,
                               .comm_hash = tuner->comm_hash,
                               .ask = *ask,
                               .choice = *choice,
                               .nnodes = tuner->nnodes,
                               .call = call,
                               .candidate = candidate,
                               .candidates = candidates,
                               .size_class = size_class};
    return true;
}

void slr_explore_drop(void)
{
    answered.given = false;
}

static void report(const struct timer *m, float ms)
{
    const struct answer *a = &m->answer;
    /* CUDA tells milliseconds, the log nanoseconds. */
    slr_log(
        SLR_LOG_INFO, "explored",
        "comm=%s comm_hash=%016llx crank=%d nranks=%d nnodes=%zu func=%s bytes=%zu size_class=%d registered=%d call=%u "
        "candidate=%d candidates=%d algo=%s proto=%s channels=%d ns=%llu",
        m->comm, (unsigned long long)a->comm_hash, m->crank, m->nranks, a->nnodes, slr_tune_func_name(a->ask.func),
        a->ask.bytes, a->size_class, (int)a->ask.registered, a->call, a->candidate, a->candidates,
        slr_tune_algo_name(a->choice.algo), slr_tune_proto_name(a->choice.proto), a->choice.channels,
        (unsigned long long)((double)ms * 1e6));
}

/* This thread's calls on slipring's own events are allowed whatever another stream captures. */
static void enter(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    slr_swap_capture_mode(mode);
}

static void leave(CUstreamCaptureMode *mode)
{
    slr_swap_capture_mode(mode);
}

/* The next timer from *i on in state `from`, which becomes CALLING: the caller's alone. NULL: there
 * is none. The lock is held for this only, never while the driver is called. */
static struct timer *take_timer(int *i, int from)
{
    struct timer *m = NULL;
    pthread_mutex_lock(&lock);
    for (; *i < TIMERS && !m; ++*i)
        if ((int)timers[*i].state == from)
            m = &timers[*i];
    if (m)
        m->state = CALLING;
    pthread_mutex_unlock(&lock);
    return m;
}

static void give_back_timer(struct timer *m, int state)
{
    pthread_mutex_lock(&lock);
    m->state = state;
    pthread_mutex_unlock(&lock);
}

static void destroy(struct timer *m)
{
    slr_real.cuEventDestroy(m->begin);
    slr_real.cuEventDestroy(m->end);
    give_back_timer(m, FREE);
}

static void drain(void)
{
    struct timer *m;
    for (int i = 0; (m = take_timer(&i, RUNNING)) != NULL;) {
        float ms;
        /* Asked, not waited for: the application's thread is here. */
        if (slr_real.cuEventQuery(m->end) == CUDA_ERROR_NOT_READY) {
            give_back_timer(m, RUNNING);
            continue;
        }
        if (slr_real.cuEventElapsedTime(&ms, m->begin, m->end) == CUDA_SUCCESS)
            report(m, ms);
        destroy(m);
    }
}

static bool can_measure(CUstream stream)
{
    return slr_tune_state()->samples && slr_real.cuEventElapsedTime && slr_real.cuEventQuery &&
           !slr_stream_captures(stream);
}

/* What the table's head says of the machine, once for each communicator. */
static void introduce(const struct slr_comm *c)
{
    CUdevice dev;
    char name[96] = "";
    int version = 0;
    /* "expl" in ASCII, and the rank: ranks may be threads of one process. */
    if (!slr_log_first(slr_mix(slr_comm_id(c), 0x6578706cu + (uint64_t)c->rank)))
        return;
    if (slr_real.cuCtxGetDevice(&dev) == CUDA_SUCCESS)
        slr_real.cuDeviceGetName(name, sizeof name, dev);
    slr_real.ncclGetVersion(&version);
    slr_log(SLR_LOG_INFO, "explore", "comm=%s crank=%d nranks=%d samples=%u nccl=%d device=%s", c->name, c->rank,
            c->nranks, slr_tune_state()->samples, version, name);
}

/* NULL: all timers are in use, or events could not be made; the call is not measured then. */
static struct timer *start(const struct slr_comm *c, CUstream stream)
{
    introduce(c);
    int i = 0;
    struct timer *m = take_timer(&i, FREE);
    if (!m)
        return NULL;
    /* Events for this call alone: they belong to a context, and the next call may be on another device. */
    if (slr_real.cuEventCreate(&m->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        give_back_timer(m, FREE);
        return NULL;
    }
    if (slr_real.cuEventCreate(&m->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        slr_real.cuEventDestroy(m->begin);
        give_back_timer(m, FREE);
        return NULL;
    }
    m->stream = stream;
    m->crank = c->rank;
    m->nranks = c->nranks;
    memcpy(m->comm, c->name, sizeof m->comm);
    slr_real.cuEventRecord(m->begin, stream);
    return m;
}

void slr_explore_begin(const struct slr_comm *c, CUstream stream)
{
    CUstreamCaptureMode mode;
    if (calling) /* one of NCCL's functions calls another */
        return;
    /* In a group NCCL begins at its end: stamps around the call would bound nothing. */
    answered.given = false;
    if (!c || slr_in_group() || !slr_get(SLR_S_TUNE_EXPLORE) || !can_measure(stream))
        return;
    enter(&mode);
    drain();
    calling = start(c, stream);
    leave(&mode);
}

ncclResult_t slr_explore_end(ncclResult_t result)
{
    struct timer *m = calling;
    CUstreamCaptureMode mode;
    if (!m)
        return result;
    calling = NULL;
    enter(&mode);
    /* No answer was asked for: a call that NCCL does not tune, or one that the rounds are over for. */
    if (result == ncclSuccess && answered.given && slr_real.cuEventRecord(m->end, m->stream) == CUDA_SUCCESS) {
        m->answer = answered;
        give_back_timer(m, RUNNING);
    } else {
        destroy(m);
    }
    leave(&mode);
    return result;
}

void slr_explore_drain(void)
{
    CUstreamCaptureMode mode;
    if (!slr_get(SLR_S_TUNE_EXPLORE) || !slr_real.cuEventQuery)
        return;
    enter(&mode);
    drain();
    leave(&mode);
}
