/* Pending gathers: all-gathers whose data is still on its way and whose application stream has not been made to wait
 * for it yet.
 *
 * A gather becomes pending when the ring has enqueued it, and stops being pending when it is joined: the application's
 * stream is made to wait (one cuStreamWaitEvent) for everything that the gather does. Between the two, a GEMM that
 * reads the gathered buffer may take it over (fuse.h). Anything else that could notice (design rule R5) joins first;
 * interpose/ calls the functions below from its gates.
 *
 * Thread-safe. All of them are cheap and do nothing when nothing is pending; none waits for a peer.
 */
#ifndef SLR_PLUGIN_PENDING_H
#define SLR_PLUGIN_PENDING_H

#include <cuda.h>
#include <stdbool.h>
#include "base/reason.h"

/* An operation is about to be put on, ordered against or asked of `stream`. Streams follow the driver's meaning: 0 and
 * CU_STREAM_LEGACY are the legacy default stream of the current context (`per_thread`: 0 means the calling thread's
 * default stream, as the _ptsz and _ptds entry points do), CU_STREAM_PER_THREAD the latter. Joins every pending gather
 * that the operation could observe: those of the same stream, and, when either is a default stream, all. */
void slr_pending_join_stream(CUstream stream, bool per_thread, enum slr_reason why, const char *who);

/* The host or the whole device is about to observe (context or device synchronisation, a blocking copy, a free, a
 * context's end). */
void slr_pending_join_all(enum slr_reason why, const char *who);

#endif
