/* Symmetry: which call sites use the same allocation at the same offset, on all ranks and in every iteration.
 *
 * Multicast, and a put that needs no agreement for each call, require that; slipring checks it instead of assuming it.
 * Nothing depends on the answer yet: how a shard travels is agreed call by call (terms.h), so a site that breaks costs
 * a staging copy at most.
 *
 * Publishing. Each rank has a ring of SLR_PUBLISHED records in the control block, written by that rank only. For call
 * number c (equal on all ranks, from 1) it writes record c modulo SLR_PUBLISHED before it enqueues the call:
 *
 *   call    c-512 (or 0: never written) -> 0 (being written) -> c
 *   word[]  shard and whether in place; for each buffer {ordinal and generation, size of the block, offset}
 *
 * A record is one cache line, so of the generation only 32 bits are there; 0: the buffer is in no block of the cache,
 * and its address stands for the offset.
 *
 * A reader takes the record of call c only if `call` is c before and after it has read the words. Words are stored with
 * release and loaded with acquire: who meets a new word meets the new `call` as well, so a torn record is never taken
 * (which needs no fence; ThreadSanitizer would not understand one). Neither side waits; there are no locks.
 *
 * Analysis. In the background (housekeeping, every tick) and on every rank, from the same records: call after call, as
 * far as all ranks have published.
 *
 *   a record is older than the call, or being written   -> the rank is not there yet: look again at the next tick
 *   a record is newer than the call                     -> the call can not be read any more: skip to 384 calls before
 *                                                          that record, and count what was skipped
 *   else                                                -> phases.h finds its site, sites.h compares
 *
 * A slow rank delays the analysis and is not delayed by it. A rank that is dead, or has failed, publishes no more,
 * so the analysis ends there. When a communicator ends, this rank's last gather has arrived, and every peer published
 * the call before it enqueued it: the analysis then reaches the last call. The same holds for a program that exits
 * after having waited for its gathers.
 *
 * Who writes what:  record of rank r: the thread of rank r that holds the pending lock;  slr_comm.symmetry: whoever
 * holds the analysis lock (symmetry.c), a leaf but for the log.
 */
#ifndef SLR_PLUGIN_SYMMETRY_H
#define SLR_PLUGIN_SYMMETRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct slr_comm;
struct slr_call;
struct slr_place;
struct slr_use;

#define SLR_PUBLISHED 512u

struct slr_published {
    _Alignas(64) _Atomic uint64_t call;
    _Atomic uint64_t word[7];
};

/* In an own record. */
void slr_published_write(struct slr_published *ring, uint64_t call, uint64_t shard, bool in_place,
                         const struct slr_place *send, const struct slr_place *recv);

/* Reads call `call` of rank `rank`. SLR_PUBLISHED_GONE: *newer is the call that has taken its record. */
enum slr_published_result { SLR_PUBLISHED_OK, SLR_PUBLISHED_NOT_YET, SLR_PUBLISHED_GONE };
enum slr_published_result slr_published_read(const struct slr_published *ring, uint64_t call, int rank,
                                             struct slr_use *use, uint64_t *newer);

/* Under the pending lock, before the call is enqueued. */
void slr_symmetry_publish(const struct slr_call *call, const struct slr_place *send, const struct slr_place *recv);

/* Analyses what all ranks have published. Of one communicator from one thread at a time. */
void slr_symmetry_tick(struct slr_comm *c);

/* The communicator or the process ends: analyses what is left and reports, once. */
void slr_symmetry_end(struct slr_comm *c);

/* Ends it, if that has not been done, and frees its memory. */
void slr_symmetry_dispose(struct slr_comm *c);

#endif
