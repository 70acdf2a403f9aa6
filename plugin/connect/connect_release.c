/* Connecting: giving staging back when memory is short. connect.h, Giving back, says why nothing waits for it. */
#include <time.h>
#include "base/clock.h"
#include "base/log.h"
#include "plugin/connect/connect_impl.h"
#include "plugin/bootstrap/oob.h"

#define GIVE_UP_MS 500

/* Begins to part it, or finds that it is being parted. */
static bool propose(struct slr_comm *c)
{
    if (c->pass != SLR_R_RING || !atomic_load(&c->link->held))
        return false;
    uint64_t word = atomic_load(slr_connect_word(c));
    uint32_t epoch = slr_link_epoch(word);
    if (slr_link_state(word) == SLR_LINK_CONNECTED && epoch + 1 < SLR_LINK_EPOCHS && slr_connect_between_calls(c) &&
        slr_connect_change(c, word, SLR_LINK_PARTING, epoch)) {
        slr_oob_wake(c);
        return true;
    }
    return slr_link_state(word) == SLR_LINK_PARTING || slr_link_state(word) == SLR_LINK_APART;
}

/* Whether there is still something to wait for. */
static bool going_on(struct slr_comm *c)
{
    slr_connect_tick(c);
    enum slr_link_state state = slr_link_state(atomic_load(slr_connect_word(c)));
    return atomic_load(&c->link->held) && (state == SLR_LINK_PARTING || state == SLR_LINK_APART);
}

/* A rank that does not vote in time may be stopped, or about to gather. */
static void withdraw(struct slr_comm *c)
{
    uint64_t word = atomic_load(slr_connect_word(c));
    if (slr_link_state(word) == SLR_LINK_PARTING)
        slr_connect_change(c, word, SLR_LINK_CONNECTED, slr_link_epoch(word));
}

bool slr_connect_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS), parting = 0;
    uint64_t end = slr_now_ms() + GIVE_UP_MS;
    for (int i = 0; i < n; i++) {
        if (propose(list[i]))
            list[parting++] = list[i];
        else
            slr_comm_put(list[i]);
    }
    for (bool more = parting > 0; more && slr_now_ms() < end;) {
        more = false;
        for (int i = 0; i < parting; i++)
            more = going_on(list[i]) || more;
        nanosleep(&(struct timespec){.tv_nsec = more ? 200000 : 0}, NULL);
    }
    for (int i = 0; i < parting; i++) {
        withdraw(list[i]);
        slr_comm_put(list[i]);
    }
    return parting > 0;
}
