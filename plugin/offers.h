/* Offers: blocks of device memory that a rank lets its peers map, so that shards in them need no staging.
 *
 * A gather that finds its buffer in a block of the cache (cache/blocks.h) that is not offered yet asks for it (want);
 * the watchdog exports it, pins it, and writes the offer into this rank's post. The peers' watchdogs map it and
 * acknowledge by its generation. Only a block that a peer has acknowledged is named in a term for that peer (terms.h).
 * Nothing of this is waited for; until then shards are staged.
 *
 *   owner's entry    EMPTY -> OFFERED (generation, size, handle)  -> REVOKED (last call that may name it) -> EMPTY when
 * no living peer acknowledges it peer's ack       0 -> generation (mapped) -> 0 (closed: revoked, its last call
 * enqueued here and completed by this device)
 *
 * Who writes: the entry its owner; the ack its peer. An entry is revoked when its place is needed for another block,
 * least recently used first, or when memory is short; the block is unpinned when the entry is EMPTY again, and only
 * then may it go back to the driver. A peer that dies counts as closed.
 */
#ifndef SLR_PLUGIN_OFFERS_H
#define SLR_PLUGIN_OFFERS_H

#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "cache/staging.h"
#include "kernels/ring.h"

struct slr_comm;

/* A place in a block that its owner offers; generation 0: none. */
struct slr_spot {
    uint64_t generation, offset;
};

#define SLR_OFFERS 32

enum slr_offer_state { SLR_OFFER_EMPTY, SLR_OFFER_OFFERED, SLR_OFFER_REVOKED };

/* In the owner's post. */
struct slr_offer {
    _Atomic uint32_t state;
    _Atomic uint64_t generation; /* written after the rest */
    _Atomic uint64_t last_call;  /* REVOKED: later calls do not name it */
    uint64_t size;
    struct slr_staging_offer export;
};

/* A rank's own memory of its entries and of what it has mapped. Its lock is held for moments only: the watchdog takes
 * it as well, and must never wait for a thread that waits for a peer. */
struct slr_offers {
    pthread_mutex_t lock;
    uint64_t naming;   /* number of the call that names blocks now, or named them last */
    uint64_t enqueued; /* number of the last call that is enqueued: what its terms named has been looked up */
    struct {
        uint64_t generation, used; /* used: call that named it last */
    } own[SLR_OFFERS];
    struct {
        uint64_t generation;
        CUdeviceptr base;
        uint32_t until; /* piece that has to be complete before it may be closed; set when its last call is enqueued */
        bool closing;
    } mapped[SLR_MAX_RANKS][SLR_OFFERS];
    struct {
        uint64_t generation;
        CUdeviceptr base;
        size_t size;
    } wanted[4];
    uint64_t refused[16]; /* generations that can not be exported; a ring buffer */
    unsigned refused_at;
};

/* Around the terms of a call and its gather. */
void slr_offers_begin(struct slr_comm *c, uint64_t call);
void slr_offers_end(struct slr_comm *c, uint64_t call);

/* The spot of `p` for `peer`, or none; asks for an offer when the block has none. */
struct slr_spot slr_offer_spot(struct slr_comm *c, CUdeviceptr p, size_t bytes, int peer, uint64_t call);

/* Where a peer's spot is in this rank's device memory. */
CUdeviceptr slr_offer_mapped(struct slr_comm *c, int peer, struct slr_spot spot);

/* Background work for one communicator; the watchdog's alone. */
void slr_offers_tick(struct slr_comm *c);

/* Memory is short: revokes everything that this process offers and waits a moment for the peers to close it. Blocks in
 * use are offered again when the next gather meets them. For slr_block_on_shortage. */
bool slr_offers_give_up(void);

/* The communicator ends: closes all that is mapped. What is offered stays pinned until the peers have left (retire.h).
 */
void slr_offers_close(struct slr_comm *c);

#endif
