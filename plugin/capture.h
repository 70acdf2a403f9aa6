/* Gathers that a rank records in a graph instead of making them.
 *
 * They go to NCCL (design rule R6), and only this rank knows that they do. When all ranks capture the same call nothing
 * is lost. When some capture what others make, the others' rings wait for this rank: its call of that number never
 * comes, or worse, is the next one. slipring can not mend that, because the others have enqueued their part before
 * anybody knows, but it is found, and the communicator fails on all ranks with a message instead of waiting for ever or
 * taking the wrong data:
 *
 *   a rank that captures counts it and posts {count, number of the call that comes next}
 *   its peers' watchdogs fail when they have made that call without having captured as many
 *   each record of terms.h carries the first side's count; the second side fails when its own is another
 *
 * The count is posted before the call that it precedes is made, so ranks that capture alike never differ in either.
 */
#ifndef SLR_PLUGIN_CAPTURE_H
#define SLR_PLUGIN_CAPTURE_H

#include <stdint.h>

struct slr_comm;

/* A gather of this rank is being recorded. */
void slr_capture_note(struct slr_comm *c);

/* `theirs`: what the peer had captured when it made the call that this rank is about to make. */
void slr_capture_compare(struct slr_comm *c, int peer, uint32_t theirs);

/* For the watchdog: whether the peer has captured what this rank has made. */
void slr_capture_look(struct slr_comm *c, int peer);

#endif
