/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of records of operations (profile_impl.h), and the life of one record. Without locks, as NCCL calls from
 * the program's threads and from its proxy threads, in any order.
 *
 * Its state is one word, changed by compare-and-swap only: the generation, and
 *
 *   used       taken; its fields are the taker's until it gives the handle away
 *   own        its own stop has not come
 *   open       kernel channels that have started and not stopped
 *   seen       kernel channels that have started
 *   reported   somebody writes it into the sums, or has: only who sets this does so
 *   told       that is over
 *
 * It is free again when it is told, and neither own nor open.
 */
#include "base/wait.h"
#include "plugin/profiler/profile_impl.h"

#include <sched.h>

/* A record's word: generation << 32 | seen << 20 | open << 8 | these. */
#define USED 1u
#define OWN 2u
#define REPORTED 4u
#define TOLD 8u
#define OPEN_ONE (1u << 8)
#define SEEN_ONE (1u << 20)
#define MOST 0xfffu /* channels open, and seen; NCCL has 64 at most */

/* Records looked at for a free one, before some are taken from operations that only wait; and how
 * many of these at once, as looking takes long. */
#define TRIES 1024
#define AT_ONCE 64

/* A handle: generation << 18 | index << 2 | kind. The kind is never 0, so no handle is NULL; 50 bits
 * are used, so it fits a pointer. */
enum kind { KIND_CALL = 1, KIND_OP = 2, KIND_CHANNEL = 3 };
#define KIND_MASK 3u
#define INDEX_SHIFT 2
#define GENERATION_SHIFT 18

static struct slr_profile_record records[SLR_PROFILE_RECORDS];
static _Atomic uint32_t next;
_Static_assert((SLR_PROFILE_RECORDS & (SLR_PROFILE_RECORDS - 1)) == 0, "indices wrap around");
_Static_assert(SLR_PROFILE_RECORDS <= 1 << (GENERATION_SHIFT - INDEX_SHIFT), "an index fits a handle");

static unsigned open_of(uint64_t w)
{
    return (unsigned)w >> 8 & MOST;
}

static unsigned seen_of(uint64_t w)
{
    return (unsigned)w >> 20 & MOST;
}

static uint64_t generation_of(uint64_t w)
{
    return w >> 32;
}

static void *handle_of(const struct slr_profile_record *r, uint64_t generation, enum kind kind)
{
    uint64_t index = (uint64_t)(r - records);
    return (void *)(uintptr_t)(generation << GENERATION_SHIFT | index << INDEX_SHIFT | kind);
}

/* The record of a handle of this kind and its state; NULL when it is none, or no longer. */
static struct slr_profile_record *find(const void *handle, enum kind kind, uint64_t *word)
{
    uint64_t h = (uintptr_t)handle;
    if ((h & KIND_MASK) != kind)
        return NULL;
    struct slr_profile_record *r = &records[h >> INDEX_SHIFT & (SLR_PROFILE_RECORDS - 1)];
    *word = atomic_load_explicit(&r->word, memory_order_acquire);
    return *word & USED && generation_of(*word) == h >> GENERATION_SHIFT ? r : NULL;
}

/* False: `*word` has changed, and holds what it is now. Also without a reason (weak): who needs it
 * tries again, who takes a record takes the next one. */
static bool change(struct slr_profile_record *r, uint64_t *word, uint64_t to)
{
    return atomic_compare_exchange_weak_explicit(&r->word, word, to, memory_order_acq_rel, memory_order_acquire);
}

/* Nothing comes for it any more, and what came is in the sums. */
static bool over(uint64_t w)
{
    return w & TOLD && !(w & OWN) && open_of(w) == 0;
}

/* The generation stays, so that the next taker's is another one and old handles find nothing. */
static uint64_t freed(uint64_t w)
{
    return generation_of(w) << 32;
}

/* The caller has set `reported`. */
static void report_it(struct slr_profile_record *r, slr_profile_report report)
{
    uint64_t w = atomic_load(&r->word), to;
    report(r, seen_of(w));
    /* A flush waits for this: the owner may be freed from here on. */
    atomic_store_explicit(&r->owner, NULL, memory_order_release);
    do {
        to = w | TOLD;
    } while (!change(r, &w, over(to) ? freed(to) : to));
}

/* Its kernel channels were expected and have not come, and its record is needed. */
static void give_up(struct slr_profile_record *r, slr_profile_report report)
{
    uint64_t w = atomic_load(&r->word);
    if (w & USED && !(w & (OWN | REPORTED)) && open_of(w) == 0 && atomic_load(&r->owner) && change(r, &w, w | REPORTED))
        report_it(r, report);
}

/* It has no owner until slr_oprecord_ready(), so a flush leaves it alone meanwhile. */
static struct slr_profile_record *try_take(uint32_t at, void **handle)
{
    struct slr_profile_record *r = &records[at % SLR_PROFILE_RECORDS];
    uint64_t w = atomic_load_explicit(&r->word, memory_order_acquire);
    uint64_t generation = (generation_of(w) + 1) & UINT32_MAX;
    if (w & USED || !change(r, &w, generation << 32 | USED | OWN))
        return NULL;
    *handle = handle_of(r, generation, KIND_OP);
    return r;
}

struct slr_profile_record *slr_oprecord_take(void **handle, slr_profile_report report)
{
    struct slr_profile_record *r = NULL;
    /* In a circle, as old records are the likeliest to be free. */
    uint32_t start = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < TRIES && !r; i++)
        if ((r = try_take(start + i, handle)) && i)
            atomic_fetch_add_explicit(&next, i, memory_order_relaxed); /* past what is in use */
    for (uint32_t i = 0; i < AT_ONCE && !r; i++)
        give_up(&records[(start + i) % SLR_PROFILE_RECORDS], report);
    for (uint32_t i = 0; i < AT_ONCE && !r; i++)
        r = try_take(start + i, handle);
    if (!r)
        return NULL;
    /* Relaxed: nobody has the handle yet. */
    atomic_store_explicit(&r->first, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&r->last, 0, memory_order_relaxed);
    atomic_store_explicit(&r->end, 0, memory_order_relaxed);
    return r;
}

void slr_oprecord_ready(struct slr_profile_record *r, struct slr_profile *owner)
{
    atomic_store_explicit(&r->owner, owner, memory_order_release);
}

/* Whoever brings it into this state reports it. */
static bool complete(struct slr_profile_record *r, uint64_t w)
{
    return !(w & (OWN | REPORTED)) && open_of(w) == 0 &&
           seen_of(w) >= atomic_load_explicit(&r->expect, memory_order_relaxed);
}

/* From `w`, of which something has been taken away: to free, to reported, or only to less. */
static bool take_away(struct slr_profile_record *r, uint64_t *word, uint64_t w, slr_profile_report report)
{
    bool last = complete(r, w);
    if (!change(r, word, over(w) ? freed(w) : last ? w | REPORTED : w))
        return false;
    if (last)
        report_it(r, report);
    return true;
}

static void stop_op(struct slr_profile_record *r, uint64_t w, slr_profile_report report)
{
    uint64_t generation = generation_of(w);
    if (w & OWN)
        /* Before the word says that it has stopped: then another thread may report it. */
        atomic_store_explicit(&r->end, slr_now_ns(), memory_order_relaxed);
    while (w & OWN && generation_of(w) == generation && !take_away(r, &w, w & ~(uint64_t)OWN, report))
        ;
}

static void stop_channel(struct slr_profile_record *r, uint64_t w, slr_profile_report report)
{
    uint64_t generation = generation_of(w);
    while (open_of(w) && generation_of(w) == generation && !take_away(r, &w, w - OPEN_ONE, report))
        ;
}

void slr_oprecord_stop(void *handle, slr_profile_report report)
{
    uint64_t w;
    struct slr_profile_record *r = find(handle, KIND_OP, &w);
    if (r)
        stop_op(r, w, report);
    else if ((r = find(handle, KIND_CHANNEL, &w)))
        stop_channel(r, w, report);
}

void *slr_oprecord_channel(void *parent, uint64_t gpu_start)
{
    uint64_t w;
    struct slr_profile_record *r = find(parent, KIND_OP, &w);
    if (!r)
        return NULL;
    uint64_t generation = generation_of(w);
    do {
        if (generation_of(w) != generation || !(w & USED) || w & REPORTED || seen_of(w) == MOST)
            return NULL;
    } while (!change(r, &w, w + OPEN_ONE + SEEN_ONE));
    /* The minimum over all channels, which start on NCCL's proxy threads; 0: not told. The channel
     * is counted as open before, so the record is not complete while this is stored. */
    uint64_t first = atomic_load_explicit(&r->first, memory_order_relaxed);
    while (gpu_start && gpu_start < first &&
           !atomic_compare_exchange_weak_explicit(&r->first, &first, gpu_start, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    return handle_of(r, generation, KIND_CHANNEL);
}

void slr_oprecord_channel_ended(void *channel, uint64_t gpu_stop)
{
    uint64_t w;
    struct slr_profile_record *r = find(channel, KIND_CHANNEL, &w);
    if (!r || w & REPORTED) /* too late for the sums */
        return;
    /* The maximum, likewise: its own stop comes after this. */
    uint64_t last = atomic_load_explicit(&r->last, memory_order_relaxed);
    while (gpu_stop > last && !atomic_compare_exchange_weak_explicit(&r->last, &last, gpu_stop, memory_order_relaxed,
                                                                     memory_order_relaxed))
        ;
}

static void flush(struct slr_profile_record *r, const struct slr_profile *owner, slr_profile_report report)
{
    uint64_t w = atomic_load_explicit(&r->word, memory_order_acquire);
    while (atomic_load_explicit(&r->owner, memory_order_acquire) == owner && !(w & REPORTED))
        if (change(r, &w, w | REPORTED)) {
            report_it(r, report);
            return;
        }
    while (atomic_load_explicit(&r->owner, memory_order_acquire) == owner)
        sched_yield(); /* another thread is at it, and needs the owner until it is done */
}

void slr_oprecord_flush(const struct slr_profile *owner, slr_profile_report report)
{
    for (unsigned i = 0; i < SLR_PROFILE_RECORDS; i++)
        if (atomic_load_explicit(&records[i].owner, memory_order_acquire) == owner)
            flush(&records[i], owner, report);
}
