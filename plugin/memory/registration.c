/* SPDX-License-Identifier: Apache-2.0 */
/* The process's registrations, and the hooks that make and end them. */
#include "plugin/memory/registration.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "cache/virtual.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/group_kept.h"
#include "plugin/memory/exports.h"
#include "plugin/util/process.h"

struct registration {
    struct slr_comm *comm; /* only compared */
    const void *handle;    /* NCCL's */
    CUdeviceptr p;
    size_t bytes;
    uint64_t generation; /* of the block; 0: it has ended, and there is none */
    struct registration *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *list;

static void add(struct registration *reg)
{
    pthread_mutex_lock(&lock);
    reg->next = list;
    list = reg;
    pthread_mutex_unlock(&lock);
}

/* Takes one of the communicator off the list; `handle` NULL: any. */
static struct registration *take(const struct slr_comm *c, const void *handle)
{
    pthread_mutex_lock(&lock);
    struct registration **at = &list, *reg;
    while (*at && ((*at)->comm != c || (handle && (*at)->handle != handle)))
        at = &(*at)->next;
    reg = *at;
    if (reg)
        *at = reg->next;
    pthread_mutex_unlock(&lock);
    return reg;
}

/* A communicator whose registrations are of use. */
static struct slr_comm *find(ncclComm_t comm)
{
    struct slr_comm *c = slr_process_off() || !slr_get(SLR_S_ZERO_COPY) ? NULL : slr_comm_find(comm);
    if (c && c->pass == SLR_R_RING)
        return c;
    slr_comm_put(c);
    return NULL;
}

/* ---- the beginning ---- */

static bool offer(struct slr_comm *c, uint64_t generation, bool awaited)
{
    if (slr_exports_register(c, generation, awaited))
        return true;
    slr_external_release(generation);
    slr_not_shared("more blocks are registered with one communicator than a rank can offer");
    return false;
}

/* Memory that is no block yet becomes an external one, kept as long as it is registered. */
static bool enter(struct slr_comm *c, const void *buffer, size_t bytes, bool awaited, struct slr_place *place)
{
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return false;
    bool known = slr_external_hold((CUdeviceptr)(uintptr_t)buffer, bytes, place);
    slr_shared_leave();
    return known && offer(c, place->generation, awaited);
}

/* The block's generation; 0: the buffer is not used where it lies because of this registration. The
 * structure may be gone as soon as it is on the list: ncclCommAbort on another thread ends it. */
static uint64_t begin(struct slr_comm *c, const void *buffer, size_t bytes, const void *handle, bool awaited)
{
    struct slr_place place;
    struct registration *reg = c && buffer && bytes && handle ? malloc(sizeof *reg) : NULL;
    if (!reg)
        return 0;
    if (!enter(c, buffer, bytes, awaited, &place)) {
        free(reg);
        return 0;
    }
    *reg = (struct registration){.comm = c,
                                 .handle = handle,
                                 .p = (CUdeviceptr)(uintptr_t)buffer,
                                 .bytes = bytes,
                                 .generation = place.generation};
    add(reg);
    return place.generation;
}

/* Waits until `done`, at most until `end`. */
static bool await(struct slr_comm *c, uint64_t generation, uint64_t end,
                  bool (*done)(struct slr_comm *c, uint64_t generation))
{
    for (unsigned i = 1; !done(c, generation); i++) {
        if (slr_now_ms() >= end)
            return false;
        if (i % 16 == 0) { /* a peer that has died or failed ends the wait; asking the kernel costs a call */
            slr_shared_watch_peers(&c->shared);
            slr_comm_look_failed(c);
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

static void await_peers(struct slr_comm *c, uint64_t generation, uint64_t end)
{
    slr_oob_wake(c);
    if (!await(c, generation, end, slr_exports_acknowledged))
        slr_log(SLR_LOG_INFO, "registration_slow", "comm=%s crank=%d generation=%llu msg=%s", c->name, c->rank,
                (unsigned long long)generation, "not all peers have mapped the buffer yet; until then it is staged");
}

/* As NCCL's own it is a call of this rank alone, which frameworks make for each segment and communicator. So the peers
 * map the buffer when a gather has used it, unless somebody has said how long this is to wait. */
static void registered(ncclComm_t comm, const void *buffer, size_t bytes, const void *handle)
{
    struct slr_comm *c = find(comm);
    const bool awaited = slr_settings()->given[SLR_S_REGISTER_TIMEOUT];
    uint64_t generation = begin(c, buffer, bytes, handle, awaited);
    if (generation && awaited)
        await_peers(c, generation, slr_now_ms() + slr_get(SLR_S_REGISTER_TIMEOUT));
    slr_comm_put(c);
}

/* ---- blocks that end while they are registered ---- */

/* One of the communicator whose block has ended. */
static bool find_lost(const struct slr_comm *c, struct registration *copy, struct registration **at)
{
    pthread_mutex_lock(&lock);
    for (*at = list; *at; *at = (*at)->next)
        if ((*at)->comm == c && (*at)->generation && !slr_block_lives((*at)->generation))
            break;
    if (*at)
        *copy = **at;
    pthread_mutex_unlock(&lock);
    return *at != NULL;
}

/* False: it has been deregistered meanwhile; its structure may be another one's by now, of another block. */
static bool replace(struct registration *at, uint64_t ended, uint64_t generation)
{
    pthread_mutex_lock(&lock);
    struct registration *reg = list;
    while (reg && (reg != at || reg->generation != ended))
        reg = reg->next;
    if (reg)
        reg->generation = generation;
    pthread_mutex_unlock(&lock);
    return reg != NULL;
}

static void drop(struct slr_comm *c, uint64_t generation)
{
    slr_exports_unregister(c, generation, slr_external_ends_with_registration(generation));
    slr_external_release(generation);
}

/* The block that the memory is in now, held and offered; 0: none, till a gather meets it. */
static uint64_t hold_again(struct slr_comm *c, const struct registration *reg)
{
    struct slr_place place = slr_block_find(reg->p);
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return 0;
    const bool whole = place.generation && reg->bytes <= place.size - place.offset;
    const bool held =
        (whole || slr_external_enter(reg->p, reg->bytes, &place)) && slr_external_hold_again(place.generation);
    slr_shared_leave();
    return held && offer(c, place.generation, true) ? place.generation : 0;
}

void slr_registered_follow(struct slr_comm *c)
{
    struct registration copy, *at;
    while (c->pass == SLR_R_RING && find_lost(c, &copy, &at)) {
        const uint64_t now = hold_again(c, &copy);
        if (replace(at, copy.generation, now))
            slr_exports_unregister(c, copy.generation, false);
        else if (now)
            drop(c, now);
    }
}

void slr_registered_windows(struct slr_window *windows)
{
    for (struct slr_window *w = windows; w; w = w->next) {
        slr_memory_gives_range((CUdeviceptr)(uintptr_t)w->buffer, w->bytes);
        w->found = find(w->comm);
        w->generation = begin(w->found, w->buffer, w->bytes, w->out ? *w->out : NULL, true);
    }
    /* All are begun before the first is waited for, so that the peers map them side by side. */
    uint64_t end = slr_now_ms() + slr_get(SLR_S_REGISTER_TIMEOUT);
    for (struct slr_window *w = windows; w; w = w->next) {
        if (w->generation)
            await_peers(w->found, w->generation, end);
        slr_comm_put(w->found);
    }
}

/* NCCL makes it at the end of the group. Without memory for the note it is NCCL's alone. */
static void keep_for_end(struct slr_group *g, const struct slr_window *w)
{
    struct slr_window **at = &g->windows, *copy = malloc(sizeof *copy);
    while (*at)
        at = &(*at)->next;
    if (copy)
        *copy = *w;
    *at = copy;
}

void slr_windows_free(struct slr_window *windows)
{
    for (struct slr_window *w = windows, *next; w; w = next) {
        next = w->next;
        free(w);
    }
}

/* ---- the end ---- */

/* The first half of an end: no later call names the block for its sake. */
static void let_go(struct slr_comm *c, const struct registration *reg)
{
    bool foreign = slr_external_ends_with_registration(reg->generation);
    slr_exports_unregister(c, reg->generation, foreign);
}

/* The second half: waits for the peers where the application is about to unmap the memory. */
static void finish(struct slr_comm *c, struct registration *reg, uint64_t end)
{
    if (slr_external_ends_with_registration(reg->generation)) {
        slr_oob_wake(c);
        if (!await(c, reg->generation, end, slr_exports_gone))
            slr_log(SLR_LOG_WARN, "deregistration_slow", "comm=%s crank=%d generation=%llu msg=%s", c->name, c->rank,
                    (unsigned long long)reg->generation, "a peer has not closed the buffer yet");
    }
    slr_external_release(reg->generation);
    free(reg);
}

static void deregister(ncclComm_t comm, const void *handle)
{
    struct slr_comm *c = handle ? find(comm) : NULL;
    struct registration *reg = c ? take(c, handle) : NULL;
    if (reg) {
        let_go(c, reg);
        finish(c, reg, slr_now_ms() + slr_get(SLR_S_REGISTER_TIMEOUT));
    }
    slr_comm_put(c);
}

/* All are revoked before the first is waited for: one wait for all of them. */
void slr_registered_end(struct slr_comm *c, uint64_t latest)
{
    struct registration *all = NULL, *reg;
    while ((reg = take(c, NULL))) {
        let_go(c, reg);
        reg->next = all;
        all = reg;
    }
    uint64_t end = slr_now_ms() + slr_get(SLR_S_REGISTER_TIMEOUT);
    while ((reg = all)) {
        all = reg->next;
        finish(c, reg, end < latest ? end : latest);
    }
}

/* ---- hooks ---- */

ncclResult_t slr_comm_register(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclCommRegister(comm, buffer, bytes, handle);
    if (r == ncclSuccess && handle)
        registered(comm, buffer, bytes, *handle);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_deregister(const ncclComm_t comm, void *handle)
{
    slr_guard++;
    deregister(comm, handle); /* before NCCL's: afterwards the memory may be unmapped at any time */
    ncclResult_t r = slr_real.ncclCommDeregister(comm, handle);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_window_register(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclCommWindowRegister(comm, buffer, bytes, window, flags);
    if (r == ncclSuccess && window) {
        struct slr_window w = {.comm = comm, .buffer = buffer, .bytes = bytes, .out = window};
        if (slr_in_group())
            keep_for_end(slr_group_now(), &w);
        else
            slr_registered_windows(&w);
    }
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_window_deregister(ncclComm_t comm, ncclWindow_t window)
{
    slr_guard++;
    deregister(comm, window);
    ncclResult_t r = slr_real.ncclCommWindowDeregister(comm, window);
    slr_guard--;
    return r;
}

/* The memory is made for communicators: those of its device export it before a gather uses it. */
static void suggest(struct slr_comm *c, void *p, size_t bytes)
{
    struct slr_place place = {0};
    int device = -1;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    if (c->pass != SLR_R_RING || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (slr_real.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == CUDA_SUCCESS &&
        device == c->shared.device) {
        place = slr_block_find(at);
        if (place.generation || slr_external_enter(at, bytes, &place))
            slr_exports_suggest(c, place.generation);
    }
    slr_shared_leave();
}

ncclResult_t slr_mem_alloc(void **p, size_t bytes)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    slr_guard++;
    ncclResult_t r = slr_real.ncclMemAlloc(p, bytes);
    bool of_use = r == ncclSuccess && p && !slr_process_off() && slr_get(SLR_S_ZERO_COPY) && slr_get(SLR_S_ALLOC);
    int n = of_use ? slr_comm_hold_all(comms, SLR_MANY_COMMS) : 0;
    for (int i = 0; i < n; i++) {
        suggest(comms[i], *p, bytes);
        slr_comm_put(comms[i]);
    }
    slr_guard--;
    return r;
}

/* Where NCCL unmaps it in a way that is not hooked, its block ends here. NCCL retains the memory by its
 * address and releases it again, which no look may come between (cache/virtual.h). */
ncclResult_t slr_mem_free(void *p)
{
    slr_guard++;
    struct slr_place place = slr_process_off() ? (struct slr_place){0} : slr_block_find((CUdeviceptr)(uintptr_t)p);
    slr_external_unmap_begin(place.base, place.size);
    slr_retain_shut();
    ncclResult_t r = slr_real.ncclMemFree(p);
    slr_retain_open();
    slr_external_unmap_end(place.base, place.size);
    slr_guard--;
    return r;
}
