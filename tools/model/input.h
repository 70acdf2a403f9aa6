/* SPDX-License-Identifier: Apache-2.0 */
/* What `slipring report` and `slipring trace` have in common: reading, choosing the run, exit
 * status. */
#ifndef SLR_TOOLS_INPUT_H
#define SLR_TOOLS_INPUT_H

#include "tools/model/model.h"

/* Exit status: all was used; some lines or files could not be; wrong usage; nothing could be used
 * or written. */
enum { TOOL_GOOD = 0, TOOL_SOME = 1, TOOL_USAGE = 2, TOOL_NOTHING = 3 };

struct input {
    struct log_reader reader;
    struct model model;
    uint32_t run; /* the one that was chosen */
};

/* `wanted`: number of the run, from 1; 0: the latest. TOOL_GOOD, or the status to end with. The
 * caller frees the model.
 */
int input_read(struct input *in, char *const *paths, size_t n, unsigned wanted);
/* TOOL_GOOD or TOOL_SOME. */
int input_status(const struct input *in);

#endif
