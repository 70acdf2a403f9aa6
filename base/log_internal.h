/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that implement log.h. A line is built by log_line.c from values that
 * log_value.c renders, and written by log_sink.c. Nothing here allocates or takes a lock while
 * formatting. */
#ifndef SLR_BASE_LOG_INTERNAL_H
#define SLR_BASE_LOG_INTERNAL_H

#include <stdarg.h>
#include "base/log.h"

/* A va_list in a struct can be passed by pointer on every ABI. */
struct slr_args {
    va_list list;
};

struct slr_value {
    char text[SLR_LOG_LINE];
    size_t len;
    bool number; /* one %d, %u or %f and nothing else: a JSON number */
    bool cut;    /* it did not fit */
};

/* Renders the value that starts at *fmt, up to the next space (`prose`: up to the end), and moves
 * *fmt behind it. */
void slr_value_render(struct slr_value *v, const char **fmt, bool prose, struct slr_args *args);

/* One whole line with its newline into `buf` of SLR_LOG_LINE bytes; returns its length. */
size_t slr_line_format(char *buf, enum slr_log_level level, const char *event, const char *fmt, struct slr_args *args);

const char *slr_log_host(char *buf, size_t size);

/* One write(2) that no closed pipe ends the program for. */
void slr_write_quietly(int fd, const char *line, size_t len);

void slr_sink_write(const char *line, size_t len);
void slr_sink_after_fork(void);

#endif
