/* SPDX-License-Identifier: Apache-2.0 */
/* The ring as the host sees it: by its words, without a call of the driver. */
#include "kernels/ring_impl.h"

/* Far above any number in flight, far below half of the cyclic range. */
#define RELEASE_AHEAD (1u << 29)

/* Words and numbers are compared cyclically: what is 2^31 pieces behind counts as ahead. Far above any number in
 * flight, too; a reduce-scatter alone counts 240. */
#define LEFT_BEHIND (1u << 29)

static bool left_behind(uint32_t piece, uint32_t now)
{
    return (int32_t)(now - piece) >= (int32_t)LEFT_BEHIND;
}

/* All that was expected, corrected, opened or staged up to there is long over, and says the same with a later
 * number. */
static void bring_up(_Atomic uint64_t *value, uint32_t now)
{
    if (left_behind((uint32_t)(atomic_load(value) >> 32), now))
        atomic_store(value, slr_ready_value(now - LEFT_BEHIND / 2, 0));
}

void slr_ring_keep_up(struct slr_ring *ring)
{
    const uint32_t now = atomic_load(&ring->issued);
    if (ring->recorded) /* it counts for itself */
        return;
    for (int peer = 0; peer < ring->nranks; peer++) {
        if (peer == ring->rank)
            continue;
        bring_up(&ring->expected[peer], now);
        bring_up(&ring->corrected[peer], now);
        /* A word that only this rank's device writes, when it is told to; that comes later, or now: then it stays. */
        _Atomic uint32_t *open = slr_flag(ring->flags, ring->nranks, SLR_FLAG_OPEN, peer, ring->rank);
        uint32_t said = atomic_load(open);
        if (left_behind(said, now))
            atomic_compare_exchange_strong(open, &said, now - LEFT_BEHIND / 2);
        _Atomic uint32_t *summed = slr_flag(ring->flags, ring->nranks, SLR_FLAG_SUMMED, ring->rank, peer);
        said = atomic_load(summed);
        if (left_behind(said, now))
            atomic_compare_exchange_strong(summed, &said, now - LEFT_BEHIND / 2);
    }
    if (left_behind(atomic_load(&ring->entered), now))
        atomic_store(&ring->entered, 0);
    if (left_behind(atomic_load(&ring->spread), now))
        atomic_store(&ring->spread, 0);
    if (ring->staged && left_behind(ring->staged, now))
        ring->staged = 0;
}

static bool reached(const struct slr_ring *ring, enum slr_flag_kind kind, int owner, int reader, uint32_t piece)
{
    /* The words are in host memory, so the host sees how far the devices are without asking
     * them. */
    return slr_flag_reached(slr_flag_piece(ring->flags, ring->nranks, kind, owner, reader), piece);
}

static bool ready_reached(const struct slr_ring *ring, int owner, int reader, uint64_t value)
{
    uint64_t have = atomic_load(slr_flag_ready(ring->flags, ring->nranks, owner, reader));
    return (int64_t)(have - value) >= 0;
}

/* All corrections that this rank has been asked for are written. */
static bool corrected(const struct slr_ring *ring, int peer)
{
    return ready_reached(ring, ring->rank, peer, atomic_load(&ring->corrected[peer]));
}

/* All that this rank has copied from expected places of the peer is right. */
static bool settled(const struct slr_ring *ring, int peer)
{
    return ready_reached(ring, peer, ring->rank, atomic_load(&ring->expected[peer]));
}

bool slr_ring_reached(const struct slr_ring *ring, uint32_t piece)
{
    for (int step = 1; step < ring->nranks; step++) {
        int peer = (ring->rank + step) % ring->nranks;
        if (!reached(ring, SLR_FLAG_DONE, peer, ring->rank, piece) ||
            !reached(ring, SLR_FLAG_READY, ring->rank, peer, piece) || !corrected(ring, peer))
            return false;
    }
    return true;
}

bool slr_ring_complete(const struct slr_ring *ring)
{
    for (int step = 1; step < ring->nranks; step++)
        if (!settled(ring, (ring->rank + step) % ring->nranks))
            return false;
    return slr_ring_reached(ring, atomic_load(&ring->issued));
}

/* This device has come to the piece and the peer has not given it. A word that was raised lies beyond what has been
 * enqueued. */
static bool lacks(const struct slr_ring *ring, int peer, uint32_t piece)
{
    return slr_flag_reached(atomic_load(&ring->issued), piece) &&
           !reached(ring, SLR_FLAG_READY, peer, ring->rank, piece);
}

/* This device has come to the latest reduce-scatter, having said `open`, and the peer's has not. */
static bool meets_alone(const struct slr_ring *ring, int peer, uint32_t open)
{
    const uint32_t entered = atomic_load(&ring->entered);
    return entered && slr_flag_reached(open, entered) && slr_flag_reached(atomic_load(&ring->issued), open) &&
           !reached(ring, SLR_FLAG_OPEN, ring->rank, peer, entered);
}

/* This device has said that its sums of the latest all-reduce are there, and lacks the peer's. */
static bool sums_alone(const struct slr_ring *ring, int peer)
{
    const uint32_t spread = atomic_load(&ring->spread);
    return spread && reached(ring, SLR_FLAG_SUMMED, ring->rank, peer, spread) &&
           !reached(ring, SLR_FLAG_SUMMED, peer, ring->rank, spread);
}

/* This device has said to `r` that it has come to a piece that the peer has not given, or has read it and not been
 * told that it is right. */
static bool ahead_of(const struct slr_ring *ring, int peer, int r)
{
    const uint32_t ready = slr_flag_piece(ring->flags, ring->nranks, SLR_FLAG_READY, ring->rank, r);
    const uint32_t open = slr_flag_piece(ring->flags, ring->nranks, SLR_FLAG_OPEN, r, ring->rank);
    const uint32_t expected = (uint32_t)(atomic_load(&ring->expected[peer]) >> 32);
    return lacks(ring, peer, ready) || lacks(ring, peer, open) || meets_alone(ring, peer, open) ||
           sums_alone(ring, peer) ||
           lacks(ring, peer, slr_flag_piece(ring->flags, ring->nranks, SLR_FLAG_DONE, r, ring->rank)) ||
           (!settled(ring, peer) && slr_flag_reached(atomic_load(&ring->issued), ready) &&
            slr_flag_reached(ready, expected));
}

bool slr_ring_waits(const struct slr_ring *ring)
{
    for (int r = 0; r < ring->nranks; r++)
        for (int peer = 0; peer < ring->nranks; peer++)
            if (r != ring->rank && peer != ring->rank && ahead_of(ring, peer, r))
                return true;
    return false;
}

bool slr_ring_peer_served(const struct slr_ring *ring, int peer)
{
    uint32_t issued = atomic_load(&ring->issued);
    return reached(ring, SLR_FLAG_DONE, ring->rank, peer, issued) &&
           reached(ring, SLR_FLAG_READY, peer, ring->rank, issued) && settled(ring, peer);
}

bool slr_ring_has_read(const struct slr_ring *ring, int peer)
{
    return reached(ring, SLR_FLAG_DONE, peer, ring->rank, atomic_load(&ring->issued));
}

void slr_ring_release(struct slr_ring *ring, int peer)
{
    uint32_t value = atomic_load(&ring->issued) + RELEASE_AHEAD;
    /* The sending part, then what this rank waits for as a reader. */
    slr_ring_release_sends(ring, peer);
    atomic_store(slr_flag(ring->flags, ring->nranks, SLR_FLAG_BROKEN, peer, ring->rank), 0);
    atomic_store(slr_flag_ready(ring->flags, ring->nranks, peer, ring->rank), slr_ready_value(value, UINT32_MAX));
    atomic_store(slr_flag(ring->flags, ring->nranks, SLR_FLAG_SUMMED, peer, ring->rank), value);
}

void slr_ring_release_sends(struct slr_ring *ring, int peer)
{
    uint32_t value = atomic_load(&ring->issued) + RELEASE_AHEAD;
    /* Said before the waits end: behind them this rank may write over its slots. */
    atomic_store(slr_flag(ring->flags, ring->nranks, SLR_FLAG_BROKEN, ring->rank, peer), 1);
    atomic_store(slr_flag(ring->flags, ring->nranks, SLR_FLAG_DONE, ring->rank, peer), value);
    atomic_store(slr_flag(ring->flags, ring->nranks, SLR_FLAG_OPEN, ring->rank, peer), value);
}

unsigned slr_ring_deliveries(const struct slr_ring *ring, const struct slr_gather *g)
{
    unsigned ways = 0;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            ways |= 1u << slr_delivery_to(g, peer);
    return ways;
}
