/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting: giving staging back when memory is short. connect.h, Giving back, says why nothing
 * waits for it. */
#include <time.h>
#include "base/log.h"
#include "base/wait.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/connect/connect_impl.h"

#define GIVE_UP_MS 500 /* the application's allocation waits for it */

/* Proposes to disconnect it, or finds that this goes on already. The last epoch is kept: there is
 * none to connect in after it. */
static bool propose(struct slr_comm *c)
{
    if (c->pass != SLR_R_RING || !atomic_load(&c->link->staging))
        return false;
    uint64_t word = atomic_load(slr_connect_word(c));
    uint32_t epoch = slr_link_epoch(word);
    if (slr_link_state(word) == SLR_LINK_CONNECTED && epoch + 1 < SLR_LINK_EPOCHS && slr_connect_between_calls(c) &&
        slr_connect_change(c, word, SLR_LINK_RELEASING, epoch)) {
        slr_oob_wake(c);
        return true;
    }
    return slr_link_state(word) == SLR_LINK_RELEASING || slr_link_state(word) == SLR_LINK_DISCONNECTED;
}

/* Whether there is still something to wait for. */
static bool going_on(struct slr_comm *c)
{
    slr_connect_tick(c);
    enum slr_link_state state = slr_link_state(atomic_load(slr_connect_word(c)));
    return atomic_load(&c->link->staging) && (state == SLR_LINK_RELEASING || state == SLR_LINK_DISCONNECTED);
}

/* A rank that does not vote in time may be stopped, or about to gather. With the proposal withdrawn
 * the next gather finds CONNECTED at once. */
static void withdraw(struct slr_comm *c)
{
    uint64_t word = atomic_load(slr_connect_word(c));
    if (slr_link_state(word) == SLR_LINK_RELEASING)
        slr_connect_change(c, word, SLR_LINK_CONNECTED, slr_link_epoch(word));
}

bool slr_connect_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS), releasing = 0;
    uint64_t end = slr_now_ms() + GIVE_UP_MS;
    for (int i = 0; i < n; i++) {
        if (propose(list[i]))
            list[releasing++] = list[i];
        else
            slr_comm_put(list[i]);
    }
    for (bool more = releasing > 0; more && slr_now_ms() < end;) {
        more = false;
        for (int i = 0; i < releasing; i++)
            more = going_on(list[i]) || more;
        nanosleep(&(struct timespec){.tv_nsec = more ? 200000 : 0}, NULL);
    }
    for (int i = 0; i < releasing; i++) {
        withdraw(list[i]);
        slr_comm_put(list[i]);
    }
    return releasing > 0;
}
