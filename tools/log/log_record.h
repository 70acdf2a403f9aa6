/* SPDX-License-Identifier: Apache-2.0 */
/* One line of JSON into a record, and messages; for log_read.c. */
#ifndef SLR_TOOLS_LOG_RECORD_H
#define SLR_TOOLS_LOG_RECORD_H

#include <jansson.h>
#include "tools/log/log_read.h"

/* Texts of ANY fields that were numbers. */
struct log_record_texts {
    char number[F_FIELDS][24];
};

/* False: not usable; told with log_problem(). A field that may be absent and has the wrong type is
 * told, and absent. */
bool log_record_parse(struct log_reader *r, const json_t *object, struct log_record *record,
                      struct log_record_texts *texts);

/* `text` with everything but printable ASCII replaced, cut to the room of `buf`. Returns `buf`. */
const char *log_printable(char *buf, size_t size, const char *text, size_t len);

/* log_problem.c: one message about a whole file; and behind its last line, how many more messages
 * there were. */
void log_file_problem(struct log_reader *r, const char *path, const char *what);
void log_file_end(struct log_problems *p);

#endif
