/* SPDX-License-Identifier: Apache-2.0 */
/* The line at the end of a job (docs/log.md, The end of a job). */
#ifndef SLR_PLUGIN_LIFECYCLE_CLOSING_H
#define SLR_PLUGIN_LIFECYCLE_CLOSING_H

#include <stddef.h>

/* At the end of the process: says the line on stderr, if this is the process that does and there is
 * something to say. That is rank 0 of its first communicator, which the job's starter calls rank 0 as
 * well if it gave a rank. */
void slr_closing_say(void);

/* What the counters of this process say, in one line; "" when nothing was gathered and the process was
 * not started by `slipring run`. Returns `text`. */
const char *slr_closing_text(char *text, size_t size);

#endif
