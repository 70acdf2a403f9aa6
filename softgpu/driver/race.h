/* SPDX-License-Identifier: Apache-2.0 */
/* The race oracle: SOFTGPU_RACE=<file> makes every operation record what it reads and writes, and reports two accesses
 * to the same bytes, at least one of them a write, that nothing orders. It judges by order, never by time: accesses
 * that happened to run seconds apart are reported like those that overlapped.
 *
 * Order is kept in vector clocks with one component for each queue, which is a stream of a process (default and
 * per-thread streams are streams like others). An operation's clock is that of its queue, joined with that of
 *
 *   the host        at the call that queued it;
 *   a fence         of each operation that it follows: event waits, the legacy stream's rules;
 *   a word          when it is a wait for a value: see below;
 *   a rendezvous    when it is a collective's kernel: joined at its end with what the ranks' kernels brought at their
 * begin; and kernels of one communicator follow one another in each process.
 *
 * The host's clock takes in what the host has seen complete: synchronisation of any kind, a successful query, the end
 * of a synchronous copy, host functions. Hosts tell each other things by means that are invisible here (pipes, sockets,
 * shared memory), so all threads of all processes of the run have one host clock together. That can hide a race and can
 * not invent one.
 *
 * A word is what streams write and wait for; it is identified physically, whoever maps it where. Each write of a stream
 * (stream memory operation, copy or fill of a single word) puts {value, clock} in the word's history. A wait takes the
 * clock of the earliest entry of the last unbroken row of entries that satisfy it: that one it would have been content
 * with, whatever it happened to see. Values that nobody is known to have written (a host's store) bring the host's
 * clock, or all of what has run where an operation may have been the writer.
 *
 * Where a process raises a word of shared host memory to end its own stream's wait, which is what a library does when a
 * peer has failed, that stream goes on although its data is not there: it is not judged any more. Neither is what a
 * process did that was killed.
 *
 * Memory is identified by who allocated it and a serial number, so that an import and the owner's pointer are the same
 * bytes; shared host memory by its file. Freeing memory is a write to all of it, and its history ends; taking away a
 * mapping is one to what was done through it. Pageable host memory is not followed. A host that reads device-written
 * memory without asking the driver is not seen to have synchronised.
 *
 * A copy may read what somebody writes meanwhile, if nobody uses what it read. So a race between a
 * write and the read of a linear copy, from one device memory to another, is suspended, with the
 * bytes of the destination that correspond. It is reported
 *
 *   when anything reads such a byte while it is still the copy's: another copy, too, whatever
 *   becomes of that one's bytes;
 *   when the process that made the copy ends and one is in place, or was overwritten by something
 *   that does not follow the copy, which is a race of its own; from then on, at once;
 *
 * and dropped, and counted as unused, when all of them have been overwritten or their memory has
 * been freed. If the race is seen only then, the histories tell: each knows whether a write's bytes
 * have been read since, and a copy knows which of its bytes were read before they were overwritten.
 * A copy's read stands for earlier reads of the same bytes only once its bytes have been used.
 *
 * Reported at once: a free or an unmapping of what a copy reads; copies from or to host or managed
 * memory; copies of rectangles; everything, when there is no room to remember more. What a process
 * holds in place after a failure (see above) is excused. Memory of cuMemCreate is never seen freed.
 *
 * The state is in the file, shared by the processes of a run, under one robust lock. When a process
 * dies with the lock, or memory is short, histories and suspended reports are dropped and everything
 * that has run is taken as ordered: races are lost then, and the number of times is in <file>.stats.
 * Every process adds a line to that file at its end.
 *
 * All functions are called with sg_lock but for sg_race_store, and do nothing unless sg_race_on. */
#ifndef SOFTGPU_RACE_H
#define SOFTGPU_RACE_H

#include <stdbool.h>
#include <stdint.h>

struct sg_stream;
struct sg_op;
struct sg_fence;
struct sg_mem;
struct sg_event;
struct sg_ctx;

extern bool sg_race_on;

struct sg_clock { /* component q is the number of operations of queue q that are before; zero-filled past n */
    uint32_t *c;
    uint32_t n;
};
void sg_clock_free(struct sg_clock *k);

void sg_race_load(void); /* by cuInit */

/* ---- an operation's life ---- */
void sg_race_queued_locked(struct sg_stream *s, struct sg_op *op);
void sg_race_start_locked(struct sg_stream *s, struct sg_op *op, bool runs);
void sg_race_store(struct sg_op *op, void (*store)(struct sg_op *op)); /* does what the operation does */
void sg_race_done_locked(struct sg_stream *s, struct sg_op *op, bool ran);

/* ---- what the host sees ---- */
void sg_race_saw_fence_locked(const struct sg_fence *f);
void sg_race_saw_stream_locked(const struct sg_stream *s); /* it is idle */
void sg_race_saw_ctx_locked(const struct sg_ctx *ctx);     /* all of its work is done */
void sg_race_saw_event_locked(const struct sg_event *e);   /* it is complete */

/* ---- ends ---- */
void sg_race_stream_ends_locked(struct sg_stream *s);
void sg_race_memory_ends_locked(struct sg_mem *m);
void sg_race_forget_locked(struct sg_mem *m); /* its end is known to be behind all that used it */

#endif
