/* SPDX-License-Identifier: Apache-2.0 */
/* Reads slipring's JSON logs (SLIPRING_LOG_FORMAT=json) line by line and tells what is wrong with
 * them.
 *
 * A line becomes a record: the fields of log_fields.def, by id. Which fields a line must have is in
 * log_events.def. What can not be used is told as FILE:LINE: what, expected what; the rest of the
 * file is read on. Nothing of a line is kept.
 */
#ifndef SLR_TOOLS_LOG_READ_H
#define SLR_TOOLS_LOG_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum log_field {
#define X(id, ...) F_##id,
#include "tools/log/log_fields.def"
#undef X
    F_FIELDS
};

enum log_event {
#define X(id, ...) E_##id,
#include "tools/log/log_events.def"
#undef X
    E_OTHER, /* not in log_events.def */
};

/* One line. Texts belong to the reader and are valid during the callback only. */
struct log_record {
    enum log_event event;
    bool has[F_FIELDS];
    int64_t num[F_FIELDS];      /* all kinds but TEXT and ANY; 0 when absent; REAL: the value times 10^9 */
    const char *text[F_FIELDS]; /* TEXT and ANY; NULL when absent */
    const char *json;           /* the line as it was read */
    size_t line;
};

/* A message for each of the first few lines of a file that can not be used, and their number. */
struct log_problems {
    FILE *to; /* NULL: nowhere */
    const char *file;
    size_t in_file;          /* of the present file */
    size_t lines;            /* lines that could not be used, of all files */
    size_t files;            /* files that could not be read */
    size_t unknown;          /* lines whose event is none that is known: no problem, but told at the end */
    char unknown_first[200]; /* FILE:LINE and event of the first of those */
};

/* `fn` gets each good line. False: leave the rest of the file out (it has been told why). */
typedef bool (*log_record_fn)(void *ctx, const struct log_record *record);

struct log_reader {
    struct log_problems problems;
    log_record_fn fn;
    void *ctx;
    size_t used;     /* lines given to `fn` */
    bool first_line; /* the record is the first good one of its file */
    bool empty;      /* there was a folder without logs, which has been told */
};

/* Reads a stream to its end. `name` is what messages call it. */
void log_read_stream(struct log_reader *r, FILE *in, const char *name);

/* Reads files, and in folders every *.jsonl and *.log, or, if there is none, every *.json. What can
 * not be opened is told and counted. Large files first: of several copies of one log the longest is
 * used. */
void log_read_paths(struct log_reader *r, char *const *paths, size_t n);

/* After the last file: what else there is to say. */
void log_read_end(struct log_reader *r);

/* One message about the line that is being read; it counts as not usable. */
void log_problem(struct log_reader *r, size_t line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The fields and lines that are read, as Markdown tables. */
void log_print_interface(FILE *out);

#endif
