/* SPDX-License-Identifier: Apache-2.0 */
#include "profiler.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "comm.h"
#include "plugin/abi/profiler.h"
#include "plugin_load.h"

#define P2P_CHANNELS 2
#define FUNCS 11

struct profiler {
    const struct slr_profiler_v5 *plugin;
    void *context;
    _Atomic uint64_t seq[FUNCS];
    int pending, closing; /* launches that the proxy thread has; under its lock */
};

struct profiled_op {
    void *event; /* of the operation */
    int channels;
    void *channel[SLR_NCCL_MAX_CHANNELS];
};

struct profiled {
    struct profiled *next;
    struct ncclComm *comm; /* a reference */
    _Atomic int refs;      /* the kernel's and the launch's, which becomes the proxy thread's */
    _Atomic uint64_t begun, ended;
    int started;
    size_t count;
    struct profiled_op op[];
};

static _Atomic int event_mask; /* one for the process: the last communicator's answer */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct profiled *list;
    int running;
} proxy = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static _Thread_local struct {
    const struct slr_profiler_v5 *plugin;
    void *group;
} api;

static const char *type_name(ncclDataType_t type)
{
    static const char *const names[] = {[ncclInt8] = "ncclInt8",
                                        [ncclInt32] = "ncclInt32",
                                        [ncclUint32] = "ncclUint32",
                                        [ncclInt64] = "ncclInt64",
                                        [ncclUint64] = "ncclUint64",
                                        [ncclFloat16] = "ncclFloat16",
                                        [ncclFloat32] = "ncclFloat32",
                                        [ncclFloat64] = "ncclFloat64",
                                        [ncclBfloat16] = "ncclBfloat16",
                                        [ncclFloat8e4m3] = "ncclFloat8e4m3",
                                        [ncclFloat8e5m2] = "ncclFloat8e5m2"};
    return (unsigned)type < ncclNumTypes && names[type] ? names[type] : "Unknown"; /* as NCCL: uint8 is forgotten */
}

static const struct {
    const char *name; /* NULL: not announced */
    enum slr_nccl_func func;
    int p2p, in_bytes;
} kinds[] = {
    [OP_ALL_GATHER] = {"AllGather", SLR_NCCL_ALL_GATHER, 0, 1},
    [OP_ALL_REDUCE] = {"AllReduce", SLR_NCCL_ALL_REDUCE, 0, 0},
    [OP_BROADCAST] = {"Broadcast", SLR_NCCL_BROADCAST, 0, 1},
    [OP_REDUCE] = {"Reduce", SLR_NCCL_REDUCE, 0, 0},
    [OP_REDUCE_SCATTER] = {"ReduceScatter", SLR_NCCL_REDUCE_SCATTER, 0, 0},
    [OP_GATHER] = {NULL, SLR_NCCL_GATHER, 0, 0},
    [OP_SCATTER] = {NULL, SLR_NCCL_SCATTER, 0, 0},
    [OP_ALL_TO_ALL] = {NULL, SLR_NCCL_ALL_TO_ALL, 0, 0},
    [OP_SEND] = {"Send", SLR_NCCL_SEND, 1, 0},
    [OP_RECV] = {"Recv", SLR_NCCL_RECV, 1, 0},
};

static const char *const algo_names[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const proto_names[] = {"LL", "LL128", "SIMPLE"};

/* ---- communicators ---- */

void profiler_open(struct ncclComm *comm)
{
    static const char *const versions[] = {"ncclProfiler_v5", NULL};
    int version, mask = 0;
    uint64_t hash;
    const struct slr_profiler_v5 *plugin = plugin_use(PLUGIN_PROFILER, versions, &version);
    struct profiler *p = plugin ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return;
    memcpy(&hash, comm->block.hdr->secret, sizeof hash);
    p->plugin = plugin;
    mask = atomic_load(&event_mask);
    if (plugin->init(&p->context, hash, &mask, NULL, 1, comm->nranks, comm->rank, nccl_plugin_log) != ncclSuccess)
        nccl_info(SLR_NCCL_SUBSYS_INIT, "Profiler init failed. Continue without profiler.");
    atomic_store(&event_mask, mask);
    comm->profiler = p;
}

void profiler_close(struct ncclComm *comm)
{
    struct profiler *p = comm->profiler;
    if (!p)
        return;
    pthread_mutex_lock(&proxy.lock);
    p->closing = 1;
    pthread_cond_broadcast(&proxy.changed);
    while (p->pending)
        pthread_cond_wait(&proxy.changed, &proxy.lock);
    pthread_mutex_unlock(&proxy.lock);
    if (p->context)
        p->plugin->finalize(p->context);
    comm->profiler = NULL;
    free(p);
    plugin_unuse(PLUGIN_PROFILER);
}

/* ---- the application's calls ---- */

static void start_group(const struct profiler *p, int grouped)
{
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_GROUP_API, .group_api.depth = grouped ? 1 : 0};
    if (api.group || api.plugin)
        return;
    api.plugin = p->plugin;
    p->plugin->start_event(p->context, &api.group, &e);
    if (api.group)
        p->plugin->record_event_state(api.group, 23, NULL); /* ncclProfilerGroupStartApiStop */
}

static struct slr_profile_event_v5 call_event(const struct op *op)
{
    struct slr_profile_event_v5 e = {.parent = api.group};
    if (kinds[op->kind].p2p) {
        e.type = SLR_PROFILE_P2P_API;
        e.p2p_api.func = kinds[op->kind].name;
        e.p2p_api.count = op->count;
        e.p2p_api.datatype = type_name(op->type);
        e.p2p_api.stream = op->stream;
    } else {
        e.type = SLR_PROFILE_COLL_API;
        e.coll_api.func = kinds[op->kind].name;
        e.coll_api.count = op->count;
        e.coll_api.datatype = type_name(op->type);
        e.coll_api.root = op->root;
        e.coll_api.stream = op->stream;
    }
    return e;
}

void profiler_call(struct op *op, int grouped)
{
    const struct profiler *p = op->comm->profiler;
    op->call_event = NULL;
    if (!p || !atomic_load(&event_mask) || !kinds[op->kind].name)
        return;
    start_group(p, grouped);
    struct slr_profile_event_v5 e = call_event(op);
    p->plugin->start_event(p->context, &op->call_event, &e);
    if (op->call_event)
        p->plugin->stop_event(op->call_event);
}

void profiler_launching(void)
{
    if (api.group)
        api.plugin->record_event_state(api.group, 24, NULL); /* ncclProfilerGroupEndApiStart */
}

void profiler_launched(void)
{
    if (api.group)
        api.plugin->stop_event(api.group);
    api.group = NULL;
    api.plugin = NULL;
}

/* ---- launches ---- */

struct profiled *profiled_new(struct ncclComm *comm, const struct op *ops)
{
    size_t count = 0;
    if (!comm->profiler || !atomic_load(&event_mask))
        return NULL;
    for (const struct op *op = ops; op; op = op->next)
        count += kinds[op->kind].name != NULL;
    struct profiled *p = count ? calloc(1, sizeof *p + count * sizeof *p->op) : NULL;
    if (!p)
        return NULL;
    p->comm = comm_get(comm);
    p->count = count;
    atomic_store(&p->refs, 2);
    return p;
}

static void put(struct profiled *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    comm_put(p->comm);
    free(p);
}

void profiled_drop(struct profiled *p)
{
    if (!p)
        return;
    put(p);
    put(p);
}

static uint64_t gpu_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void stamp(_Atomic uint64_t *when)
{
    atomic_store(when, gpu_clock());
    pthread_mutex_lock(&proxy.lock);
    pthread_cond_broadcast(&proxy.changed);
    pthread_mutex_unlock(&proxy.lock);
}

void profiled_begun(struct profiled *p)
{
    if (p)
        stamp(&p->begun);
}

void profiled_ended(struct profiled *p)
{
    if (!p)
        return;
    stamp(&p->ended);
    put(p);
}

static void start_channels(struct profiled *p)
{
    const struct profiler *to = p->comm->profiler;
    for (size_t i = 0; i < p->count; i++)
        for (int c = 0; c < p->op[i].channels; c++) {
            struct slr_profile_event_v5 e = {.type = SLR_PROFILE_KERNEL_CH, .parent = p->op[i].event};
            e.kernel_ch.channel = (uint8_t)c;
            e.kernel_ch.ptimer = atomic_load(&p->begun);
            to->plugin->start_event(to->context, &p->op[i].channel[c], &e);
        }
}

static void stop_channels(struct profiled *p)
{
    const struct profiler *to = p->comm->profiler;
    union slr_profile_state args = {.kernel_ch.ptimer = atomic_load(&p->ended)};
    for (size_t i = 0; i < p->count; i++)
        for (int c = 0; c < p->op[i].channels; c++)
            if (p->op[i].channel[c]) {
                to->plugin->record_event_state(p->op[i].channel[c], SLR_PROFILE_STATE_KERNEL_CH_STOP, &args);
                to->plugin->stop_event(p->op[i].channel[c]);
            }
}

/* One launch, as far as it has come. True: done with it. Without the lock: the plugin may take its time. */
static int progress(struct profiled *p)
{
    if (!p->started && atomic_load(&p->begun)) {
        start_channels(p);
        p->started = 1;
    }
    if (!p->started || !atomic_load(&p->ended))
        return 0;
    stop_channels(p);
    return 1;
}

static int can_progress(const struct profiled *p)
{
    return p->comm->profiler->closing || atomic_load(&p->ended) || (!p->started && atomic_load(&p->begun));
}

/* Takes out the first launch that something has happened to; waits for one. Under the lock. */
static struct profiled *take_ready(void)
{
    for (;;) {
        for (struct profiled **at = &proxy.list; *at; at = &(*at)->next)
            if (can_progress(*at)) {
                struct profiled *p = *at;
                *at = p->next;
                return p;
            }
        pthread_cond_wait(&proxy.changed, &proxy.lock);
    }
}

static void *proxy_thread(void *arg)
{
    pthread_mutex_lock(&proxy.lock);
    for (;;) {
        struct profiled *p = take_ready();
        struct profiler *to = p->comm->profiler;
        int over = to->closing && !atomic_load(&p->ended);
        pthread_mutex_unlock(&proxy.lock);
        over |= progress(p);
        pthread_mutex_lock(&proxy.lock);
        if (!over) {
            p->next = proxy.list;
            proxy.list = p;
            continue;
        }
        to->pending--;
        pthread_cond_broadcast(&proxy.changed);
        pthread_mutex_unlock(&proxy.lock);
        put(p);
        pthread_mutex_lock(&proxy.lock);
    }
    return arg;
}

static void hand_to_proxy(struct profiled *p)
{
    pthread_t thread;
    pthread_mutex_lock(&proxy.lock);
    if (!proxy.running && pthread_create(&thread, NULL, proxy_thread, NULL) == 0) {
        pthread_detach(thread);
        proxy.running = 1;
    }
    int taken = proxy.running && !p->comm->profiler->closing;
    if (taken) {
        p->next = proxy.list;
        proxy.list = p;
        p->comm->profiler->pending++;
        pthread_cond_broadcast(&proxy.changed);
    }
    pthread_mutex_unlock(&proxy.lock);
    if (!taken)
        put(p);
}

static struct slr_profile_event_v5 op_event(struct ncclComm *comm, const struct op *op, void *group)
{
    struct slr_profile_event_v5 e = {.parent = op->call_event, .rank = comm->rank};
    size_t bytes = kinds[op->kind].in_bytes ? type_bytes(op->type) : 1;
    if (kinds[op->kind].p2p) {
        e.type = SLR_PROFILE_P2P;
        e.p2p.func = kinds[op->kind].name;
        e.p2p.buffer = op->kind == OP_SEND ? (void *)(uintptr_t)op->send : op->recv;
        e.p2p.count = op->count;
        e.p2p.datatype = type_name(op->type);
        e.p2p.peer = op->root;
        e.p2p.channels = P2P_CHANNELS;
        e.p2p.parent_group = group;
        return e;
    }
    e.type = SLR_PROFILE_COLL;
    e.coll.seq = comm->profiler->seq[kinds[op->kind].func]++;
    e.coll.func = kinds[op->kind].name;
    e.coll.send = op->send;
    e.coll.recv = op->recv;
    e.coll.count = op->count * bytes;
    e.coll.root = op->root;
    e.coll.datatype = kinds[op->kind].in_bytes ? "ncclInt8" : type_name(op->type);
    e.coll.channels = (uint8_t)op->channels;
    e.coll.warps = 16;
    e.coll.algo = algo_names[op->algo];
    e.coll.proto = proto_names[op->proto];
    e.coll.parent_group = group;
    return e;
}

/* The operations begin, their channels are the proxy's from now on, and they end: whatever the GPU does. The channels
 * may be over before the last of them. */
void profiled_launched(struct profiled *p, const struct op *ops)
{
    if (!p)
        return;
    struct profiler *to = p->comm->profiler;
    int mask = atomic_load(&event_mask);
    struct slr_profile_event_v5 group = {.type = SLR_PROFILE_GROUP};
    void *group_event = NULL, *events[p->count];
    size_t n = 0;
    to->plugin->start_event(to->context, &group_event, &group);
    for (const struct op *op = ops; op; op = op->next) {
        if (!kinds[op->kind].name)
            continue;
        struct slr_profile_event_v5 e = op_event(p->comm, op, group_event);
        events[n] = NULL;
        if (mask &
            (kinds[op->kind].p2p ? SLR_PROFILE_P2P | SLR_PROFILE_KERNEL_CH : SLR_PROFILE_COLL | SLR_PROFILE_KERNEL_CH))
            to->plugin->start_event(to->context, &events[n], &e);
        p->op[n].event = events[n];
        p->op[n++].channels = !(mask & SLR_PROFILE_KERNEL_CH) ? 0 : kinds[op->kind].p2p ? P2P_CHANNELS : op->channels;
    }
    hand_to_proxy(p);
    for (size_t i = 0; i < n; i++)
        if (events[i])
            to->plugin->stop_event(events[i]);
    if (group_event)
        to->plugin->stop_event(group_event);
}
