/* What the files of the offers share. */
#ifndef SLR_PLUGIN_MEMORY_EXPORTS_IMPL_H
#define SLR_PLUGIN_MEMORY_EXPORTS_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/memory/exports.h"

static inline void slr_exports_lock(struct slr_comm *c)
{
    pthread_mutex_lock(&c->exports->lock);
}

static inline void slr_exports_unlock(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->exports->lock);
}

static inline struct slr_exported *slr_exports_entry(const struct slr_comm *c, int owner, int i)
{
    return &c->shared.control->post[owner].offer[i];
}

static inline _Atomic uint64_t *slr_exports_ack(const struct slr_comm *c, int owner, int reader, int i)
{
    return &c->shared.control->post[reader].ack[owner][i];
}

static inline bool slr_exports_stands(const struct slr_exported *e, uint64_t generation)
{
    return atomic_load(&e->state) == SLR_EXPORTED_OPEN && atomic_load(&e->generation) == generation;
}

/* Under the lock. -1: not offered; NULL: not held. */
int slr_exports_own(const struct slr_comm *c, uint64_t generation);
struct slr_exported_held *slr_exports_held(struct slr_comm *c, uint64_t generation);

/* Under the lock: the block was met in call `call`. */
void slr_exports_meet(struct slr_exports *o, uint64_t generation, struct slr_exported_use use, bool refused);

/* Under the lock. */
void slr_exports_revoke(struct slr_comm *c, int i);

/* The owner's and the peers' part of a tick. The context is current. */
void slr_exports_tick_own(struct slr_comm *c);
void slr_exports_tick_peers(struct slr_comm *c);

/* Closes everything that is mapped. */
bool slr_exports_unmap_all(struct slr_comm *c); /* false: the driver does not close one of them */

#endif
