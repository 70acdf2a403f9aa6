/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the JSON logs of a folder, all files of it, while processes write them: as far as whole
 * lines are there. A line that can not be read (a rank that was killed in the middle of it, another
 * program's output) is counted and left out. tools/log/log_read.h is for logs that are done: it
 * tells what is wrong with them. */
#ifndef SLR_TOOLS_LOG_TAIL_H
#define SLR_TOOLS_LOG_TAIL_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "tools/common/vec.h"

/* A file that is being read. */
struct log_tail {
    char *name;
    uint64_t at; /* bytes taken */
};

/* All zero but for the folder and what gets each line: an object. */
struct log_tails {
    char folder[PATH_MAX];
    void (*fn)(void *ctx, const json_t *line);
    void *ctx;
    VEC(struct log_tail) files;
    unsigned long long unreadable; /* lines */
};

/* Takes what is new. Called again and again; `last`: nothing more will come, so the last lines need
 * no newline. */
void log_tails_read(struct log_tails *t, bool last);
void log_tails_free(struct log_tails *t);

/* Fields of a line: "" and false when there is none of that type, or a number is not between the
 * bounds. */
const char *log_text(const json_t *line, const char *name);
bool log_number(const json_t *line, const char *name, json_int_t low, json_int_t high, json_int_t *out);

#endif
