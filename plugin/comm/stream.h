/* SPDX-License-Identifier: Apache-2.0 */
/* The application's streams: one name for each, and what the driver tells of them. */
#ifndef SLR_PLUGIN_COMM_STREAM_H
#define SLR_PLUGIN_COMM_STREAM_H

#include <cuda.h>
#include <stdbool.h>

/* One name for each stream: NULL for the legacy default stream, CU_STREAM_PER_THREAD for the
 * thread's. `per_thread`: a NULL stream means the latter, as with the _ptsz and _ptds entry
 * points. */
CUstream slr_stream_name(CUstream stream, bool per_thread);
bool slr_stream_is_default(CUstream stream);

/* The context that a stream belongs to, NULL when it can not be told. Calls the driver: without the
 * table lock. */
CUcontext slr_stream_context(CUstream stream);

#endif
