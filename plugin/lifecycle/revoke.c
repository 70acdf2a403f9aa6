/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/lifecycle/revoke.h"

#include <pthread.h>
#include <signal.h>
#include "base/log.h"
#include "base/wait.h"

#define WAIT_MS 1000

enum { NONE, UNDER_WAY, DONE, CLOSED }; /* CLOSED: the program ends it itself */

static void *revoke_now(void *arg)
{
    struct slr_comm *c = arg;
    slr_guard++; /* whatever this thread calls is slipring's own */
    slr_real.ncclCommRevoke(c->nccl, 0);
    atomic_store(&c->revoked, DONE);
    slr_comm_put(c);
    return NULL;
}

/* The application's signals go to the application's threads. */
static bool start(struct slr_comm *c)
{
    sigset_t all, old;
    pthread_t t;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    const int r = pthread_create(&t, NULL, revoke_now, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0)
        pthread_detach(t);
    return r == 0;
}

void slr_revoke_begin(struct slr_comm *c)
{
    int none = NONE;
    if (!slr_real.ncclCommRevoke || !atomic_compare_exchange_strong(&c->revoked, &none, UNDER_WAY))
        return;
    slr_comm_hold(c);
    if (start(c))
        return;
    atomic_store(&c->revoked, CLOSED);
    slr_comm_put(c);
}

bool slr_revoke_end(struct slr_comm *c)
{
    const uint64_t end = slr_now_ms() + WAIT_MS;
    int state = NONE;
    if (atomic_compare_exchange_strong(&c->revoked, &state, CLOSED))
        return false;
    while (atomic_load(&c->revoked) == UNDER_WAY && slr_now_ms() < end)
        slr_sleep_ms(1);
    return atomic_load(&c->revoked) == DONE;
}
