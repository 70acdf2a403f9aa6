/* SPDX-License-Identifier: Apache-2.0 */
/* The log: levels, one sink (stderr or SLIPRING_LOG_FILE), text or JSON lines.
 *
 * A line is one write(2) of at most SLR_LOG_LINE bytes; nothing is allocated and no lock is held
 * while formatting, so it may be written from any thread and inside an allocator's hooks. The sink
 * is opened at the first line, never before: a child that makes no communicator leaves no file
 * behind. Errors go to stderr as well, as text, and so does, once, that the file can not be written. An
 * event's name, and fields in a format of our own:
 *
 *     slr_log(SLR_LOG_INFO, "substitute", "comm=%s rank=%d bytes=%llu reason=%s", ...);
 *
 * that is, key=conversion pairs, separated by spaces; keys are [a-z_]+, conversions those of printf
 * for one argument (%d %u %ld %lu %zu %lld %llu %x %p %s %.3f). A last key "msg" takes prose. */
#ifndef SLR_BASE_LOG_H
#define SLR_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum slr_log_level { SLR_LOG_OFF, SLR_LOG_ERROR, SLR_LOG_WARN, SLR_LOG_INFO, SLR_LOG_DEBUG };
#define SLR_LOG_LINE 2048

/* Whether lines of this level are written. The first call also tells the problems of the settings,
 * one line "setting" each. */
bool slr_log_enabled(enum slr_log_level level);
void slr_log(enum slr_log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A line that another setting than SLIPRING_LOG asks for: written unless that is off, as of level
 * info. */
void slr_log_asked(const char *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One line for people, "slipring: TEXT", on `fd`, the program's stderr, wherever the log goes. From
 * level warn on. Where stderr is the log and JSON, an event with the field msg. */
void slr_log_tell(int fd, const char *event, const char *text);

/* At the end: one line for people, when lines could not be written to the file. */
void slr_log_tell_lost(void);

/* The rank of %r in SLIPRING_LOG_FILE and of the field "rank": that of the first communicator (-1:
 * none yet). */
void slr_log_set_rank(int rank);
int slr_log_rank(void);

/* The rank that the job's starter gave this process, in digits; NULL: none did. */
const char *slr_log_starter_rank(void);

/* True the first time that `key`, of slr_mix(), is seen in this process; false when the table is
 * full. For one line per call shape. */
bool slr_log_first(uint64_t key);

void slr_log_after_fork(void); /* in the child after fork: the sink is opened anew, keys that were seen stay */

/* ---- between log.c, which writes, and log_line.c, which formats ---- */

/* A va_list in a struct can be passed by pointer on every ABI. */
struct slr_args {
    va_list list;
};

/* One whole line with its newline into `buf` of SLR_LOG_LINE bytes; returns its length. */
size_t slr_line_format(char *buf, bool json, enum slr_log_level level, const char *event, const char *fmt,
                       struct slr_args *args);
const char *slr_log_host(char *buf, size_t size);

#endif
