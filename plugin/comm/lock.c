/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's lock; docs/locks.md has its place in the order. */
#include "plugin/comm/comm.h"

void slr_comm_lock(struct slr_comm *c)
{
    pthread_mutex_lock(&c->lock);
}

void slr_comm_unlock(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->lock);
}

bool slr_comm_trylock(struct slr_comm *c)
{
    return pthread_mutex_trylock(&c->lock) == 0;
}
