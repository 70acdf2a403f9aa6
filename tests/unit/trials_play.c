/* SPDX-License-Identifier: Apache-2.0 */
#include "trials_play.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/gemm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/group_kept.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/tuner/tuner.h"

/* ---- what the folder uses ---- */

static int64_t ticks;          /* calls of both ranks */
static double now[RANKS];      /* ms, of each rank's device; */
static double in_group[RANKS]; /* what it has to do at the end of the group that is open */
static struct slr_comm *here;  /* whose call it is */
bool broken, reduces;
int ahead, phase;

struct event {
    double at;
    int64_t tick;
};

static CUresult CUDAAPI create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy(CUevent event)
{
    free((void *)event);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    (void)stream;
    if (broken)
        return CUDA_ERROR_UNKNOWN;
    *(struct event *)event = (struct event){now[here->rank], ticks};
    return CUDA_SUCCESS;
}

/* The device is never done when the site's next call comes. */
static CUresult CUDAAPI query(CUevent event)
{
    return ticks > ((struct event *)event)->tick + 1 + ahead * RANKS * RANKS ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI query_stream(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_NOT_READY;
}

static CUresult CUDAAPI elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)(((struct event *)to)->at - ((struct event *)from)->at);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI captures(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "fake");
    return CUDA_SUCCESS;
}

static ncclResult_t nccl_version(int *version)
{
    *version = 22700;
    return ncclSuccess;
}

/* The host takes no time, however busy the machine is. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    *t = (struct timespec){0};
    return 0;
}

enum slr_status slr_shared_enter(const struct slr_shared *s)
{
    (void)s;
    return SLR_OK;
}

void slr_shared_leave(void) {}

int grouped;
static struct slr_group group;
static bool open;

struct slr_group *slr_group_now(void)
{
    return open ? &group : NULL;
}

unsigned kept;
struct slr_tune_site latest_kept;

void slr_tune_keep(const struct slr_tune_site *rule)
{
    kept++;
    latest_kept = *rule;
}

bool slr_tune_read(struct slr_tune_table *table)
{
    (void)table;
    return false;
}

const char *slr_tune_path(void)
{
    return "";
}

void slr_tune_free(struct slr_tune_table *table)
{
    (void)table;
}

void slr_tune_gpu_word(const char *name, char word[SLR_TUNE_GPU])
{
    snprintf(word, SLR_TUNE_GPU, "%s", name);
}

enum slr_reason slr_gemm_describe(struct slr_gemm *gemm)
{
    (void)gemm;
    return SLR_R_FUSED;
}

int64_t before_m, stranger_m;

bool slr_gemm_needs_all(const struct slr_gemm *gemm, bool on_a, enum slr_sums which)
{
    (void)on_a;
    (void)which;
    return gemm->m == before_m;
}

const char *slr_gemm_reads(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks, size_t *bytes)
{
    (void)g;
    (void)nranks;
    *bytes = 0;
    return gemm->m == stranger_m ? "part" : "all";
}

/* ---- the program ---- */

struct rank ranks[RANKS];

int slr_comm_hold_all(struct slr_comm **list, int max)
{
    (void)max;
    list[0] = here;
    return 1;
}

void slr_comm_put(struct slr_comm *c)
{
    (void)c;
}

struct model model;
const struct model *models, *by_size;
const char *program, *sizes, *groups;
int64_t gemm_m;
size_t shard;
static struct slr_control *control;

static size_t of_program(const char *what, const struct rank *r)
{
    return (size_t)r->calls % strlen(what);
}

static size_t size_of(const struct rank *r)
{
    return sizes ? (size_t)(sizes[of_program(sizes, r)] - '0') : 1;
}

/* Where the next call stands. */
static void enter_group(const struct rank *r)
{
    static uint64_t begun[RANKS];
    const char at = groups ? groups[of_program(groups, r)] : grouped && r->calls % grouped == 0 ? '(' : '-';
    if (groups)
        grouped = at != '.';
    open = grouped;
    begun[r->comm.rank] += at == '(';
    group.number = begun[r->comm.rank];
}

static bool leaves_group(const struct rank *r)
{
    if (groups)
        return groups[of_program(groups, r)] == '.' || groups[of_program(groups, r)] == ')';
    return !grouped || r->calls % grouped == grouped - 1;
}

/* Of the i-th call of a group; nothing is there. */
static void *buffer(const struct rank *r, int i)
{
    return (void *)((uintptr_t)(2 * i + r->comm.rank + 1) << 40);
}

static double takes(const struct rank *r, const struct went *w, size_t size)
{
    const struct model *m = by_size ? &by_size[size - 1] : models ? &models[gemm_m / 8 - 1] : &model;
    if (w->why != SLR_R_RING)
        return m->nccl;
    const double ms = m->parts[w->parts] > 0 ? m->parts[w->parts] : m->pace;
    return r->comm.trials->site[r->comm.trials->now.site].again > 0 && m->later > 0 ? ms * m->later : ms;
}

double beside[2], hiccup, half[2];
bool steady;
const double *uneven;

/* What else the program does before its next call. */
static double takes_beside(const struct rank *r, const struct went *w)
{
    const struct slr_turns *turns = &r->comm.trials->blocks.turns;
    const uint64_t number = r->comm.trials->agreed.calls - 1;
    double ms = beside[w->why != SLR_R_RING] + half[(r->calls + phase) / 12 % 2];
    if (turns->rounds && number >= turns->after) {
        const uint64_t block = (number - turns->after) / turns->run;
        ms += uneven ? uneven[block % 6] : !steady && (uint64_t)slr_duel_way(block) == block / 2 % 2 ? 3 : 0;
    }
    return ms;
}

/* The GEMM of the i-th call of a group, behind it. */
static void compute(const struct rank *r, struct slr_gemm gemm, int i)
{
    const int64_t of[] = {before_m, stranger_m, reduces ? 0 : gemm.m};
    gemm.b = buffer(r, i);
    for (int k = 0; k < 3; k++) {
        gemm.m = of[k];
        if (gemm.m)
            slr_trials_gemm(&gemm, NULL, NULL);
    }
}

/* The calls of each rank's open group, which the device has at its end. */
enum { MOST = 64 };
static struct {
    struct slr_call call[MOST];
    struct slr_gemm gemm[MOST];
    int calls;
} waiting[RANKS];

static void wait_for_end(const struct rank *r, struct slr_call *call, const struct slr_gemm *gemm)
{
    const int i = waiting[r->comm.rank].calls++;
    cr_assert(i < MOST);
    call->kept = call->why == SLR_R_RING;
    if (call->kept)
        slr_trials_watcher.kept(call);
    else {
        slr_trials_watcher.leaves(call);
        slr_trials_watcher.left(call, ncclSuccess);
    }
    waiting[r->comm.rank].call[i] = *call;
    waiting[r->comm.rank].gemm[i] = *gemm;
}

static void device_has(const struct slr_call *call)
{
    slr_trials_watcher.begins(call, NULL);
    slr_trials_watcher.enqueued(call, &(struct slr_watched){.status = SLR_OK});
}

static void end_group(struct rank *r)
{
    open = false;
    for (int i = 0; i < waiting[r->comm.rank].calls; i++)
        if (waiting[r->comm.rank].call[i].kept)
            device_has(&waiting[r->comm.rank].call[i]);
    for (int i = 0; i < waiting[r->comm.rank].calls; i++)
        compute(r, waiting[r->comm.rank].gemm[i], i);
    waiting[r->comm.rank].calls = 0;
}

static void one(struct rank *r)
{
    if (program)
        gemm_m = 8 * (program[of_program(program, r)] - 'a' + 1);
    struct slr_gemm gemm = {.m = gemm_m, .n = 8, .k = 8, .batch = 1};
    const size_t size = size_of(r);
    static const struct slr_flow gathers = {.kind = &slr_collectives[SLR_ALL_GATHER]},
                                 all = {.kind = &slr_collectives[SLR_ALL_REDUCE]};
    struct slr_call call = {.flow = reduces ? &all : &gathers, .comm = &r->comm, .shard = shard * size};
    enter_group(r);
    call.recv = buffer(r, waiting[r->comm.rank].calls);
    const bool leaves = leaves_group(r);
    struct went *w = &r->went[r->calls++];
    uint32_t blocks = 0; /* of a shard; by the size as without */
    ticks += RANKS;
    here = &r->comm;
    if (reduces) {
        blocks = slr_trials_blocks(&r->comm, call.shard, call.flow->kind, &gemm, NULL);
        call.made = slr_trials_name(&gemm, SLR_CONSUMER_C);
    }
    w->why = call.why = slr_trials_call(&call);
    w->trying = r->comm.trials->now.trying;
    w->stage = r->comm.trials->now.site < 0 ? 0 : r->comm.trials->site[r->comm.trials->now.site].again;
    if (open)
        wait_for_end(r, &call, &gemm);
    else
        slr_trials_watcher.begins(&call, NULL);
    w->parts = w->why == SLR_R_RING && !reduces              ? slr_trials_parts(&r->comm, &call.turn, &gemm, false)
               : w->why == SLR_R_RING && blocks < UINT32_MAX ? blocks
                                                             : 0;
    in_group[r->comm.rank] += takes(r, w, size);
    if (leaves) {
        now[r->comm.rank] += in_group[r->comm.rank];
        in_group[r->comm.rank] = 0;
    }
    if (r->comm.rank == 1 && (uint64_t)r->calls * 0x9e3779b97f4a7c15u >> 40 < (1u << 24) / 37)
        now[r->comm.rank] += hiccup;
    if (!open) {
        slr_trials_watcher.enqueued(&call, &(struct slr_watched){.status = SLR_OK});
        compute(r, gemm, 0);
    } else if (leaves) {
        end_group(r);
    }
    now[r->comm.rank] += takes_beside(r, w);
}

void go(int calls)
{
    const int from = ranks[0].calls;
    cr_assert(from + calls <= CALLS);
    for (int done = 0, some; done < calls; done += some) {
        some = calls - done < AHEAD ? calls - done : AHEAD;
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < some; i++)
                one(&ranks[done / AHEAD % 2 ? RANKS - 1 - r : r]);
    }
    for (int i = from; i < from + calls; i++)
        for (int r = 1; r < RANKS; r++)
            cr_assert(ranks[0].went[i].why == ranks[r].went[i].why && ranks[0].went[i].parts == ranks[r].went[i].parts,
                      "call %d: %s, %u parts on rank 0, %s, %u on rank %d", i, slr_reason_name(ranks[0].went[i].why),
                      ranks[0].went[i].parts, slr_reason_name(ranks[r].went[i].why), ranks[r].went[i].parts, r);
}

void trials_open(void)
{
    slr_real.cuEventCreate = create;
    slr_real.cuEventDestroy = destroy;
    slr_real.cuEventRecord = record;
    slr_real.cuEventQuery = query;
    slr_real.cuStreamQuery = query_stream;
    slr_real.cuEventElapsedTime = elapsed;
    slr_real.cuStreamIsCapturing = captures;
    slr_real.cuDeviceGetName = device_name;
    slr_real.ncclGetVersion = nccl_version;
    const size_t bytes = slr_control_bytes(RANKS);
    control = aligned_alloc(SLR_CONTROL_PAGE, bytes);
    cr_assert(control);
    memset(control, 0, bytes);
    for (int r = 0; r < RANKS; r++) {
        struct slr_comm *c = &ranks[r].comm;
        c->lane = &ranks[r].lane;
        c->rank = r;
        c->nranks = RANKS;
        c->shared.control = control;
        pthread_mutex_init(&c->lane->lock, NULL);
        control->post[r].tries = slr_trials_prepare(c);
        cr_assert_eq(control->post[r].tries, 3);
    }
    for (int r = 0; r < RANKS; r++)
        slr_trials_open(&ranks[r].comm);
    for (int r = 0; r < RANKS; r++)
        slr_trials_ready(&ranks[r].comm);
    gemm_m = 8;
    before_m = stranger_m = 0;
    shard = LARGE;
}

void trials_close(void)
{
    for (int r = 0; r < RANKS; r++)
        slr_trials_close(&ranks[r].comm, false);
    free(control);
}

int tried(int from, int to)
{
    int n = 0;
    for (int i = from; i < to; i++)
        n += ranks[0].went[i].trying;
    return n;
}

int in_stage(uint32_t stage, int parts)
{
    int n = 0;
    for (int i = 0; i < ranks[0].calls; i++) {
        const struct went *w = &ranks[0].went[i];
        n += w->trying && w->stage == stage && (parts < 0 || (w->why == SLR_R_RING && w->parts == (uint32_t)parts));
    }
    return n;
}

const struct went *latest(void)
{
    return &ranks[0].went[ranks[0].calls - 1];
}

uint32_t control_rows(int rank)
{
    return ranks[0].comm.trials->shared->post[rank].site[0].rows;
}
