/* SPDX-License-Identifier: Apache-2.0 */
/* A run as trace events (Trace Event Format), for Perfetto and chrome://tracing: a process for each
 * rank, a thread for each lane, a complete event for each span, and arrows from who sends to who
 * receives. Times are us from the run's first event on. */
#ifndef SLR_TOOLS_TRACE_EVENTS_H
#define SLR_TOOLS_TRACE_EVENTS_H

#include "tools/model/model.h"

void trace_write(const struct model *m, const struct run *r, FILE *to);

#endif
