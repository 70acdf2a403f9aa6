/* SPDX-License-Identifier: Apache-2.0 */
/* Exported blocks: the reader's side. Opening is the house-keeping thread's, closing the returning thread's, or that
 * of a communicator's end, when both are done with it. They call the driver, so they hold no lock. */
#include "base/wait.h"
#include "base/counters.h"
#include "base/status.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/lane.h"
#include "plugin/memory/exports_impl.h"
#include "plugin/memory/exports.h"

/* Descriptors that have not come for so long are asked for again: the question or the answer found a full socket. */
#define ASK_AGAIN_MS 200

/* A mapping that the driver does not close is tried again so often: once a tick, or at once when
 * the communicator ends. */
#define CLOSE_TRIES 8

static struct slr_import_key key_of(const struct slr_comm *c, int peer, uint64_t generation)
{
    return (struct slr_import_key){
        .process = c->shared.control->post[peer].process, .generation = generation, .device = c->shared.device};
}

static bool may_reach(const struct slr_comm *c, uint64_t generation)
{
    return c->lane->ring.code && slr_access_use(generation);
}

/* Virtual memory of this process is mapped anew like another's, as the program may unmap its own while it
 * is read. Other memory of this process is for kernels, where the device has access: an engine's copy would
 * tie the other device's context (cache/staging.h). */
static enum slr_import_result open_export(const struct slr_comm *c, int peer, const struct slr_export *e,
                                          uint64_t generation, const struct slr_pieces *pieces, CUdeviceptr *base)
{
    const struct slr_import_key key = key_of(c, peer, generation);
    if (slr_exports_near(c, peer, e)) {
        *base = e->base;
        if (may_reach(c, generation))
            return SLR_IMPORT_OK;
        slr_not_shared("a device of this process has no access to it, or no kernel to copy it");
        return SLR_IMPORT_FAILED;
    }
    return slr_import_open(&key, e, pieces, base);
}

/* Asks the owner for the descriptors; slr_exports_given() goes on when they come. */
static void ask(struct slr_comm *c, int peer, int i, uint64_t generation)
{
    struct slr_exported_mapped *m = &c->exports->mapped[peer][i];
    uint64_t now = slr_now_ms();
    if (now - m->asked_ms >= ASK_AGAIN_MS && slr_oob_send(c, peer, SLR_OOB_ASK, i, generation, NULL))
        m->asked_ms = now;
}

/* Under the lock. */
static void note_past(struct slr_exports *exports, int peer, const struct slr_export *e, uint64_t generation)
{
    exports->past[peer][exports->next_past[peer]++ % SLR_EXPORTS_PAST] =
        (struct slr_exported_past){.generation = generation, .base = e->base, .size = e->size};
}

/* False: graphs of this rank's could not read it. */
static bool mapped(struct slr_comm *c, int peer, int i, uint64_t generation, CUdeviceptr base)
{
    const struct slr_export *e = &slr_exports_get(c, peer, i)->export;
    const bool virtual = e->kind == SLR_EXPORT_DESCRIPTORS;
    slr_exports_hold(c);
    const bool use = !(virtual && c->exports->plain_only[peer]);
    if (use)
        c->exports->mapped[peer][i] =
            (struct slr_exported_mapped){.generation = generation,
                                         .base = base,
                                         .kind = virtual                        ? SLR_MEMORY_VIRTUAL
                                                 : slr_exports_near(c, peer, e) ? SLR_MEMORY_NEAR
                                                                                : SLR_MEMORY_PLAIN};
    if (use)
        note_past(c->exports, peer, e, generation);
    slr_exports_release(c);
    if (use)
        atomic_fetch_add(&slr_counters.mapped, 1);
    return use;
}

/* Maps the block if its export still stands. `pieces` NULL: no descriptors at hand. */
static void map_export(struct slr_comm *c, int peer, int i, uint64_t generation, const struct slr_pieces *pieces)
{
    struct slr_exported *e = slr_exports_get(c, peer, i);
    _Atomic uint64_t *ack = slr_exports_ack(c, peer, c->rank, i);
    CUdeviceptr base;
    /* Said before it is looked at again: either this rank sees a revocation, or the owner sees this. */
    atomic_store(ack, generation | SLR_ACK_OPENING);
    if (!slr_exports_stands(e, generation)) {
        atomic_store(ack, 0);
        return;
    }
    enum slr_import_result r = open_export(c, peer, &e->export, generation, pieces, &base);
    if (r == SLR_IMPORT_OK && !mapped(c, peer, i, generation, base)) {
        const struct slr_import_key key = key_of(c, peer, generation);
        slr_import_close(&key);
        r = SLR_IMPORT_FAILED;
    }
    atomic_store(ack, r == SLR_IMPORT_OK ? generation : r == SLR_IMPORT_FAILED ? generation | SLR_ACK_REFUSED : 0);
    if (r == SLR_IMPORT_NEEDS_DESCRIPTOR)
        ask(c, peer, i, generation);
}

static void look_at_export(struct slr_comm *c, int peer, int i)
{
    struct slr_exported *e = slr_exports_get(c, peer, i);
    _Atomic uint64_t *ack = slr_exports_ack(c, peer, c->rank, i);
    uint64_t generation = atomic_load(&e->generation), said = atomic_load(ack);
    bool stands = generation && slr_exports_stands(e, generation);
    /* A refusal is for this generation only. When another block stands there, it is tried anew; so it is when this
     * device has got access to the other one's memory. */
    if (said & SLR_ACK_REFUSED) {
        if (stands && said == (generation | SLR_ACK_REFUSED) &&
            !(slr_exports_near(c, peer, &e->export) && may_reach(c, generation)))
            return;
        atomic_store(ack, 0);
    }
    if (stands)
        map_export(c, peer, i, generation, NULL);
    else
        c->exports->mapped[peer][i].asked_ms = 0;
}

/* What can not be closed stays acknowledged, so that its owner does not give it back. */
static bool unmap_export(struct slr_comm *c, int peer, int i)
{
    struct slr_exported_mapped *m = &c->exports->mapped[peer][i];
    struct slr_import_key key = key_of(c, peer, m->generation);
    /* Counted: other communicators may use the mapping, too. */
    if (m->kind != SLR_MEMORY_NEAR && !slr_import_close(&key)) {
        m->tries++;
        return false;
    }
    slr_exports_hold(c);
    m->generation = 0;
    slr_exports_release(c);
    /* Last: at this the owner may give the memory back to the driver. */
    atomic_store(slr_exports_ack(c, peer, c->rank, i), 0);
    return true;
}

/* A revoked block is closed when the last call that may name it has been enqueued here, and
 * completed. The piece to wait for is noted once: later gathers must not put the end off. */
static bool may_close(struct slr_comm *c, int peer, int i)
{
    struct slr_exported *e = slr_exports_get(c, peer, i);
    struct slr_exported_mapped *m = &c->exports->mapped[peer][i];
    slr_exports_hold(c);
    const bool revoked = m->generation && atomic_load(&e->state) == SLR_EXPORTED_REVOKED;
    if (revoked && !m->closing && c->exports->enqueued >= atomic_load(&e->last_call)) {
        m->closing = true;
        m->until = atomic_load(&c->lane->ring.issued);
    }
    const bool closing = revoked && m->closing && m->tries < CLOSE_TRIES;
    const uint32_t until = m->until;
    slr_exports_release(c);
    return closing && slr_ring_reached(&c->lane->ring, until);
}

void slr_exports_return_peers(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        for (int i = 0; i < SLR_EXPORTS && r != c->rank && !c->shared.peer_dead[r]; i++)
            if (may_close(c, r, i) && unmap_export(c, r, i))
                slr_oob_send(c, r, SLR_OOB_WAKE, 0, 0, NULL); /* its owner may wait for it */
}

bool slr_exports_mapping_begin(struct slr_comm *c)
{
    if (pthread_mutex_trylock(&c->exports->mapping) != 0)
        return false;
    if (!c->exports->unmapped)
        return true;
    pthread_mutex_unlock(&c->exports->mapping);
    return false;
}

void slr_exports_mapping_end(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->exports->mapping);
}

static bool is_mapped(struct slr_comm *c, int peer, int i)
{
    slr_exports_hold(c);
    const bool mapped = c->exports->mapped[peer][i].generation != 0;
    slr_exports_release(c);
    return mapped;
}

/* Whether there is anything to close. */
static bool serve_peer(struct slr_comm *c, int peer)
{
    bool left = false;
    if (c->shared.peer_dead[peer]) /* what it exported stays mapped until this rank fails or ends */
        return false;
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (!is_mapped(c, peer, i))
            look_at_export(c, peer, i);
        else
            left |= atomic_load(&slr_exports_get(c, peer, i)->state) == SLR_EXPORTED_REVOKED;
    return left;
}

bool slr_exports_tick_peers(struct slr_comm *c)
{
    bool left = false;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            left |= serve_peer(c, r);
    return left;
}

void slr_exports_given(struct slr_comm *c, int owner, int index, uint64_t generation, const struct slr_pieces *pieces)
{
    struct slr_exported_mapped *m = &c->exports->mapped[owner][index];
    /* Descriptors that were not asked for, or come for something that has changed meanwhile, are
     * not used; slr_oob_done() closes them. */
    bool open = generation && !is_mapped(c, owner, index) && m->asked_ms && atomic_load(&c->error) == ncclSuccess;
    if (!open || !slr_exports_stands(slr_exports_get(c, owner, index), generation) || !slr_exports_mapping_begin(c))
        return;
    if (slr_shared_enter(&c->shared) == SLR_OK) {
        if (pieces->count)
            map_export(c, owner, index, generation, pieces);
        else
            atomic_store(slr_exports_ack(c, owner, c->rank, index), generation | SLR_ACK_REFUSED);
        slr_shared_leave();
    }
    slr_exports_mapping_end(c);
}

bool slr_exports_unmap_all(struct slr_comm *c)
{
    bool all = true;
    for (int r = 0; r < c->nranks; r++)
        for (int i = 0; i < SLR_EXPORTS && r != c->rank; i++) {
            while (c->exports->mapped[r][i].generation && !unmap_export(c, r, i) &&
                   c->exports->mapped[r][i].tries < CLOSE_TRIES)
                ;
            all = all && !c->exports->mapped[r][i].generation;
        }
    return all;
}
