/* One line of JSON into a record; for log_read.c. */
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

#endif
