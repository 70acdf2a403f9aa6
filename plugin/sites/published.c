/* SPDX-License-Identifier: Apache-2.0 */
/* One record: written without waiting, and taken whole or not at all (published.h). */
#include "plugin/sites/published.h"

#include "cache/blocks.h"
#include "plugin/sites/sites.h"

/* The words of a record. An identity is ordinal << 32 | the generation's low half. */
enum word { SHARD, RECV, SEND = RECV + 3, WORDS = SEND + 3 };
enum place_word { IDENTITY, SIZE, OFFSET };
_Static_assert(sizeof(((struct slr_published *)0)->word) == WORDS * sizeof(uint64_t), "one word for each");
_Static_assert(sizeof(struct slr_published) == 64, "one cache line");

/* Release and acquire on every word: see published.h why a torn record is never taken. */
static void put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void put_place(_Atomic uint64_t *word, const struct slr_place *at)
{
    put(&word[IDENTITY], (uint64_t)at->ordinal << 32 | (uint32_t)at->generation);
    put(&word[SIZE], at->size);
    put(&word[OFFSET], at->offset);
}

void slr_published_write(struct slr_published *ring, uint64_t call, bool scatter, uint64_t shard, bool in_place,
                         const struct slr_place *send, const struct slr_place *recv)
{
    struct slr_published *p = &ring[call % SLR_PUBLISHED];
    /* Not valid from here on, until all words are there. Relaxed is enough: the words' release
     * stores carry it. */
    atomic_store_explicit(&p->call, 0, memory_order_relaxed);
    /* All shards together are less than 2^63 bytes, and there are two at least, which leaves two bits. */
    put(&p->word[SHARD], shard << 2 | (uint64_t)scatter << 1 | in_place);
    put_place(&p->word[RECV], recv);
    put_place(&p->word[SEND], send);
    put(&p->call, call);
}

static struct slr_where get_place(const _Atomic uint64_t *word)
{
    /* A generation whose low half is 0 reads as unknown: one in 2^32, and then only a finding of
     * the report is missing. */
    uint64_t identity = get(&word[IDENTITY]);
    return (struct slr_where){.known = (uint32_t)identity != 0,
                              .size = get(&word[SIZE]),
                              .offset = get(&word[OFFSET]),
                              .ordinal = (uint32_t)(identity >> 32)};
}

enum slr_published_result slr_published_read(const struct slr_published *ring, uint64_t call, int rank,
                                             struct slr_use *use, uint64_t *newer)
{
    const struct slr_published *p = &ring[call % SLR_PUBLISHED];
    /* 0, which is being written, is less than any call: NOT_YET as well. */
    uint64_t before = get(&p->call);
    if (before > call) {
        *newer = before;
        return SLR_PUBLISHED_GONE;
    }
    if (before < call)
        return SLR_PUBLISHED_NOT_YET;
    const uint64_t shard = get(&p->word[SHARD]);
    use->shard = shard >> 2;
    use->scatter = shard >> 1 & 1;
    use->in_place = shard & 1;
    use->at[SLR_RECV] = get_place(&p->word[RECV]);
    use->at[SLR_SEND] = get_place(&p->word[SEND]);
    /* By contract at rank * shard; without that all ranks compare alike (sites.h). */
    if (use->in_place)
        use->at[use->scatter ? SLR_RECV : SLR_SEND].offset -= (uint64_t)rank * use->shard;
    /* Overwritten meanwhile: the next look tells by what. */
    return atomic_load_explicit(&p->call, memory_order_relaxed) == call ? SLR_PUBLISHED_OK : SLR_PUBLISHED_NOT_YET;
}
