/* SPDX-License-Identifier: Apache-2.0 */
/* The three threads of a process that has a communicator on the ring, or one that is measured.
 *
 *   slipring          the watchdog (watchdog.h), every tick of 50 ms
 *   slipring-memory   the house-keeping thread, every tick and when a message comes (oob.h): exports
 *                     memory and maps that of peers (exports.h), takes the steps of connecting and parting
 *                     (connect.h), logs where buffers lay (places.h), writes what was measured
 *                     (timeline.h)
 *   slipring-return   the returning thread, every tick and when there is something to be returned:
 *                     closes mappings (exports.h), takes aborted communicators apart, frees what peers
 *                     have let go (deferred_free.h) and idle memory (cache/blocks.h)
 *
 * What may wait for the device (closing mappings, freeing memory: drivers wait for the context's work
 * there, and that may wait for a peer) is the third thread's. So it never keeps the watchdog from
 * seeing that the peer is gone, nor the second one from mapping what that peer waits for. None puts
 * work on a stream of the application.
 */
#ifndef SLR_PLUGIN_LIFECYCLE_THREADS_H
#define SLR_PLUGIN_LIFECYCLE_THREADS_H

/* When a communicator needs them; any number of times. */
void slr_threads_start(void);

/* At the end of the process: they make no CUDA call any more, so that none comes after CUDA's own
 * end. */
void slr_threads_stop(void);

#endif
