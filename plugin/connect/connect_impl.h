/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the connection share. */
#ifndef SLR_PLUGIN_CONNECT_CONNECT_IMPL_H
#define SLR_PLUGIN_CONNECT_CONNECT_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/connect/connect.h"

/* The steps of one rank, for the slots of class `k`, with its context current and its lock held. Each returns
 * SLR_R_RING, or why it failed, and then the rank that it is about in *peer. None waits for a peer. */
enum slr_reason slr_connect_make(struct slr_comm *c, unsigned k, int *peer);
enum slr_reason slr_connect_map(struct slr_comm *c, unsigned k, int *peer);
enum slr_reason slr_connect_try(struct slr_comm *c, unsigned k, int *peer);
enum slr_reason slr_connect_check(struct slr_comm *c, unsigned k, int *peer);

/* Closes the mappings of peers' staging of a class, with the lock held; sets `stuck` when the driver does
 * not close one. */
void slr_connect_unmap(struct slr_comm *c, unsigned k);

/* Whether a step that was given up has left nothing on the device. With the lock held. */
bool slr_connect_idle(const struct slr_comm *c, unsigned k);

static inline _Atomic uint64_t *slr_connect_word(const struct slr_comm *c, unsigned k)
{
    return &c->shared.control->link[k];
}

static inline _Atomic uint64_t *slr_connect_at(const struct slr_comm *c, unsigned k, int rank)
{
    return &c->shared.control->post[rank].linked[k].at;
}

/* One change of the word. */
static inline bool slr_connect_change(const struct slr_comm *c, unsigned k, uint64_t from, enum slr_link_state to,
                                      uint32_t epoch)
{
    return atomic_compare_exchange_strong(slr_connect_word(c, k), &from,
                                          slr_link_word(to, epoch, slr_link_serial(from) + 1));
}

/* Does not touch the peers' staging in this epoch any more, or is gone. */
static inline bool slr_connect_let_go(const struct slr_comm *c, unsigned k, int rank, uint32_t epoch)
{
    return c->shared.peer_dead[rank] || atomic_load(&c->shared.control->post[rank].state) == SLR_RANK_LEFT ||
           atomic_load(slr_connect_at(c, k, rank)) >= slr_link_at(epoch, SLR_LINK_CLOSED);
}

#endif
