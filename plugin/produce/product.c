/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/produce/product.h"

#include <stdlib.h>
#include "base/cu.h"
#include "cache/captures.h"
#include "plugin/comm/stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_product *list; /* of live ones */
static _Atomic unsigned count;

static bool none(void)
{
    return atomic_load_explicit(&count, memory_order_acquire) == 0;
}

/* Under the lock. */
static void take_off(struct slr_product *p)
{
    struct slr_product **at = &list;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->live = p->follows = false;
    p->carriers = 0;
    atomic_fetch_sub(&count, 1);
    atomic_fetch_sub(&slr_gate_word, 1);
}

void slr_product_live(struct slr_product *p)
{
    pthread_mutex_lock(&lock);
    p->live = true;
    p->late = false;
    p->next = list;
    list = p;
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
    /* From here on every hooked driver call takes the slow way, which looks at the list. */
    atomic_fetch_add(&slr_gate_word, 1);
}

struct slr_product *slr_product_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream,
                                     CUevent *before)
{
    struct slr_product *p = c->product;
    bool taken = false;
    if (!p || none())
        return NULL;
    pthread_mutex_lock(&lock);
    if (p->live) {
        const bool here = p->stream == stream, there = p->follows && p->follower == stream;
        taken = p->c == send && p->bytes == bytes && (here || there);
        *before = taken && !here ? p->before : NULL;
        take_off(p);
    }
    pthread_mutex_unlock(&lock);
    return taken ? p : NULL;
}

/* NULL: of all contexts. */
static void drop(CUcontext ctx)
{
    pthread_mutex_lock(&lock);
    for (struct slr_product *p = list, *next; p; p = next) {
        next = p->next;
        if (!ctx || p->ctx == ctx)
            take_off(p);
    }
    pthread_mutex_unlock(&lock);
}

void slr_product_operation(CUcontext ctx)
{
    if (!none())
        drop(ctx);
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

void slr_product_on_stream(CUstream stream, bool per_thread)
{
    if (!none())
        drop(context_of(slr_stream_name(stream, per_thread)));
}

void slr_product_on_all(void)
{
    if (!none())
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

void slr_product_event_end(CUevent event)
{
    if (none())
        return;
    pthread_mutex_lock(&lock);
    forget(event);
    pthread_mutex_unlock(&lock);
}

void slr_product_record(CUevent event, CUstream stream, bool per_thread, unsigned flags)
{
    const CUstream name = slr_stream_name(stream, per_thread);
    if (none())
        return;
    const CUcontext ctx = context_of(name);
    pthread_mutex_lock(&lock);
    forget(event); /* this record replaces any before it */
    for (struct slr_product *p = list; p; p = p->next)
        if (p->stream == name && p->ctx == ctx && flags == 0 && p->carriers < SLR_PRODUCT_CARRIERS)
            p->carrier[p->carriers++] = event;
    pthread_mutex_unlock(&lock);
}

static bool carries(const struct slr_product *p, CUevent event)
{
    for (unsigned i = 0; i < p->carriers; i++)
        if (p->carrier[i] == event)
            return true;
    return false;
}

/* Under the lock. The communicator, held, of a product that the stream may follow. NULL: none, and what
 * the wait means to the others has been noted. */
static struct slr_comm *leader(CUstream stream, CUcontext ctx, CUevent event, bool may_follow)
{
    struct slr_comm *c = NULL;
    for (struct slr_product *p = list, *next; p; p = next) {
        const bool involved = (p->stream == stream && p->ctx == ctx) || (p->follows && p->follower == stream);
        next = p->next;
        if (carries(p, event) && !involved && !p->follows && may_follow && p->ctx == ctx && !c)
            slr_comm_hold(c = p->comm);
        else if (involved)
            p->late = true;
        else if (carries(p, event))
            take_off(p);
    }
    return c;
}

/* Under the communicator's lock: no product of it begins or is taken. */
static void follow(struct slr_comm *c, CUstream stream, CUevent event)
{
    struct slr_product *p = c->product;
    bool recorded = slr_shared_work_begin(&c->shared) == SLR_OK;
    if (recorded) {
        recorded = (p->before || SLR_CU(cuEventCreate, &p->before, CU_EVENT_DISABLE_TIMING) == SLR_OK) &&
                   SLR_CU(cuEventRecord, p->before, stream) == SLR_OK;
        slr_shared_work_end();
    }
    pthread_mutex_lock(&lock);
    if (p->live && recorded && carries(p, event) && !p->follows) {
        p->follower = stream;
        p->follows = true;
    } else if (p->live) {
        take_off(p);
    }
    pthread_mutex_unlock(&lock);
}

void slr_product_wait(CUstream stream, CUevent event, bool per_thread, unsigned flags)
{
    const CUstream name = slr_stream_name(stream, per_thread);
    if (none())
        return;
    slr_guard++;
    const CUcontext ctx = context_of(name);
    /* A default stream may mean another one to the next thread. */
    const bool may = !flags && !slr_stream_is_default(name) && !slr_stream_may_capture(name);
    pthread_mutex_lock(&lock);
    struct slr_comm *c = leader(name, ctx, event, may);
    pthread_mutex_unlock(&lock);
    if (c) {
        slr_comm_lock(c);
        if (c->product)
            follow(c, name, event);
        slr_comm_unlock(c);
        slr_comm_put(c);
    }
    slr_guard--;
}

/* ---- the end ---- */

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
    pthread_mutex_lock(&lock);
    if (p->live)
        take_off(p);
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < SLR_PRODUCT_PARTS && !gone; i++)
        destroy(&p->event[i]);
    if (!gone)
        destroy(&p->before);
    free(p);
    c->product = NULL;
}
