/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting: what one rank does on its device. connect.h has the order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/wait.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect_impl.h"
#include "plugin/connect/connect.h"
#include "plugin/memory/exports.h"

/* ---- made ---- */

/* The flag words are in host memory. The device reads and writes them with stream memory
 * operations, for which the driver needs their device address. */
static enum slr_reason register_flags(struct slr_comm *c)
{
    struct slr_shared *s = &c->shared;
    if (SLR_CU(cuMemHostRegister, c->lane->ring.flags, slr_flags_bytes(c->nranks),
               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != SLR_OK)
        return SLR_R_NO_CONTROL;
    s->registered = true;
    return SLR_CU(cuMemHostGetDevicePointer, &c->lane->ring.dflags, c->lane->ring.flags, 0) == SLR_OK
               ? SLR_R_RING
               : SLR_R_NO_CONTROL;
}

/* Once: it stays when staging is given back. */
static enum slr_reason open_ring(struct slr_comm *c)
{
    if (c->lane->ring.opened)
        return SLR_R_RING;
    enum slr_reason r = register_flags(c);
    if (r != SLR_R_RING)
        return r;
    if (slr_ring_open(&c->lane->ring) != SLR_OK)
        return SLR_R_DRIVER_CALL;
    return slr_ring_try(&c->lane->ring) == SLR_OK ? SLR_R_RING : SLR_R_NO_MEMOPS;
}

#define ROOM_WAIT_MS 200 /* for communicators that have just ended; an application's gather waits for it */

/* Who reads this rank's slots: ranks of other processes, and which devices of this one. */
static void readers(const struct slr_comm *c, struct slr_staging_want *want, CUdevice *near)
{
    near[0] = c->shared.device;
    for (int r = 0; r < c->nranks; r++) {
        if (r == c->rank)
            continue;
        if (!slr_shared_same_process(&c->shared, r)) {
            want->far = true;
            continue;
        }
        want->near = want->near ? want->near + 1 : 2;
        near[want->near - 1] = c->shared.control->post[r].device;
    }
    want->device = near;
}

static enum slr_reason make_staging(struct slr_comm *c, unsigned k)
{
    CUdevice near[SLR_MAX_RANKS];
    struct slr_staging_want want = {
        .slots = SLR_SLOTS, .slot = slr_slots_wanted(k), .budget = slr_get(SLR_S_CACHE_BYTES)};
    readers(c, &want, near);
    /* Communicators that have just ended hold theirs until their peers have ended them as well. */
    slr_deferred_for_room(want.slots * want.slot, want.budget, ROOM_WAIT_MS);
    enum slr_status made = slr_staging_make(&c->shared.staging[k], &want);
    if (made != SLR_OK)
        return made == SLR_ABSENT ? SLR_R_NO_VIRTUAL : SLR_R_NO_STAGING;
    atomic_store(&c->link->of[k].staging, slr_staging_bytes(&c->shared.staging[k]));
    return SLR_R_RING;
}

/* Not the ring's: what other calls have there may wait for a peer, which may wait for this rank to connect. */
static enum slr_reason open_stream(struct slr_comm *c, unsigned k)
{
    CUstream *s = &c->link->of[k].stream;
    return *s || SLR_CU(cuStreamCreateWithPriority, s, CU_STREAM_NON_BLOCKING, 0) == SLR_OK ? SLR_R_RING
                                                                                            : SLR_R_DRIVER_CALL;
}

bool slr_connect_idle(const struct slr_comm *c, unsigned k)
{
    const CUstream s = c->link->of[k].stream;
    return !s || slr_real.cuStreamQuery(s) != CUDA_ERROR_NOT_READY;
}

static void close_stream(struct slr_comm *c, unsigned k)
{
    CUstream *s = &c->link->of[k].stream;
    if (*s)
        slr_real.cuStreamDestroy(*s);
    *s = NULL;
}

enum slr_reason slr_connect_make(struct slr_comm *c, unsigned k, int *peer)
{
    struct slr_linked *post = &c->shared.control->post[c->rank].linked[k];
    const struct slr_staging *own = &c->shared.staging[k];
    *peer = c->rank;
    enum slr_reason r = open_ring(c);
    if (r == SLR_R_RING)
        r = open_stream(c, k);
    if (r == SLR_R_RING && !atomic_load(&c->link->of[k].staging))
        r = make_staging(c, k);
    if (r != SLR_R_RING)
        return r;
    slr_graphs_try(c, own->far ? own->far : own->near);
    post->slot = own->slot;
    return slr_staging_export(own, &post->staging) == SLR_OK ? SLR_R_RING : SLR_R_NO_IPC;
}

/* ---- mapped ---- */

/* What could not be mapped may have gone with its owner, whose end shows a little later. */
static enum slr_reason map_failed(struct slr_comm *c, int r, int *peer)
{
    for (int tries = 0; tries < 50 && !c->shared.peer_dead[r]; tries++) {
        slr_sleep_ms(1);
        slr_shared_watch_peers(&c->shared);
    }
    *peer = c->shared.peer_dead[r] ? r : c->rank;
    return c->shared.peer_dead[r] ? SLR_R_PEER_DIED : SLR_R_NO_IPC;
}

/* The slot that all use is the smallest of all ranks': a rank short of memory has made smaller
 * ones. */
static enum slr_reason map_peers(struct slr_comm *c, unsigned k, int *peer)
{
    const struct slr_post *post = c->shared.control->post;
    const struct slr_staging *own = &c->shared.staging[k];
    struct slr_slots *slots = &c->lane->ring.slots[k];
    slots->at[c->rank] = own->far ? own->far : own->near;
    slots->twin = own->far ? own->near : 0;
    size_t slot = post[0].linked[k].slot;
    for (int r = 1; r < c->nranks; r++)
        slot = post[r].linked[k].slot < slot ? post[r].linked[k].slot : slot;
    slots->bytes = slot;
    for (int r = 0; r < c->nranks; r++) {
        if (r == c->rank)
            continue;
        bool same = slr_shared_same_process(&c->shared, r);
        if (slr_staging_import(&post[r].linked[k].staging, same, &slots->at[r]) != SLR_OK)
            return map_failed(c, r, peer);
        c->imported[k][r] = !same;
    }
    return SLR_R_RING;
}

/* What the driver does not close stays imported, and `stuck` keeps this rank from saying CLOSED or
 * LEFT. */
void slr_connect_unmap(struct slr_comm *c, unsigned k)
{
    close_stream(c, k);
    for (int r = 0; r < c->nranks && r < SLR_MAX_RANKS; r++)
        if (c->imported[k][r] && slr_staging_close(c->lane->ring.slots[k].at[r]))
            c->imported[k][r] = false;
        else
            c->shared.stuck |= c->imported[k][r];
}

/* ---- patterns ----
 *
 * Every rank writes a pattern into its first slot, and its peers copy it from there. It also writes
 * it into each peer's second slot, where each writer has an area of its own. So peer-to-peer copies
 * that a host's IOMMU or switches corrupt are found before data of the program travels that way. A
 * pattern depends on the owner, the place, the epoch and the owner's process, so what was in the
 * memory before is not taken for it. Small samples, spread over the slot. */

#define SAMPLES 8
#define SAMPLE_BYTES 4096u

/* How the samples lie in a slot. */
struct layout {
    unsigned count;
    size_t bytes, stride; /* of one; between two in a slot */
    size_t area;          /* of one writer in the second slot: they stand one behind the other there */
};

static struct layout layout_of(const struct slr_comm *c, unsigned k)
{
    const size_t slot = c->lane->ring.slots[k].bytes;
    struct layout layout = {.area = slot / (size_t)c->nranks & ~(size_t)15};
    layout.bytes = layout.area < SAMPLE_BYTES ? layout.area : SAMPLE_BYTES;
    layout.count = layout.area / layout.bytes < SAMPLES ? (unsigned)(layout.area / layout.bytes) : SAMPLES;
    layout.stride = slot / layout.count & ~(size_t)15;
    return layout;
}

/* Sample number `sample` of the pattern that `owner` writes in this epoch. */
static void pattern(const struct slr_comm *c, unsigned k, int owner, unsigned sample, char *out, size_t bytes)
{
    uint32_t epoch = slr_link_epoch(atomic_load(slr_connect_word(c, k)));
    uint64_t seed = slr_mix(c->shared.control->post[owner].process,
                            (uint64_t)epoch << 32 | (uint64_t)k << 24 | (uint64_t)owner << 8 | sample);
    for (size_t at = 0; at < bytes; at += sizeof seed) {
        seed = slr_mix(seed, at);
        memcpy(out + at, &seed, bytes - at < sizeof seed ? bytes - at : sizeof seed);
    }
}

/* The area of one writer in slots that begin at `slots`. */
static CUdeviceptr area(const struct slr_comm *c, unsigned k, CUdeviceptr slots, int writer)
{
    return slots + c->lane->ring.slots[k].bytes + (size_t)writer * layout_of(c, k).area;
}

/* Own slots as ranks of the peer's kind see them. */
static CUdeviceptr own_for(const struct slr_comm *c, unsigned k, int peer)
{
    const struct slr_staging *own = &c->shared.staging[k];
    return slr_shared_same_process(&c->shared, peer) ? own->near : own->far;
}

/* Copies the samples between two places that they stand in, `from_stride` and `to_stride` apart. */
static enum slr_status copy(struct slr_comm *c, unsigned k, CUdeviceptr to, size_t to_stride, CUdeviceptr from,
                            size_t from_stride)
{
    struct layout layout = layout_of(c, k);
    for (unsigned i = 0; i < layout.count; i++)
        SLR_TRY(SLR_CU(cuMemcpyAsync, to + i * to_stride, from + i * from_stride, layout.bytes, c->link->of[k].stream));
    return SLR_OK;
}

/* Until the copies are done, but not longer than the ranks connect: what another communicator has
 * queued may stand before them, and wait for a peer. */
static enum slr_status drain(struct slr_comm *c, unsigned k, enum slr_status s)
{
    while (s == SLR_OK && slr_link_state(atomic_load(slr_connect_word(c, k))) == SLR_LINK_CONNECTING) {
        CUresult r = slr_real.cuStreamQuery(c->link->of[k].stream);
        if (r != CUDA_ERROR_NOT_READY)
            return slr_cu_status(r, "cuStreamQuery");
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return s == SLR_OK ? SLR_TIMEOUT : s;
}

/* A copy that has not ended may still read or write it: then it is never freed. */
static void free_host(char *host, enum slr_status done)
{
    static struct unfinished {
        char *host;
        struct unfinished *next;
    } * _Atomic all; /* for leak checkers */
    struct unfinished *k = done == SLR_TIMEOUT ? malloc(sizeof *k) : NULL;
    if (done != SLR_TIMEOUT)
        free(host);
    if (!k)
        return;
    *k = (struct unfinished){host, atomic_load(&all)};
    while (!atomic_compare_exchange_weak(&all, &k->next, k))
        ;
}

/* Into every mapping that peers may read: they must find it whichever of them they have. */
static enum slr_reason write_pattern(struct slr_comm *c, unsigned k)
{
    const struct slr_slots *slots = &c->lane->ring.slots[k];
    struct layout layout = layout_of(c, k);
    char *host = malloc(layout.count * layout.bytes);
    if (!host)
        return SLR_R_NO_STAGING;
    for (unsigned i = 0; i < layout.count; i++)
        pattern(c, k, c->rank, i, host + i * layout.bytes, layout.bytes);
    enum slr_status done = copy(c, k, slots->at[c->rank], layout.stride, (CUdeviceptr)(uintptr_t)host, layout.bytes);
    if (done == SLR_OK && slots->twin)
        done = copy(c, k, slots->twin, layout.stride, (CUdeviceptr)(uintptr_t)host, layout.bytes);
    done = drain(c, k, done);
    free_host(host, done);
    return done == SLR_OK ? SLR_R_RING : SLR_R_NO_IPC;
}

enum slr_reason slr_connect_map(struct slr_comm *c, unsigned k, int *peer)
{
    *peer = c->rank;
    enum slr_reason r = map_peers(c, k, peer);
    return r == SLR_R_RING ? write_pattern(c, k) : r;
}

/* Compares what has arrived at `at` with the pattern of `owner`. *differs: whether it is
 * another. */
static enum slr_status compare_sample(struct slr_comm *c, unsigned k, CUdeviceptr at, int owner, unsigned sample,
                                      bool *differs)
{
    struct layout layout = layout_of(c, k);
    char want[SAMPLE_BYTES], *have = malloc(layout.bytes);
    if (!have)
        return SLR_NOMEM;
    enum slr_status done = drain(c, k,
                                 SLR_CU(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)have, at + sample * layout.bytes,
                                        layout.bytes, c->link->of[k].stream));
    if (done == SLR_OK) {
        pattern(c, k, owner, sample, want, layout.bytes);
        *differs = memcmp(want, have, layout.bytes) != 0;
    }
    free_host(have, done);
    return done;
}

static enum slr_reason compare(struct slr_comm *c, unsigned k, CUdeviceptr at, int owner, const char *how)
{
    bool differs = false;
    for (unsigned i = 0; i < layout_of(c, k).count && !differs; i++)
        if (compare_sample(c, k, at, owner, i, &differs) != SLR_OK)
            return SLR_R_NO_IPC;
    if (!differs)
        return SLR_R_RING;
    slr_log(SLR_LOG_WARN, "p2p_corrupts", "comm=%s crank=%d peer=%d by=%s msg=%s", c->name, c->rank, owner, how,
            "a pattern that the peer's device wrote arrived as something else");
    return SLR_R_P2P_CORRUPTS;
}

/* By the way that gathers will take: into memory of this device. */
static enum slr_reason pull(struct slr_comm *c, unsigned k, int r)
{
    const struct slr_slots *slots = &c->lane->ring.slots[k];
    struct layout layout = layout_of(c, k);
    CUdeviceptr to = area(c, k, slots->at[c->rank], c->rank);
    enum slr_status done = copy(c, k, to, layout.bytes, slots->at[r], layout.stride);
    return done == SLR_OK ? compare(c, k, to, r, "pull") : SLR_R_NO_IPC;
}

enum slr_reason slr_connect_try(struct slr_comm *c, unsigned k, int *peer)
{
    const struct slr_slots *slots = &c->lane->ring.slots[k];
    struct layout layout = layout_of(c, k);
    enum slr_reason why = SLR_R_RING;
    /* Each rank begins with the next one, so that they do not all read from rank 0 first. */
    for (int step = 1; step < c->nranks && why == SLR_R_RING; step++) {
        int r = *peer = (c->rank + step) % c->nranks;
        why = pull(c, k, r);
        if (why == SLR_R_RING && drain(c, k,
                                       copy(c, k, area(c, k, slots->at[r], c->rank), layout.bytes, slots->at[c->rank],
                                            layout.stride)) != SLR_OK)
            why = SLR_R_NO_IPC;
    }
    return why;
}

/* Compares what the peers have pushed. Their pushes are complete: each waited for them before it said
 * TRIED. */
enum slr_reason slr_connect_check(struct slr_comm *c, unsigned k, int *peer)
{
    enum slr_reason why = SLR_R_RING;
    for (int step = 1; step < c->nranks && why == SLR_R_RING; step++) {
        int r = *peer = (c->rank + step) % c->nranks;
        why = compare(c, k, area(c, k, own_for(c, k, r), r), r, "push");
    }
    if (why == SLR_R_RING)
        close_stream(c, k);
    return why;
}
