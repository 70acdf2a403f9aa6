/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a tool writes: all of it or nothing. It is written beside its place, under a name of its own, and renamed
 * when it is whole. Where nothing can be renamed, as for a device or a pipe, it is written in place. Links are
 * followed. */
#ifndef SLR_TOOLS_OUTPUT_H
#define SLR_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE *to;
    const char *path; /* the caller's, also while it is open */
    char *place, *temporary;
};

/* "-": stdout. False, with a message, when it can not be written. */
bool output_open(struct output *o, const char *path);
/* In its place, unless `keep` is false: then nothing of it is left. False, with a message: not everything could be
 * written, and what was there before still is. output_close() keeps it, and says how much has been written where, but to
 * stdout. */
bool output_end(struct output *o, bool keep);
bool output_close(struct output *o);

#endif
