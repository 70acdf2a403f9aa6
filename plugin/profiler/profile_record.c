/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of records of operations (profile_impl.h), and the life of one record:
 *
 *   free  --slr_oprecord_take-->                                       in use
 *         its own stop and those of its channels have come, as many as were announced;
 *         or its place is needed; or its communicator ends:            reported, once
 *         reported, and all that has started has stopped:              free, under another generation */
#include "base/wait.h"
#include "plugin/profiler/profile_impl.h"

/* Records that are taken at once from operations of which nothing runs, but channels that were announced have not
 * come. */
#define AT_ONCE 64

/* A handle: generation << 18 | index << 2 | kind. The kind is never 0, so no handle is NULL; 50 bits
 * are used, so it fits a pointer. Of kind 1 are profile.c's. */
enum kind { KIND_OP = 2, KIND_CHANNEL = 3 };
#define KIND_MASK 3u
#define INDEX_SHIFT 2
#define GENERATION_SHIFT 18

static struct slr_profile_record records[SLR_PROFILE_RECORDS];
static struct slr_profile_record *free_list; /* of those that have been used */
static uint32_t used, oldest;                /* how many ever were; where places are looked for */
_Static_assert((SLR_PROFILE_RECORDS & (SLR_PROFILE_RECORDS - 1)) == 0, "indices wrap around");
_Static_assert(SLR_PROFILE_RECORDS <= 1 << (GENERATION_SHIFT - INDEX_SHIFT), "an index fits a handle");

static void *handle_of(const struct slr_profile_record *r, enum kind kind)
{
    const uint64_t index = (uint64_t)(r - records);
    return (void *)(uintptr_t)((uint64_t)r->generation << GENERATION_SHIFT | index << INDEX_SHIFT | kind);
}

/* The record of a handle of this kind; NULL when it is none, or no longer. */
static struct slr_profile_record *find(const void *handle, enum kind kind)
{
    const uint64_t h = (uintptr_t)handle;
    struct slr_profile_record *r = &records[h >> INDEX_SHIFT & (SLR_PROFILE_RECORDS - 1)];
    return (h & KIND_MASK) == kind && r->owner && r->generation == h >> GENERATION_SHIFT ? r : NULL;
}

static void free_if_over(struct slr_profile_record *r)
{
    if (!r->reported || r->own || r->open)
        return;
    r->owner = NULL;
    r->next = free_list;
    free_list = r;
}

/* Held open meanwhile, as the lock may be given up. */
static void report(struct slr_profile_record *r)
{
    r->reported = true;
    r->open++;
    slr_profile_count(r);
    r->open--;
    free_if_over(r);
}

static bool is_quiet(const struct slr_profile_record *r)
{
    return r->owner && !r->own && !r->reported && r->open == 0;
}

struct slr_profile_record *slr_oprecord_take(struct slr_profile *owner, void **handle)
{
    for (uint32_t i = 0; i < AT_ONCE && !free_list && used == SLR_PROFILE_RECORDS; i++, oldest++)
        if (is_quiet(&records[oldest % SLR_PROFILE_RECORDS]))
            report(&records[oldest % SLR_PROFILE_RECORDS]);
    struct slr_profile_record *r = free_list ? free_list : used < SLR_PROFILE_RECORDS ? &records[used++] : NULL;
    if (!r)
        return NULL;
    free_list = free_list ? r->next : NULL;
    *r = (struct slr_profile_record){
        .owner = owner, .generation = r->generation + 1, .own = true, .first = UINT64_MAX, .begin = slr_now_ns()};
    *handle = handle_of(r, KIND_OP);
    return r;
}

/* It, or one of its channels. */
static void stop(struct slr_profile_record *r, bool channel)
{
    if (channel && r->open) {
        r->open--;
    } else if (!channel && r->own) {
        r->own = false;
        r->end = slr_now_ns();
    }
    if (r->reported)
        free_if_over(r);
    else if (is_quiet(r) && r->seen >= r->expect)
        report(r);
}

void slr_profile_stop(void *handle)
{
    const enum kind kind = (enum kind)((uintptr_t)handle & KIND_MASK);
    if (kind != KIND_OP && kind != KIND_CHANNEL)
        return;
    pthread_mutex_lock(&slr_profile_lock);
    struct slr_profile_record *r = find(handle, kind);
    if (r)
        stop(r, kind == KIND_CHANNEL);
    pthread_mutex_unlock(&slr_profile_lock);
}

void *slr_profile_channel(void *parent, uint64_t gpu_start)
{
    void *handle = NULL;
    pthread_mutex_lock(&slr_profile_lock);
    struct slr_profile_record *r = find(parent, KIND_OP);
    if (r && !r->reported) {
        r->open++;
        r->seen++;
        r->first = gpu_start && gpu_start < r->first ? gpu_start : r->first; /* 0: not told */
        handle = handle_of(r, KIND_CHANNEL);
    }
    pthread_mutex_unlock(&slr_profile_lock);
    return handle;
}

void slr_profile_channel_ended(void *channel, uint64_t gpu_stop)
{
    pthread_mutex_lock(&slr_profile_lock);
    struct slr_profile_record *r = find(channel, KIND_CHANNEL);
    if (r)
        r->last = gpu_stop > r->last ? gpu_stop : r->last;
    pthread_mutex_unlock(&slr_profile_lock);
}

void slr_oprecord_flush(const struct slr_profile *owner)
{
    for (struct slr_profile_record *r = records; r < records + used; r++)
        if (r->owner == owner && !r->reported)
            report(r);
    while (owner->writing) /* another thread is at it, and needs the owner until it is done */
        pthread_cond_wait(&slr_profile_written, &slr_profile_lock);
}
