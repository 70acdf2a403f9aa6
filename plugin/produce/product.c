/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/produce/product.h"

#include <stdlib.h>
#include "base/real.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/produce/product_parts.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_product *list; /* of live ones */
static _Atomic unsigned count;

bool slr_product_any(void)
{
    return atomic_load_explicit(&count, memory_order_acquire) != 0;
}

/* Under the lock. Nothing, if it is not live. */
static void take_off(struct slr_product *p)
{
    struct slr_product **at = &list;
    if (!p->live)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->live = p->follows = false;
    p->carriers = 0;
    atomic_fetch_sub(&count, 1);
    atomic_fetch_sub(&slr_gate_word, 1);
}

/* Under the lock. NULL: of all contexts. */
static void drop_locked(CUcontext ctx)
{
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (!ctx || p->ctx == ctx)
            take_off(p);
    }
}

struct slr_product *slr_product_of(struct slr_comm *c)
{
    struct slr_product *p = c->product;
    if (!p) {
        if ((p = c->product = calloc(1, sizeof *p)) != NULL)
            p->comm = c;
        return p;
    }
    pthread_mutex_lock(&lock);
    take_off(p); /* of another thread, which has come here since this one's operation dropped what there was */
    pthread_mutex_unlock(&lock);
    return p;
}

/* It synchronises with the legacy default stream, as a thread's default stream does, too. */
static bool is_blocking(CUstream stream)
{
    return slr_stream_is_default(stream) || slr_stream_facts(stream).blocking;
}

/* Under the lock. */
static void put_on(struct slr_product *p)
{
    p->live = true;
    p->allocated = false;
    p->next = list;
    list = p;
    atomic_fetch_add(&count, 1);
    /* From here on every hooked driver call takes the slow way, which looks at the list. */
    atomic_fetch_add(&slr_gate_word, 1);
}

void slr_product_made(struct slr_product *p)
{
    p->blocking = is_blocking(p->stream);
    pthread_mutex_lock(&lock);
    drop_locked(p->ctx); /* its GEMM is an operation */
    if (!p->comm->unproductive)
        put_on(p);
    pthread_mutex_unlock(&lock);
}

struct slr_product *slr_product_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream,
                                     CUevent *before)
{
    struct slr_product *p = c->product;
    if (!p)
        return NULL;
    pthread_mutex_lock(&lock);
    const bool here = p->stream == stream, there = p->follows && p->follower == stream;
    /* What was loaded since the GEMM, or is being, could have touched it unseen. */
    const bool taken = p->live && p->c == send && p->bytes == bytes && (here || there) && !slr_reach_doubtful();
    *before = here ? NULL : p->before;
    take_off(p);
    pthread_mutex_unlock(&lock);
    return taken ? p : NULL;
}

static void drop(CUcontext ctx)
{
    pthread_mutex_lock(&lock);
    drop_locked(ctx);
    pthread_mutex_unlock(&lock);
}

void slr_product_operation(CUcontext ctx)
{
    if (slr_product_any())
        drop(ctx);
}

bool slr_product_uses(const struct slr_product *p, CUdeviceptr at, size_t bytes)
{
    bool used = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < p->gemms; i++)
        used |= slr_ranges_meet(&p->used[i], (struct slr_extent){at, at + bytes});
    pthread_mutex_unlock(&lock);
    return used;
}

/* Under the lock. On its stream; neither reads nor writes it; and there is room to remember what it does use. */
static bool leaves_alone(const struct slr_product *p, const struct slr_ranges *used, CUstream stream)
{
    return p->stream == stream && p->gemms < SLR_PRODUCT_GEMMS &&
           !slr_ranges_meet(used, (struct slr_extent){p->c, p->c + p->bytes});
}

void slr_product_gemm(struct slr_gemm *gemm, CUstream stream, CUcontext ctx)
{
    struct slr_ranges used;
    if (!slr_product_any())
        return;
    const bool known = slr_gemm_describe(gemm) == SLR_R_FUSED;
    if (known)
        used = slr_gemm_ranges(gemm);
    pthread_mutex_lock(&lock);
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (p->ctx != ctx)
            continue;
        if (known && leaves_alone(p, &used, stream))
            p->used[p->gemms++] = used;
        else
            take_off(p);
    }
    pthread_mutex_unlock(&lock);
}

/* The context of an operation on the stream: NULL where it can not be told. */
static CUcontext context_of(CUstream stream)
{
    CUcontext ctx = NULL;
    slr_guard++;
    if (slr_stream_is_default(stream))
        slr_real.cuCtxGetCurrent(&ctx);
    else
        ctx = slr_stream_facts(stream).ctx;
    slr_guard--;
    return ctx;
}

void slr_product_on_stream(CUstream stream)
{
    const CUstream name = slr_stream_name(stream, false);
    if (slr_product_any())
        drop(slr_stream_is_default(name) ? slr_context_now() : context_of(name));
}

void slr_product_on_all(void)
{
    if (slr_product_any())
        drop(NULL);
}

/* ---- events ---- */

/* Under the lock. */
static void forget(CUevent event)
{
    for (struct slr_product *p = list; p; p = p->next)
        for (unsigned i = 0; i < p->carriers; i++)
            if (p->carrier[i] == event)
                p->carrier[i--] = p->carrier[--p->carriers];
}

static void event_end(CUevent event)
{
    pthread_mutex_lock(&lock);
    forget(event);
    pthread_mutex_unlock(&lock);
}

static void event_recorded(const struct slr_observed *o)
{
    const CUstream name = o->stream;
    const CUcontext ctx = context_of(name);
    const bool remembered = o->flags == 0 && !slr_event_is_shared(o->event);
    pthread_mutex_lock(&lock);
    forget(o->event); /* this record replaces any before it */
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (p->ctx == ctx && !name && p->stream && p->blocking) /* which then waits for what all others wait for */
            take_off(p);
        else if (p->ctx == ctx && p->stream == name && remembered && p->carriers < SLR_PRODUCT_CARRIERS)
            p->carrier[p->carriers++] = o->event;
    }
    pthread_mutex_unlock(&lock);
}

static bool carries(const struct slr_product *p, CUevent event)
{
    for (unsigned i = 0; i < p->carriers; i++)
        if (p->carrier[i] == event)
            return true;
    return false;
}

struct wait {
    CUstream stream;
    CUcontext ctx;
    CUevent event;
    bool blocking, may_follow;
};

/* The call's stream may be made to wait. */
static bool involved(const struct slr_product *p, const struct wait *w)
{
    if (p->ctx != w->ctx)
        return false;
    return p->stream == w->stream || (p->follows && p->follower == w->stream) || (!w->stream && p->blocking) ||
           (!p->stream && w->blocking);
}

/* Under the lock. The communicator, held, of a product that the stream may follow; NULL: none. Others that it
 * concerns are dropped. */
static struct slr_comm *leader(const struct wait *w)
{
    struct slr_comm *c = NULL;
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (!carries(p, w->event)) {
            if (involved(p, w))
                take_off(p);
        } else if (p->stream != w->stream && !p->follows && w->may_follow && p->ctx == w->ctx && !c) {
            slr_comm_hold(c = p->comm);
        }
    }
    return c;
}

/* Under the communicator's lock: no product of it begins or is taken. */
static void follow(struct slr_comm *c, const struct wait *w)
{
    const CUstream stream = w->stream;
    struct slr_product *p = c->product;
    bool recorded = slr_shared_work_begin(&c->shared) == SLR_OK;
    if (recorded) {
        recorded = (p->before || SLR_CU(cuEventCreate, &p->before, CU_EVENT_DISABLE_TIMING) == SLR_OK) &&
                   SLR_CU(cuEventRecord, p->before, stream) == SLR_OK;
        slr_shared_work_end();
    }
    pthread_mutex_lock(&lock);
    if (recorded && carries(p, w->event)) {
        p->follower = stream;
        p->follows = true;
        p->blocking = p->blocking || w->blocking;
    } else {
        take_off(p);
    }
    pthread_mutex_unlock(&lock);
}

static void allocates(void)
{
    pthread_mutex_lock(&lock);
    for (struct slr_product *p = list; p; p = p->next)
        p->allocated = true;
    pthread_mutex_unlock(&lock);
}

static void stream_waits(const struct slr_observed *o)
{
    const CUstream name = o->stream;
    const struct wait w = {.stream = name,
                           .ctx = context_of(name),
                           .event = o->event,
                           .blocking = is_blocking(name),
                           /* A default stream may mean another one to the next thread. */
                           .may_follow = !o->flags && !slr_stream_is_default(name) && !slr_stream_may_capture(name)};
    pthread_mutex_lock(&lock);
    struct slr_comm *c = leader(&w);
    pthread_mutex_unlock(&lock);
    if (c && slr_lane_lock_soon(c->lane)) {
        if (c->product)
            follow(c, &w);
        slr_lane_unlock(c->lane);
    } else if (c) {
        drop(w.ctx);
    }
    slr_comm_put(c);
}

void slr_product_observe(const struct slr_observed *o)
{
    if (o->act == SLR_ACT_HOST) /* by the legacy default stream, if it is an operation */
        slr_solo_note(NULL);
    else if (o->act != SLR_ACT_NONE && o->act != SLR_ACT_NEXT && o->act != SLR_ACT_EVENT_END && o->act != SLR_ACT_QUERY)
        slr_solo_note(o->stream);
    if (!slr_product_any())
        return;
    switch (o->act) {
    case SLR_ACT_RECORD:
        event_recorded(o);
        break;
    case SLR_ACT_WAIT:
        stream_waits(o);
        break;
    case SLR_ACT_EVENT_END:
        event_end(o->event);
        break;
    case SLR_ACT_OPERATION:
        if (!o->bytes) /* slr_product_copy() */
            slr_product_on_stream(o->stream);
        break;
    case SLR_ACT_QUERY:
        slr_product_on_stream(o->stream);
        break;
    case SLR_ACT_HOST:
        slr_product_on_all();
        break;
    case SLR_ACT_ALLOC:
        allocates();
        break;
    case SLR_ACT_FREE:
    case SLR_ACT_NEXT:
    case SLR_ACT_NONE:
        break;
    }
}

/* ---- copies ---- */

/* Under the lock. In a way in which parts of the copy may be made early; may_copy() says the rest. */
static bool is_copied(const struct slr_product *p, const struct slr_observed *o, CUcontext ctx)
{
    const bool whole = p->c == o->end[1] && p->bytes == o->bytes;
    return p->live && whole && p->ctx == ctx && p->stream == o->stream && !p->allocated;
}

/* The communicator, held, of the product that is copied; NULL: none. */
static struct slr_comm *owner_of_copied(const struct slr_observed *o, CUcontext ctx)
{
    struct slr_comm *c = NULL;
    pthread_mutex_lock(&lock);
    for (struct slr_product *p = list; p && !c; p = p->next)
        if (is_copied(p, o, ctx))
            slr_comm_hold(c = p->comm);
    pthread_mutex_unlock(&lock);
    return c;
}

static bool is_on_device(CUdeviceptr at, CUdevice device)
{
    int ordinal;
    return slr_real.cuPointerGetAttribute &&
           slr_real.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == CUDA_SUCCESS &&
           ordinal == device;
}

/* Nobody can notice that parts of the copy are made early. */
static bool may_copy(const struct slr_product *p, const struct slr_observed *o, uint64_t joins)
{
    return !p->copied && p->joins == joins && slr_solo_still(p->stream, p->turn) && !slr_reach_doubtful() &&
           !slr_product_uses(p, o->end[0], o->bytes) && is_on_device(o->end[0], p->comm->shared.device);
}

static enum slr_status open_copies(struct slr_product *p)
{
    int least = 0, greatest = 0;
    if (p->copies)
        return SLR_OK;
    if (!p->copy)
        SLR_TRY(SLR_CU(cuEventCreate, &p->copy, CU_EVENT_DISABLE_TIMING));
    SLR_TRY(SLR_CU(cuCtxGetStreamPriorityRange, &least, &greatest));
    return SLR_CU(cuStreamCreateWithPriority, &p->copies, CU_STREAM_NON_BLOCKING, greatest);
}

static enum slr_status copy_parts(struct slr_product *p, CUdeviceptr to)
{
    const size_t shard = p->bytes / (size_t)slr_comm_shards(p->comm);
    for (unsigned i = 0; i < p->parts; i++) {
        const size_t at = (size_t)p->part[i].shard * shard + p->part[i].at;
        SLR_TRY(SLR_CU(cuStreamWaitEvent, p->copies, p->event[i], 0));
        SLR_TRY(SLR_CU(cuMemcpyAsync, to + at, p->c + at, p->part[i].bytes, p->copies));
        SLR_TRY(SLR_CU(cuEventRecord, p->event[i], p->copies));
    }
    return SLR_OK;
}

/* What comes next on the product's stream, such as the whole copy where parts have failed, comes behind the copies. */
static enum slr_status join_copies(const struct slr_product *p)
{
    SLR_TRY(SLR_CU(cuEventRecord, p->event[p->parts - 1], p->copies));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, p->stream, p->event[p->parts - 1], 0));
    return SLR_CU(cuEventRecord, p->copy, p->stream);
}

static bool copy_all(struct slr_product *p, CUdeviceptr to)
{
    if (open_copies(p) != SLR_OK)
        return false;
    const bool copied = copy_parts(p, to) == SLR_OK;
    return join_copies(p) == SLR_OK && copied;
}

/* Under the communicator's lock: no product of it begins or is taken. */
static bool copy(struct slr_comm *c, const struct slr_observed *o, CUcontext ctx, uint64_t joins)
{
    struct slr_product *p = c->product;
    pthread_mutex_lock(&lock);
    bool copied = is_copied(p, o, ctx);
    pthread_mutex_unlock(&lock);
    if (!copied || !may_copy(p, o, joins) || slr_shared_work_begin(&c->shared) != SLR_OK)
        return false;
    copied = copy_all(p, o->end[0]);
    slr_shared_work_end();
    if (copied) {
        pthread_mutex_lock(&lock);
        p->c = o->end[0];
        p->copied = true;
        pthread_mutex_unlock(&lock);
    }
    return copied;
}

bool slr_product_runs(const struct slr_product *p)
{
    const CUevent end = p->copied ? p->copy : p->part[p->parts - 1].done;
    return slr_real.cuEventQuery && slr_real.cuEventQuery(end) == CUDA_ERROR_NOT_READY;
}

bool slr_product_copy(const struct slr_observed *o, uint64_t joins)
{
    bool done = false;
    if (!slr_product_any())
        return false;
    const CUcontext ctx = context_of(o->stream);
    struct slr_comm *c = owner_of_copied(o, ctx);
    if (c)
        slr_reach_look();
    if (c && slr_lane_lock_soon(c->lane)) {
        done = c->product && copy(c, o, ctx, joins);
        slr_lane_unlock(c->lane);
    }
    slr_comm_put(c);
    if (!done)
        slr_product_on_stream(o->stream);
    return done;
}

/* ---- the end ---- */

void slr_product_end(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    c->unproductive = true;
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (p->comm == c)
            take_off(p);
    }
    pthread_mutex_unlock(&lock);
}

static void destroy(CUevent *event)
{
    if (*event)
        slr_real.cuEventDestroy(*event);
    *event = NULL;
}

void slr_product_close(struct slr_comm *c, bool gone)
{
    struct slr_product *p = c->product;
    if (!p)
        return;
    for (unsigned i = 0; i < SLR_PRODUCT_PARTS && !gone; i++)
        destroy(&p->event[i]);
    if (!gone) {
        destroy(&p->before);
        destroy(&p->copy);
    }
    if (p->copies && !gone)
        slr_real.cuStreamDestroy(p->copies);
    free(p);
    c->product = NULL;
}
