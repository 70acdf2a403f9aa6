/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of connecting; what a step does on the device is in connect_rank.c. */
#include "plugin/connect/connect.h"

#include <time.h>
#include "base/settings.h"
#include "base/wait.h"
#include "base/log.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect_impl.h"
#include "plugin/memory/exports.h"

/* ---- the word ---- */

/* Only a word that still says CONNECTING can be refused: in any other state the ranks agree
 * already. */
static void refuse(struct slr_comm *c, unsigned k, uint64_t from, enum slr_reason why, int rank)
{
    if (slr_link_state(from) == SLR_LINK_CONNECTING &&
        atomic_compare_exchange_strong(slr_connect_word(c, k), &from, slr_link_refused(slr_refusal(why, rank))))
        slr_oob_wake(c);
}

/* It has no slots of another class, and has never had any. */
static bool is_alone(const struct slr_comm *c, unsigned k)
{
    for (unsigned other = 0; other < SLR_SLOT_CLASSES; other++) {
        const uint64_t word = atomic_load(slr_connect_word(c, other));
        if (other != k && word != 0 && slr_link_state(word) != SLR_LINK_REFUSED)
            return false;
    }
    return true;
}

/* A refusal has been seen. Once for each rank all calls stay with NCCL, where there are no other slots: then all ranks
 * are at the same call. */
static enum slr_reason take_refusal(struct slr_comm *c, unsigned k, uint32_t refusal)
{
    enum slr_reason ring = SLR_R_RING, why = slr_refusal_reason(refusal);
    const int rank = slr_refusal_rank(refusal);
    if (is_alone(c, k) && atomic_compare_exchange_strong(&c->pass, &ring, why))
        slr_comm_passes(c, why, rank);
    else if (c->pass == SLR_R_RING && !atomic_exchange(&c->link->of[k].told, true))
        slr_log(SLR_LOG_WARN, "slots_refused", "comm=%s crank=%d reason=%s peer=%d wanted=%zu msg=%s", c->name, c->rank,
                slr_reason_name(why), rank, slr_slots_wanted(k), "calls that need these slots stay with NCCL");
    return why;
}

/* Several threads may see the new epoch at once: one of them logs it. */
static void log_connected(struct slr_comm *c, unsigned k, uint32_t epoch)
{
    struct slr_link_class *l = &c->link->of[k];
    if (atomic_load(&l->logged) == epoch || atomic_exchange(&l->logged, epoch) == epoch)
        return;
    slr_log(SLR_LOG_INFO, "connected", "comm=%s crank=%d nranks=%d slot_bytes=%zu staging_bytes=%zu times=%u", c->name,
            c->rank, c->nranks, atomic_load(&c->lane->ring.slots[k].bytes), (size_t)slr_connect_held(c), epoch);
}

/* ---- the steps of this rank ---- */

/* A step's number only grows (connect.h), so a rank that is further has passed `at` as well. */
static bool all_at(const struct slr_comm *c, unsigned k, uint64_t at)
{
    for (int r = 0; r < c->nranks; r++)
        if (atomic_load(slr_connect_at(c, k, r)) < at)
            return false;
    return true;
}

static void step(struct slr_comm *c, unsigned k, uint64_t word, enum slr_link_step to)
{
    static enum slr_reason (*const how[])(struct slr_comm *, unsigned,
                                          int *) = {[SLR_LINK_MADE] = slr_connect_make,
                                                    [SLR_LINK_MAPPED] = slr_connect_map,
                                                    [SLR_LINK_TRIED] = slr_connect_try,
                                                    [SLR_LINK_CHECKED] = slr_connect_check};
    uint32_t epoch = slr_link_epoch(word);
    int peer = c->rank;
    enum slr_reason why = how[to](c, k, &peer);
    if (why != SLR_R_RING) {
        refuse(c, k, word, why, peer);
        return;
    }
    /* Before the post: when a peer sees all ranks CHECKED and connects, this rank's gathers find
     * `checked` set, and with it the mappings. */
    if (to == SLR_LINK_CHECKED) {
        atomic_store(&c->link->of[k].checked, epoch);
        atomic_store(&c->link->once, true);
    }
    atomic_store(slr_connect_at(c, k, c->rank), slr_link_at(epoch, to));
    slr_oob_wake(c); /* the peers' next step may have waited for it */
}

/* One step, when all ranks have taken the one before. True: there may be another. */
static bool go_on(struct slr_comm *c, unsigned k, uint64_t word)
{
    uint32_t epoch = slr_link_epoch(word);
    uint64_t at = atomic_load(slr_connect_at(c, k, c->rank));
    uint64_t done = at > slr_link_at(epoch, 0) ? at - slr_link_at(epoch, 0) : 0;
    if (done > 0 && !all_at(c, k, slr_link_at(epoch, (enum slr_link_step)done)))
        return false;
    if (done < SLR_LINK_CHECKED)
        step(c, k, word, (enum slr_link_step)(done + 1));
    else if (slr_connect_change(c, k, word, SLR_LINK_CONNECTED, epoch))
        slr_oob_wake(c);
    return true;
}

/* This rank is through with `epoch`, whether it has come far in it or not: it closes what it has
 * mapped and says CLOSED. Not while a step that was given up may read the peers' staging; of gathers none does. */
static void close_epoch(struct slr_comm *c, unsigned k, uint32_t epoch)
{
    if (atomic_load(slr_connect_at(c, k, c->rank)) >= slr_link_at(epoch, SLR_LINK_CLOSED) || !slr_connect_idle(c, k))
        return;
    slr_connect_unmap(c, k);
    if (c->shared.stuck) /* a mapping is still open: its owner must not take it for closed */
        return;
    atomic_store(slr_connect_at(c, k, c->rank), slr_link_at(epoch, SLR_LINK_CLOSED));
    slr_oob_wake(c);
}

/* Only when no living peer reads or writes it any more. */
static void free_staging(struct slr_comm *c, unsigned k, uint32_t epoch)
{
    for (int r = 0; r < c->nranks; r++)
        if (!slr_connect_let_go(c, k, r, epoch))
            return;
    slr_staging_free(&c->shared.staging[k]);
    atomic_store(&c->link->of[k].staging, 0);
}

/* The last epoch that is over. A refused communicator does not connect again: all of them are. */
static uint32_t over(uint64_t word)
{
    switch (slr_link_state(word)) {
    case SLR_LINK_DISCONNECTED:
        return slr_link_epoch(word);
    case SLR_LINK_REFUSED:
        return SLR_LINK_EPOCHS;
    default:
        return slr_link_epoch(word) - 1;
    }
}

/* First what is over is closed, then the new epoch begins: a rank must not take a step of it while
 * the mappings of the last one are open. */
static void advance_locked(struct slr_comm *c, unsigned k)
{
    uint64_t word = atomic_load(slr_connect_word(c, k));
    if (over(word))
        close_epoch(c, k, over(word));
    if (over(word) && atomic_load(slr_connect_at(c, k, c->rank)) < slr_link_at(over(word), SLR_LINK_CLOSED))
        return;
    while (slr_link_state(word) == SLR_LINK_CONNECTING && go_on(c, k, word))
        word = atomic_load(slr_connect_word(c, k));
    bool disconnected = slr_link_state(word) == SLR_LINK_DISCONNECTED || slr_link_state(word) == SLR_LINK_REFUSED;
    if (disconnected && atomic_load(&c->link->of[k].staging))
        free_staging(c, k, over(word));
}

/* Whether there is no step to take. So it is at most ticks: they then enter no context. */
static bool at_rest(const struct slr_comm *c, unsigned k)
{
    const uint64_t word = atomic_load(slr_connect_word(c, k));
    enum slr_link_state state = slr_link_state(word);
    if (state == SLR_LINK_CONNECTED || state == SLR_LINK_RELEASING)
        return true;
    return state != SLR_LINK_CONNECTING && !atomic_load(&c->link->of[k].staging) &&
           (!over(word) || atomic_load(slr_connect_at(c, k, c->rank)) >= slr_link_at(over(word), SLR_LINK_CLOSED));
}

static bool all_at_rest(const struct slr_comm *c)
{
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
        if (!at_rest(c, k))
            return false;
    return true;
}

/* A peer that will not take its steps any more. One that has failed makes this rank fail. */
static void look_for_lost(struct slr_comm *c, unsigned k)
{
    const uint64_t word = atomic_load(slr_connect_word(c, k));
    if (slr_link_state(word) != SLR_LINK_CONNECTING)
        return;
    slr_shared_watch_peers(&c->shared);
    slr_comm_look_failed(c);
    for (int r = 0; r < c->nranks; r++)
        if (c->shared.peer_dead[r] || atomic_load(&c->shared.control->post[r].state) == SLR_RANK_LEFT) {
            refuse(c, k, word, SLR_R_PEER_DIED, r);
            return;
        }
}

/* Tried only: whoever has the lock takes the steps, and a thread that waited for it could not look
 * at its other communicators. */
static void advance(struct slr_comm *c)
{
    if (pthread_mutex_trylock(&c->link->lock) != 0)
        return;
    if (!all_at_rest(c) && slr_shared_enter(&c->shared) == SLR_OK) {
        for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
            if (!at_rest(c, k))
                advance_locked(c, k);
        slr_shared_leave();
    }
    pthread_mutex_unlock(&c->link->lock);
}

/* Between its gathers: none is being made, and what was enqueued has been completed. The count is
 * read after the word (connect.h). */
static bool between_calls(struct slr_comm *c)
{
    return atomic_load(&c->link->calls) == 0 && atomic_load(&c->error) == ncclSuccess && slr_comm_idle(c);
}

/* A rank that is dead or has left counts as a vote: it does not gather any more. */
static bool all_vote(const struct slr_comm *c, unsigned k, uint64_t vote)
{
    for (int r = 0; r < c->nranks; r++)
        if (atomic_load(&c->shared.control->post[r].linked[k].vote) != vote && !c->shared.peer_dead[r] &&
            atomic_load(&c->shared.control->post[r].state) != SLR_RANK_LEFT)
            return false;
    return true;
}

/* The vote is for this proposal only: a later one has another serial number, so an old vote never
 * counts for it, although the rank may have gathered in between. */
static void vote_to_release(struct slr_comm *c, unsigned k)
{
    uint64_t word = atomic_load(slr_connect_word(c, k)), vote = slr_link_serial(word);
    _Atomic uint64_t *own = &c->shared.control->post[c->rank].linked[k].vote;
    if (slr_link_state(word) != SLR_LINK_RELEASING)
        return;
    if (atomic_load(own) != vote && between_calls(c)) {
        atomic_store(own, vote);
        slr_oob_wake(c);
    }
    if (all_vote(c, k, vote) && slr_connect_change(c, k, word, SLR_LINK_DISCONNECTED, slr_link_epoch(word)))
        slr_oob_wake(c);
}

void slr_connect_tick(struct slr_comm *c)
{
    if (!c->shared.control)
        return;
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++) {
        look_for_lost(c, k); /* refuses when one is gone */
        vote_to_release(c, k);
    }
    advance(c);
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++) {
        const uint64_t word = atomic_load(slr_connect_word(c, k));
        if (slr_link_state(word) == SLR_LINK_REFUSED)
            take_refusal(c, k, slr_link_refusal(word));
    }
}

/* ---- the application's threads ---- */

/* The rank that is furthest behind. */
static int last_rank(const struct slr_comm *c, unsigned k)
{
    int last = 0;
    for (int r = 1; r < c->nranks; r++)
        if (atomic_load(slr_connect_at(c, k, r)) < atomic_load(slr_connect_at(c, k, last)))
            last = r;
    return last;
}

/* This gather comes before a proposal was decided, so the proposal is over, of slots that it does not use as well. */
static void end_proposals(struct slr_comm *c)
{
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++) {
        const uint64_t word = atomic_load(slr_connect_word(c, k));
        if (slr_link_state(word) == SLR_LINK_RELEASING)
            slr_connect_change(c, k, word, SLR_LINK_CONNECTED, slr_link_epoch(word));
    }
}

/* One look. True: *why is the answer, which stays right: a communicator whose gather is counted in `calls` is not
 * disconnected. */
static bool connected(struct slr_comm *c, unsigned k, enum slr_reason *why)
{
    end_proposals(c);
    uint64_t word = atomic_load(slr_connect_word(c, k));
    uint32_t epoch = slr_link_epoch(word);
    *why = SLR_R_RING;
    if (slr_link_state(word) == SLR_LINK_CONNECTED && atomic_load(&c->link->of[k].checked) == epoch)
        return true;
    *why = SLR_R_COMM_ERROR; /* a communicator that has failed does not connect any more */
    if (atomic_load(&c->error) != 0)
        return true;
    if (slr_link_state(word) == SLR_LINK_REFUSED) {
        *why = take_refusal(c, k, slr_link_refusal(word));
        return true;
    }
    if (slr_link_state(word) == SLR_LINK_DISCONNECTED && slr_connect_change(c, k, word, SLR_LINK_CONNECTING, epoch + 1))
        slr_oob_wake(c);
    advance(c);
    return false;
}

/* Takes its own rank's steps while it waits (connected() does). Short pauses at first: connecting
 * usually takes a millisecond, and a rank that is late may take minutes. */
static enum slr_reason wait(struct slr_comm *c, unsigned k)
{
    enum slr_reason why;
    const uint64_t deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    atomic_fetch_add(&c->link->waiting, 1);
    for (unsigned spin = 0; !connected(c, k, &why); spin++) {
        nanosleep(&(struct timespec){.tv_nsec = spin < 100 ? 50000 : 1000000}, NULL);
        if (spin % 16 == 15)
            look_for_lost(c, k);
        if (slr_now_ms() >= deadline)
            refuse(c, k, atomic_load(slr_connect_word(c, k)), SLR_R_AGREE_TIMEOUT, last_rank(c, k));
    }
    atomic_fetch_sub(&c->link->waiting, 1);
    return why;
}

enum slr_reason slr_connect(struct slr_comm *c, unsigned k)
{
    enum slr_reason why;
    atomic_fetch_add(&c->link->calls, 1); /* before the word is read: connect.h, Giving back */
    if (!connected(c, k, &why))
        why = wait(c, k);
    if (why == SLR_R_RING)
        log_connected(c, k, atomic_load(&c->link->of[k].checked));
    return why;
}

void slr_connect_end(struct slr_comm *const *comms, size_t n)
{
    for (size_t i = 0; i < n; i++)
        atomic_fetch_sub(&comms[i]->link->calls, 1);
}

/* Here, because a thread that waits for peers to connect is a gather in flight, too. A context that
 * was reset has no work. */
bool slr_comm_idle(struct slr_comm *c)
{
    if (slr_connect_waits(c))
        return false;
    if (c->pass != SLR_R_RING || slr_shared_enter(&c->shared) != SLR_OK)
        return true;
    /* Whoever has the lock takes a step, and may close the stream of one. */
    bool idle = slr_ring_idle(&c->lane->ring) && pthread_mutex_trylock(&c->link->lock) == 0;
    const bool locked = idle;
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
        idle = idle && slr_connect_idle(c, k);
    if (locked)
        pthread_mutex_unlock(&c->link->lock);
    slr_shared_leave();
    return idle;
}

bool slr_connect_waits(struct slr_comm *c)
{
    return atomic_load(&c->link->waiting) > 0;
}

/* Nobody else is left to hold the lock; it is taken because unmapping asks for it
 * (connect_impl.h). */
void slr_connect_close(struct slr_comm *c)
{
    pthread_mutex_lock(&c->link->lock);
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
        slr_connect_unmap(c, k);
    pthread_mutex_unlock(&c->link->lock);
}

/* ---- giving staging back when memory is short (connect.h, Giving back) ---- */

#define GIVE_UP_MS 500 /* the application's allocation waits for it */

/* Proposes to disconnect it, or finds that this goes on already. The last epoch is kept: there is
 * none to connect in after it. */
static bool propose_of(struct slr_comm *c, unsigned k)
{
    if (c->pass != SLR_R_RING || !atomic_load(&c->link->of[k].staging))
        return false;
    uint64_t word = atomic_load(slr_connect_word(c, k));
    uint32_t epoch = slr_link_epoch(word);
    if (slr_link_state(word) == SLR_LINK_CONNECTED && epoch + 1 < SLR_LINK_EPOCHS && between_calls(c) &&
        slr_connect_change(c, k, word, SLR_LINK_RELEASING, epoch)) {
        slr_oob_wake(c);
        return true;
    }
    return slr_link_state(word) == SLR_LINK_RELEASING || slr_link_state(word) == SLR_LINK_DISCONNECTED;
}

static bool propose(struct slr_comm *c)
{
    bool any = false;
    for (unsigned k = 0; k < SLR_SLOT_CLASSES && c->shared.control; k++)
        any = propose_of(c, k) || any;
    return any;
}

/* Whether there is still something to wait for. */
static bool going_on(struct slr_comm *c)
{
    bool any = false;
    slr_connect_tick(c);
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++) {
        enum slr_link_state state = slr_link_state(atomic_load(slr_connect_word(c, k)));
        any = any ||
              (atomic_load(&c->link->of[k].staging) && (state == SLR_LINK_RELEASING || state == SLR_LINK_DISCONNECTED));
    }
    return any;
}

/* Those that are releasing; waits for them. */
static void part(struct slr_comm *const *list, int n)
{
    uint64_t end = slr_now_ms() + GIVE_UP_MS;
    for (bool more = n > 0; more && slr_now_ms() < end;) {
        more = false;
        for (int i = 0; i < n; i++)
            more = going_on(list[i]) || more;
        nanosleep(&(struct timespec){.tv_nsec = more ? 200000 : 0}, NULL);
    }
}

bool slr_connect_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS), releasing = 0;
    for (int i = 0; i < n; i++) {
        if (propose(list[i]))
            list[releasing++] = list[i];
        else
            slr_comm_put(list[i]);
    }
    part(list, releasing);
    for (int i = 0; i < releasing; i++) {
        end_proposals(list[i]); /* a rank that does not vote in time may be stopped, or about to gather */
        slr_comm_put(list[i]);
    }
    return releasing > 0;
}

/* Nobody withdraws it: all ranks do the same, and whoever gathers all the same changes it back. */
void slr_connect_suspend(struct slr_comm *c, bool waits)
{
    if (propose(c) && waits)
        part(&c, 1);
}
