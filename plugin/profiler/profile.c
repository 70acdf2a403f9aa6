/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators as NCCL announces them, and what is known of an operation when it begins: how NCCL's side
 * and slipring's are brought together.
 *
 *   Communicator   NCCL calls the plugin's init while it makes a communicator, on the calling
 *                  thread or on one of its own. A communicator that is being made through a hook is
 *                  announced (slr_profile_init). init takes the announcement of its own thread,
 *                  else the only one that fits ranks and rank. Where several fit (communicators of
 *                  the same size made in one group), or NCCL is not to be waited for
 *                  (non-blocking), the first all-gather that slipring passes on it tells. Until
 *                  then, and where nothing is hooked, the name is "?".
 *   Call           From NCCL 2.28 (v5) on, an event comes from inside the application's call, on
 *                  its thread, and the operation that NCCL makes of it names that event as its
 *                  parent. Before 2.28 an operation outside of groups begins inside the call; of one
 *                  in a group its call is 0 and its reason "-". */
#include "base/hash.h"
#include "base/settings.h"
#include "plugin/profiler/profile_impl.h"

#include "plugin/comm/call.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/wait.h"
#include "plugin/tuner/tuner.h"
#include "plugin/abi/nccl_common.h"

/* The application's call that is with NCCL on this thread; NULL: none. */
static _Thread_local const struct slr_call *with_nccl __attribute__((tls_model("initial-exec")));

/* A handle of the application's call is what there is to know of it: nothing to keep, nothing to free. Bits 63..16
 * number of the call, 15..8 reason, 7..2 type, 1..0 kind: 1, beside those of records. */
#define CALL_KIND 1u
#define TYPE_SHIFT 2
#define REASON_SHIFT 8
#define NUMBER_SHIFT 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the two lists */
static struct slr_profile *open_list;
static struct slr_profile_init *inits;
static pid_t owner; /* a child after fork has the list, but not the communicators */

/* ---- communicators that are being made ---- */

void slr_profile_init(struct slr_profile_init *init, const char *comm, int nranks, int rank)
{
    if (!slr_get(SLR_S_PROFILE)) /* `listed` stays false, so the end does nothing */
        return;
    *init = (struct slr_profile_init){.nranks = nranks, .rank = rank, .listed = true, .thread = pthread_self()};
    strncpy(init->comm, comm, sizeof init->comm - 1);
    pthread_mutex_lock(&lock);
    init->next = inits;
    inits = init;
    pthread_mutex_unlock(&lock);
}

void slr_profile_init_end(struct slr_profile_init *init)
{
    if (!init->listed)
        return;
    init->listed = false;
    pthread_mutex_lock(&lock);
    struct slr_profile_init **at = &inits;
    while (*at && *at != init)
        at = &(*at)->next;
    if (*at)
        *at = init->next;
    pthread_mutex_unlock(&lock);
}

/* What one side does not know fits anything. */
static bool fits(const struct slr_profile_init *init, int nranks, int rank, bool own_thread)
{
    return !init->taken && (init->nranks < 0 || nranks < 0 || init->nranks == nranks) &&
           (init->rank < 0 || rank < 0 || init->rank == rank) &&
           (!own_thread || pthread_equal(init->thread, pthread_self()));
}

/* The only one that fits, or NULL. */
static struct slr_profile_init *only(int nranks, int rank, bool own_thread)
{
    struct slr_profile_init *found = NULL;
    for (struct slr_profile_init *init = inits; init; init = init->next)
        if (fits(init, nranks, rank, own_thread)) {
            if (found)
                return NULL;
            found = init;
        }
    return found;
}

bool slr_profile_init_take(int nranks, int rank, char comm[9])
{
    pthread_mutex_lock(&lock);
    /* The own thread's first: NCCL makes most communicators on the calling thread. */
    struct slr_profile_init *init = only(nranks, rank, true);
    if (!init)
        init = only(nranks, rank, false);
    if (init) {
        init->taken = true;
        memcpy(comm, init->comm, sizeof init->comm);
    }
    pthread_mutex_unlock(&lock);
    return init != NULL;
}

/* ---- communicators ---- */

static void end(struct slr_profile *p)
{
    pthread_mutex_lock(&slr_profile_lock);
    slr_oprecord_flush(p);
    pthread_mutex_unlock(&slr_profile_lock);
    slr_profile_log_sums(p);
}

/* Programs often exit without destroying their communicators. */
static void at_exit(void)
{
    if (getpid() != owner) /* a fork's child, which would write everything a second time */
        return;
    pthread_mutex_lock(&lock);
    for (struct slr_profile *p = open_list; p; p = p->next)
        end(p);
    pthread_mutex_unlock(&lock);
}

static void once(void)
{
    static struct slr_once begun;
    if (!slr_once_begin(&begun))
        return;
    owner = getpid();
    if (atexit(at_exit) != 0)
        slr_log(SLR_LOG_WARN, "profile", "msg=%s", "what is open when the process ends will not be summed up");
    slr_once_end(&begun);
}

/* To NCCL's own log, where a user looks whether a plugin was loaded. */
static void tell_nccl(const struct slr_profile_comm *c, const char *what)
{
    if (c->log)
        c->log(SLR_NCCL_LOG_INFO, SLR_NCCL_SUBSYS_INIT, __FILE__, __LINE__, "slipring %s: profiler v%d, %s",
               SLIPRING_VERSION, c->version, what);
}

struct slr_profile *slr_profile_open(const struct slr_profile_comm *comm)
{
    if (!slr_get(SLR_S_PROFILE)) {
        tell_nccl(comm, "off (SLIPRING_PROFILE)");
        return NULL;
    }
    struct slr_profile *p = calloc(1, sizeof *p);
    if (!p) {
        slr_log(SLR_LOG_WARN, "profile", "comm_hash=%llx msg=%s", (unsigned long long)comm->hash,
                "no memory: the communicator is not profiled");
        return NULL;
    }
    once();
    slr_log_set_rank(comm->rank); /* nothing is hooked, perhaps: nobody else says it */
    p->who = (struct slr_profile_who){.nranks = comm->nranks, .rank = comm->rank, .hash = comm->hash};
    char name[9];
    if (slr_profile_init_take(comm->nranks, comm->rank, name))
        slr_profile_bind(p, name);
    pthread_mutex_lock(&lock);
    p->next = open_list;
    open_list = p;
    pthread_mutex_unlock(&lock);
    tell_nccl(comm, "on");
    /* "prof" in ASCII; one line for each case, as in tuner.c. */
    if (slr_log_first(slr_mix(0x70726f66, (uint64_t)slr_tuner_hooked())))
        slr_log(SLR_LOG_INFO, "profiler", "interface=v%d interposed=%d msg=%s", comm->version, (int)slr_tuner_hooked(),
                slr_tuner_hooked()
                    ? "NCCL has loaded this library as its profiler"
                    : "only named in the environment, not preloaded: no call is substituted, and what NCCL "
                      "runs can not be brought together with decisions");
    return p;
}

void slr_profile_close(struct slr_profile *p)
{
    if (!p || getpid() != owner) /* the parent's */
        return;
    pthread_mutex_lock(&lock);
    struct slr_profile **at = &open_list;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    pthread_mutex_unlock(&lock);
    /* Off the list first, so that an exit on another thread does not write them, too. */
    end(p);
    free(p);
}

/* ---- calls and operations ---- */

static bool is_call(const void *handle)
{
    return ((uintptr_t)handle & 3) == CALL_KIND;
}

void *slr_profile_call(struct slr_profile *p, const char *datatype)
{
    const struct slr_call *by = with_nccl;
    /* From v5 on this is the first event of a call: here a communicator without a name gets one. */
    if (p && by)
        slr_profile_bind(p, by->comm->name);
    uint64_t reason = by && by->passed ? (uint64_t)by->why : SLR_R_COUNT, number = by ? by->passed : 0;
    return (void *)(uintptr_t)(number << NUMBER_SHIFT | reason << REASON_SHIFT |
                               (uint64_t)slr_profile_type_id(datatype) << TYPE_SHIFT | CALL_KIND);
}
_Static_assert(SLR_R_COUNT < 1 << (NUMBER_SHIFT - REASON_SHIFT), "a reason fits a handle");

/* Function names of which each rank gives or gets the count once for every rank. Their bytes are
 * those of the larger side, as in tune files. */
static bool per_rank(const char *func)
{
    static const char *const names[] = {"AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"};
    for (size_t i = 0; func && i < sizeof names / sizeof *names; i++)
        if (strcmp(func, names[i]) == 0)
            return true;
    return false;
}

/* `called_with`: the type of the application's call, 0: not told. NCCL runs all-gathers and
 * broadcasts in bytes; the application's call says of which type they are. */
static void measure(struct slr_profile_record *r, const struct slr_profile *p, const struct slr_profile_op *op,
                    unsigned called_with)
{
    const unsigned type = op->type;
    size_t bytes = 0, all = 0,
           ranks = op->peer < 0 && p->who.nranks > 0 && per_rank(op->func) ? (size_t)p->who.nranks : 1;
    /* 0 says that it is not known, where a wrong size would be summed with others. */
    if (!type || __builtin_mul_overflow(op->count, slr_type_bytes((ncclDataType_t)(type - 1)), &bytes) ||
        __builtin_mul_overflow(bytes, ranks, &all))
        bytes = all = 0;
    r->dtype = (uint8_t)(called_with ? called_with : type);
    r->count = called_with ? bytes / slr_type_bytes((ncclDataType_t)(called_with - 1)) : op->count;
    r->bytes = all;
}

/* Which call of the application the operation is of, and what type that call had. */
static void belongs(struct slr_profile_record *r, const struct slr_profile_op *op, unsigned *called_with)
{
    uint64_t h = (uintptr_t)op->parent;
    if (is_call(op->parent)) {
        r->call = h >> NUMBER_SHIFT;
        r->reason = (uint8_t)(h >> REASON_SHIFT);
        *called_with = (unsigned)(h >> TYPE_SHIFT) & 63;
        return;
    }
    /* Before v5: inside the call, if it is the call's own. */
    const struct slr_call *by = with_nccl;
    bool ours = by && by->passed && op->peer < 0 && op->func && strcmp(op->func, "AllGather") == 0;
    r->call = ours ? by->passed : 0;
    r->reason = (uint8_t)(ours ? by->why : SLR_R_COUNT);
}

/* Before v4 only operations tell whose they are. */
static void identify(struct slr_profile_who *who, const struct slr_profile_op *op)
{
    who->rank = who->rank < 0 ? op->rank : who->rank;
    who->hash = who->hash ? who->hash : op->hash;
}

static void fill(struct slr_profile *p, struct slr_profile_record *r, const struct slr_profile_op *op)
{
    unsigned called_with = 0;
    /* Without a parent the thread itself tells whose operation it is. */
    if (with_nccl && !is_call(op->parent))
        slr_profile_bind(p, with_nccl->comm->name);
    identify(&p->who, op);
    belongs(r, op, &called_with);
    measure(r, p, op, called_with);
    r->seq = op->seq;
    r->peer = op->peer;
    r->func = (uint8_t)slr_profile_name_id(op->func);
    r->algo = (uint8_t)slr_profile_name_id(op->peer < 0 ? op->algo : "-");
    r->proto = (uint8_t)slr_profile_name_id(op->peer < 0 ? op->proto : "-");
    r->channels = (uint8_t)op->channels;
    /* Of unknown number: reported when its record is needed, or at the end. */
    r->expect = !op->timed ? 0 : op->channels ? op->channels : SLR_EXPECT_UNKNOWN;
}

void *slr_profile_start(struct slr_profile *p, const struct slr_profile_op *op)
{
    void *handle = NULL;
    if (!p)
        return NULL;
    pthread_mutex_lock(&slr_profile_lock);
    struct slr_profile_record *r = slr_oprecord_take(p, &handle);
    if (r)
        fill(p, r, op);
    else
        p->lost++;
    pthread_mutex_unlock(&slr_profile_lock);
    return handle;
}

static void leaves(const struct slr_call *call)
{
    with_nccl = call;
}

static void left(const struct slr_call *call, ncclResult_t r)
{
    (void)call, (void)r;
    with_nccl = NULL;
}

const struct slr_watcher slr_profile_watcher = {.leaves = leaves, .left = left};
