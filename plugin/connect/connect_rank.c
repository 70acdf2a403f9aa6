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

static enum slr_reason make_staging(struct slr_comm *c)
{
    CUdevice near[SLR_MAX_RANKS];
    struct slr_staging_want want = {
        .slots = SLR_SLOTS, .slot = slr_get(SLR_S_SLOT_BYTES), .budget = slr_get(SLR_S_CACHE_BYTES)};
    readers(c, &want, near);
    /* Communicators that have just ended hold theirs until their peers have ended them as well. */
    slr_deferred_for_room(want.slots * want.slot, want.budget, ROOM_WAIT_MS);
    enum slr_status made = slr_staging_make(&c->shared.staging, &want);
    if (made != SLR_OK)
        return made == SLR_ABSENT ? SLR_R_NO_VIRTUAL : SLR_R_NO_STAGING;
    atomic_store(&c->link->staging, slr_staging_bytes(&c->shared.staging));
    return SLR_R_RING;
}

enum slr_reason slr_connect_make(struct slr_comm *c, int *peer)
{
    struct slr_post *post = &c->shared.control->post[c->rank];
    *peer = c->rank;
    enum slr_reason r = open_ring(c);
    if (r == SLR_R_RING && !atomic_load(&c->link->staging))
        r = make_staging(c);
    if (r != SLR_R_RING)
        return r;
    slr_graphs_try(c);
    post->slot = c->shared.staging.slot;
    return slr_staging_export(&c->shared.staging, &post->staging) == SLR_OK ? SLR_R_RING : SLR_R_NO_IPC;
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
static enum slr_reason map_peers(struct slr_comm *c, int *peer)
{
    const struct slr_post *post = c->shared.control->post;
    const struct slr_staging *own = &c->shared.staging;
    c->lane->ring.slots[c->rank] = own->far ? own->far : own->near;
    c->lane->ring.twin = own->far ? own->near : 0;
    size_t slot = post[0].slot;
    for (int r = 1; r < c->nranks; r++)
        slot = post[r].slot < slot ? post[r].slot : slot;
    c->lane->ring.slot = slot;
    for (int r = 0; r < c->nranks; r++) {
        if (r == c->rank)
            continue;
        bool same = slr_shared_same_process(&c->shared, r);
        if (slr_staging_import(&post[r].staging, same, &c->lane->ring.slots[r]) != SLR_OK)
            return map_failed(c, r, peer);
        c->imported[r] = !same;
    }
    return SLR_R_RING;
}

/* What the driver does not close stays imported, and `stuck` keeps this rank from saying CLOSED or
 * LEFT. */
void slr_connect_unmap(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks && r < SLR_MAX_RANKS; r++)
        if (c->imported[r] && slr_staging_close(c->lane->ring.slots[r]))
            c->imported[r] = false;
        else
            c->shared.stuck |= c->imported[r];
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

static struct layout layout_of(const struct slr_comm *c)
{
    struct layout layout = {.area = c->lane->ring.slot / (size_t)c->nranks & ~(size_t)15};
    layout.bytes = layout.area < SAMPLE_BYTES ? layout.area : SAMPLE_BYTES;
    layout.count = layout.area / layout.bytes < SAMPLES ? (unsigned)(layout.area / layout.bytes) : SAMPLES;
    layout.stride = c->lane->ring.slot / layout.count & ~(size_t)15;
    return layout;
}

/* Sample number `sample` of the pattern that `owner` writes in this epoch. */
static void pattern(const struct slr_comm *c, int owner, unsigned sample, char *out, size_t bytes)
{
    uint32_t epoch = slr_link_epoch(atomic_load(slr_connect_word(c)));
    uint64_t seed =
        slr_mix(c->shared.control->post[owner].process, (uint64_t)epoch << 32 | (uint64_t)owner << 8 | sample);
    for (size_t at = 0; at < bytes; at += sizeof seed) {
        seed = slr_mix(seed, at);
        memcpy(out + at, &seed, bytes - at < sizeof seed ? bytes - at : sizeof seed);
    }
}

/* The area of one writer in slots that begin at `slots`. */
static CUdeviceptr area(const struct slr_comm *c, CUdeviceptr slots, int writer)
{
    return slots + c->lane->ring.slot + (size_t)writer * layout_of(c).area;
}

/* Own slots as ranks of the peer's kind see them. */
static CUdeviceptr own_for(const struct slr_comm *c, int peer)
{
    return slr_shared_same_process(&c->shared, peer) ? c->shared.staging.near : c->shared.staging.far;
}

/* Copies the samples between two places that they stand in, `from_stride` and `to_stride` apart. */
static enum slr_status copy(struct slr_comm *c, CUdeviceptr to, size_t to_stride, CUdeviceptr from, size_t from_stride)
{
    struct layout layout = layout_of(c);
    for (unsigned i = 0; i < layout.count; i++)
        SLR_TRY(SLR_CU(cuMemcpyAsync, to + i * to_stride, from + i * from_stride, layout.bytes, c->lane->ring.pull));
    return SLR_OK;
}

/* Until the copies are done, but not longer than the ranks connect: what another communicator has
 * queued may stand before them, and wait for a peer. */
static enum slr_status drain(struct slr_comm *c, enum slr_status s)
{
    while (s == SLR_OK && slr_link_state(atomic_load(slr_connect_word(c))) == SLR_LINK_CONNECTING) {
        CUresult r = slr_real.cuStreamQuery(c->lane->ring.pull);
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
static enum slr_reason write_pattern(struct slr_comm *c)
{
    struct layout layout = layout_of(c);
    char *host = malloc(layout.count * layout.bytes);
    if (!host)
        return SLR_R_NO_STAGING;
    for (unsigned i = 0; i < layout.count; i++)
        pattern(c, c->rank, i, host + i * layout.bytes, layout.bytes);
    enum slr_status done =
        copy(c, c->lane->ring.slots[c->rank], layout.stride, (CUdeviceptr)(uintptr_t)host, layout.bytes);
    if (done == SLR_OK && c->lane->ring.twin)
        done = copy(c, c->lane->ring.twin, layout.stride, (CUdeviceptr)(uintptr_t)host, layout.bytes);
    done = drain(c, done);
    free_host(host, done);
    return done == SLR_OK ? SLR_R_RING : SLR_R_NO_IPC;
}

enum slr_reason slr_connect_map(struct slr_comm *c, int *peer)
{
    *peer = c->rank;
    enum slr_reason r = map_peers(c, peer);
    return r == SLR_R_RING ? write_pattern(c) : r;
}

/* Compares what has arrived at `at` with the pattern of `owner`. *differs: whether it is
 * another. */
static enum slr_status compare_sample(struct slr_comm *c, CUdeviceptr at, int owner, unsigned sample, bool *differs)
{
    struct layout layout = layout_of(c);
    char want[SAMPLE_BYTES], *have = malloc(layout.bytes);
    if (!have)
        return SLR_NOMEM;
    enum slr_status done = drain(c, SLR_CU(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)have, at + sample * layout.bytes,
                                           layout.bytes, c->lane->ring.pull));
    if (done == SLR_OK) {
        pattern(c, owner, sample, want, layout.bytes);
        *differs = memcmp(want, have, layout.bytes) != 0;
    }
    free_host(have, done);
    return done;
}

static enum slr_reason compare(struct slr_comm *c, CUdeviceptr at, int owner, const char *how)
{
    bool differs = false;
    for (unsigned i = 0; i < layout_of(c).count && !differs; i++)
        if (compare_sample(c, at, owner, i, &differs) != SLR_OK)
            return SLR_R_NO_IPC;
    if (!differs)
        return SLR_R_RING;
    slr_log(SLR_LOG_WARN, "p2p_corrupts", "comm=%s crank=%d peer=%d by=%s msg=%s", c->name, c->rank, owner, how,
            "a pattern that the peer's device wrote arrived as something else");
    return SLR_R_P2P_CORRUPTS;
}

/* By the way that gathers will take: into memory of this device, on the stream of the pulls. */
static enum slr_reason pull(struct slr_comm *c, int r)
{
    struct layout layout = layout_of(c);
    CUdeviceptr to = area(c, c->lane->ring.slots[c->rank], c->rank);
    enum slr_status done = copy(c, to, layout.bytes, c->lane->ring.slots[r], layout.stride);
    return done == SLR_OK ? compare(c, to, r, "pull") : SLR_R_NO_IPC;
}

enum slr_reason slr_connect_try(struct slr_comm *c, int *peer)
{
    struct layout layout = layout_of(c);
    enum slr_reason why = SLR_R_RING;
    /* Each rank begins with the next one, so that they do not all read from rank 0 first. */
    for (int step = 1; step < c->nranks && why == SLR_R_RING; step++) {
        int r = *peer = (c->rank + step) % c->nranks;
        why = pull(c, r);
        if (why == SLR_R_RING && drain(c, copy(c, area(c, c->lane->ring.slots[r], c->rank), layout.bytes,
                                               c->lane->ring.slots[c->rank], layout.stride)) != SLR_OK)
            why = SLR_R_NO_IPC;
    }
    return why;
}

/* Compares what the peers have pushed. Their pushes are complete: each waited for them before it said
 * TRIED. */
enum slr_reason slr_connect_check(struct slr_comm *c, int *peer)
{
    enum slr_reason why = SLR_R_RING;
    for (int step = 1; step < c->nranks && why == SLR_R_RING; step++) {
        int r = *peer = (c->rank + step) % c->nranks;
        why = compare(c, area(c, own_for(c, r), r), r, "push");
    }
    return why;
}
