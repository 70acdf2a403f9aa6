/* What the files of the offers share. */
#ifndef SLR_PLUGIN_OFFERS_IMPL_H
#define SLR_PLUGIN_OFFERS_IMPL_H

#include "plugin/comm.h"
#include "plugin/offers.h"

static inline void slr_offers_lock(struct slr_comm *c)
{
    pthread_mutex_lock(&c->offers->lock);
}

static inline void slr_offers_unlock(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->offers->lock);
}

static inline struct slr_offer *slr_offers_entry(const struct slr_comm *c, int owner, int i)
{
    return &c->shared.control->post[owner].offer[i];
}

static inline _Atomic uint64_t *slr_offers_ack(const struct slr_comm *c, int owner, int reader, int i)
{
    return &c->shared.control->post[reader].ack[owner][i];
}

static inline bool slr_offers_stands(const struct slr_offer *e, uint64_t generation)
{
    return atomic_load(&e->state) == SLR_OFFER_OFFERED && atomic_load(&e->generation) == generation;
}

/* Under the lock. -1: not offered; NULL: not held. */
int slr_offers_own(const struct slr_comm *c, uint64_t generation);
struct slr_offer_held *slr_offers_held(struct slr_comm *c, uint64_t generation);

/* Under the lock: the block was met in call `call`. */
void slr_offers_meet(struct slr_offers *o, uint64_t generation, struct slr_offer_use use, bool refused);

/* Under the lock. */
void slr_offers_revoke(struct slr_comm *c, int i);

/* The owner's and the peers' part of a tick. The context is current. */
void slr_offers_tick_own(struct slr_comm *c);
void slr_offers_tick_peers(struct slr_comm *c);

/* Closes everything that is mapped. */
bool slr_offers_unmap_all(struct slr_comm *c); /* false: the driver does not close one of them */

#endif
