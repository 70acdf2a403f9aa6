/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the race oracle share. Places in the file are numbers of 32-byte units, 0 for none; nothing of the
 * file but those is kept while the lock is not held, because the arena may have been wiped meanwhile. */
#ifndef SOFTGPU_RACE_STATE_H
#define SOFTGPU_RACE_STATE_H

#include "sg.h"

#define RACE_QUEUES 1024
#define RACE_BUCKETS 8192
#define RACE_EXITS 256
#define RACE_CLASSES 24 /* of sizes: 32 bytes, 64, ... */
typedef uint32_t race_at;

struct race_key { /* of memory, an event, or a communicator */
    uint64_t a, b;
};

struct race_queue {
    uint32_t last; /* operations so far */
    bool ended;    /* its number may be used again once the host has seen all of them */
};

enum race_sight {
    RACE_SEES,
    RACE_BLIND, /* nothing is judged any more: the lock could not be had, or there is no room for a stream */
    RACE_FROZEN /* nor here: a process was stopped while it had the lock */
};

struct race_file {
    uint64_t magic, bytes;
    pthread_mutex_t lock;
    enum race_sight sight;
    uint64_t ops, checked, excused, dropped, wipes, races, unused;
    int32_t exited[RACE_EXITS]; /* processes that ended by themselves, the latest ones */
    uint32_t nexited;
    uint32_t nqueues;
    struct race_queue queues[RACE_QUEUES];
    uint32_t host[RACE_QUEUES];
    race_at top, free[RACE_CLASSES], words[RACE_BUCKETS], blocks[RACE_BUCKETS];
    race_at suspended; /* the first of the list */
    uint32_t nsuspended;
};
extern struct race_file *race_file;

/* ---- race.c ---- */
bool race_lock(void); /* false: nothing is judged any more */
void race_unlock(void);
void race_all(struct sg_clock *k); /* joins everything that has run */
void race_join(struct sg_clock *k, const uint32_t *c, uint32_t n);
void race_host_joins(const struct sg_clock *k);
void race_joins_host(struct sg_clock *k);
bool race_has_ended(int32_t pid); /* by itself */

/* ---- race_arena.c ---- */
void *race_ptr(race_at at);
race_at race_alloc(size_t bytes); /* zeroed; 0: none left, and the arena will be wiped when the lock is given back */
void race_free(race_at at, size_t bytes);
void race_wipe(void);
bool race_is_full(void);
size_t race_bucket(struct race_key key, uint64_t offset);

/* ---- race_memory.c: identity ---- */
bool race_memory(struct sg_mem *m, uintptr_t p, struct race_key *key, uint64_t *offset);
bool race_is_shared(struct race_key key); /* other mappings of it may stay */
bool race_is_file(struct race_key key);   /* host memory of several processes */

/* ---- race_word.c ---- */
struct race_place {
    struct race_key key;
    uint64_t offset;
    uintptr_t addr; /* here */
    bool wide;
};
/* The word that the operation waits for or writes, if it does. `mem`: NULL when the operation's memory is pinned. */
bool race_place_of(struct sg_op *op, struct sg_mem *mem, struct race_place *place);
void race_word_watch(const struct race_place *place); /* before the first wait is queued */
void race_word_release(const struct race_place *place, struct sg_op *op, void (*store)(struct sg_op *op));
/* True when the value was not one that an operation wrote, or that was there before. */
bool race_word_acquire(const struct race_place *place, const struct sg_memop *wait, struct sg_clock *k);
void race_event_place(const struct sg_shared_event *e, struct race_place *place);
void race_meet_begin(uint64_t id, const struct sg_clock *k);
void race_meet_end(uint64_t id, struct sg_clock *k);

/* ---- race_access.c ---- */
enum {
    RACE_WRITE = 1,
    RACE_WORD = 2, /* a single aligned word: atomic */
    RACE_SYNC = 4, /* stream memory operation */
    RACE_LIFE = 8  /* the memory itself comes or goes */
};
struct race_access { /* refers to the intervals that it was the latest of its kind for */
    uint32_t refs, queue, epoch, kind;
    uint64_t number; /* of the operation, in the run */
    uint64_t stream, lo, hi;
    uintptr_t base; /* of the mapping */
    int32_t pid, dev;
    race_at copy; /* of both accesses of a copy that race_copy_new knows; else 0 */
    char what[32];
};
struct race_found {
    struct race_access other, self;
    struct race_access use; /* what used a racing copy's bytes; number 0: nothing was waited for */
    struct race_key key;
    uint64_t lo, hi;
    bool in_place; /* nothing used them, and they were there when the copy's process ended */
};
struct race_judge { /* one operation while its accesses are judged */
    const struct sg_clock *clock;
    struct race_access self; /* lo, hi, kind, base: of the access at hand */
    struct race_key key;
    unsigned nfound;
    struct race_found found[4];
};
void race_access(struct race_judge *j, uint64_t offset, size_t row, size_t rows, size_t pitch);
bool race_was_written(struct race_key key, uint64_t lo, uint64_t hi);
/* All of the memory, or what this process did through the mapping at `base`. */
void race_access_all(struct race_judge *j, bool through_base);
void race_forget(struct race_key key);
bool race_was_killed(const struct race_access *a);
bool race_tell(struct race_judge *j, const struct race_found *f); /* false: no room for it */
/* What is left at lo..hi of what the copy wrote there: nothing, unread bytes, or some that were read. */
enum race_left { RACE_GONE, RACE_HELD, RACE_READ };
enum race_left race_left(race_at copy, struct race_key key, uint64_t lo, uint64_t hi);

/* ---- race_suspend.c: copies of one run of bytes, from device to device, and their races ---- */
race_at race_copy_new(const struct sg_clock *k, uint64_t from_offset, struct race_key to, uint64_t to_offset);
void race_copy_hold(race_at copy);
void race_copy_drop(race_at copy);
bool race_copy_follows(race_at copy, const struct race_access *a);
/* Where it wrote: its bytes lo..hi are being read; they were used and are being overwritten. */
void race_copy_read(struct race_judge *j, race_at copy, uint64_t lo, uint64_t hi);
void race_copy_used(race_at copy, uint64_t lo, uint64_t hi);
/* The same of what it read at lo..hi; RACE_READ also when it was overwritten after that. */
enum race_left race_copy_left(race_at copy, uint64_t lo, uint64_t hi);
/* True when there is nothing to report now, perhaps ever. */
bool race_suspend(const struct race_found *f);
/* This process ends. `forced`: it went on after a failure, so that unread bytes are excused. */
void race_suspended_end(struct race_judge *j, bool forced);

/* ---- race_ops.c ---- */
void race_op_accesses(struct race_judge *j, struct sg_stream *s, struct sg_op *op);
void race_report(const struct race_judge *j); /* without the oracle's lock */

#endif
