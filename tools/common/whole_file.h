/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are there as a whole or not at all: written beside their place, and put there at the end. */
#ifndef SLR_TOOLS_WHOLE_FILE_H
#define SLR_TOOLS_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct whole_file {
    FILE *to;   /* stdout for "-" */
    char *path; /* where it goes; NULL: stdout */
    char *beside;
};

/* False, with a message on stderr: it can not be written there. */
bool whole_file_open(struct whole_file *f, const char *path);

/* In its place, unless `keep` is false: then nothing of it is left. False, with a message: it could not be written, and
 * what was there before still is. */
bool whole_file_close(struct whole_file *f, bool keep);

#endif
