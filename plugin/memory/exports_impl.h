/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the exported blocks share: exports.c is called by gathers and registrations, exports_own.c is the
 * owner's side and the two background threads' rounds, exports_peer.c the reader's side. */
#ifndef SLR_PLUGIN_MEMORY_EXPORTS_IMPL_H
#define SLR_PLUGIN_MEMORY_EXPORTS_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/memory/exports.h"

static inline struct slr_exported *slr_exports_get(const struct slr_comm *c, int owner, int i)
{
    return &c->shared.control->post[owner].exports[i];
}

static inline _Atomic uint64_t *slr_exports_ack(const struct slr_comm *c, int owner, int reader, int i)
{
    return &c->shared.control->post[reader].ack[owner][i];
}

static inline bool slr_exports_stands(const struct slr_exported *e, uint64_t generation)
{
    return atomic_load(&e->state) == SLR_EXPORTED_OPEN && atomic_load(&e->generation) == generation;
}

/* Memory of cuMemAlloc of another rank of this process: there is nothing to map, and kernels copy it. */
static inline bool slr_exports_near(const struct slr_comm *c, int peer, const struct slr_export *e)
{
    return e->kind != SLR_EXPORT_DESCRIPTORS && slr_shared_same_process(&c->shared, peer);
}

/* Under the lock: the block's index among this rank's exports, -1: none; its registration, NULL: none. */
int slr_exports_own(const struct slr_comm *c, uint64_t generation);
struct slr_exported_registered *slr_exports_registered(struct slr_comm *c, uint64_t generation);

/* One more block can be exported at once, besides those that may take the spare places. */
bool slr_exports_room(const struct slr_comm *c);

/* Under the lock: a block that is not exported is used, last in call `use.last`. `refused`: it can
 * not be exported. Whether it was not known yet. */
bool slr_exports_note(struct slr_exports *exports, uint64_t generation, struct slr_exported_use use, bool refused);

/* Under the lock. Revokes this rank's export `i` if it is open. */
void slr_exports_revoke(struct slr_comm *c, int i);

/* Around mapping anything. False: a failed communicator's mappings are being closed, or all are; nobody
 * waits for that. */
bool slr_exports_mapping_begin(struct slr_comm *c);
void slr_exports_mapping_end(struct slr_comm *c);

/* The peers' part of a round, of the house-keeping thread and of the returning thread. The context is current. `tick`
 * answers whether anything of the peers is to be closed. */
bool slr_exports_tick_peers(struct slr_comm *c);
void slr_exports_return_peers(struct slr_comm *c);

/* Closes everything that is mapped. */
bool slr_exports_unmap_all(struct slr_comm *c); /* false: the driver does not close one of them */

#endif
