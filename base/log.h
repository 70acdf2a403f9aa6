/* SPDX-License-Identifier: Apache-2.0 */
/* The log: levels, one sink (stderr or SLIPRING_LOG_FILE), text or JSON lines.
 *
 * Writing a line is one write(2) of at most SLR_LOG_LINE bytes; nothing is allocated and no lock is
 * held while formatting, so a line may be written from any thread and inside an allocator's hooks.
 * Lines of one process do not interleave. The sink is opened at the first line that is really
 * written, never before: a child that makes no communicator leaves no file behind.
 *
 * A line is an event name and fields, given as a format of our own so that both forms come from one
 * call:
 *
 *     slr_log(SLR_LOG_INFO, "substitute", "comm=%s rank=%d bytes=%llu reason=%s", ...);
 *
 * The format is space-separated key=conversion pairs; keys are [a-z_]+, conversions are those of
 * printf for one argument (%d %u %ld %lu %zu %lld %llu %x %p %s %.3f). A value that contains spaces
 * is quoted in text form; in JSON numbers stay numbers and strings are escaped. A last key "msg"
 * takes prose: "peer=%d msg=%s".
 */
#ifndef SLR_BASE_LOG_H
#define SLR_BASE_LOG_H

#include <stdbool.h>
#include "base/mix.h"
#include "base/settings.h"

enum slr_log_level { SLR_LOG_OFF, SLR_LOG_ERROR, SLR_LOG_WARN, SLR_LOG_INFO, SLR_LOG_DEBUG };
#define SLR_LOG_LINE 2048

/* Whether lines of this level are written. The first call of this or of what writes a line also
 * tells the problems of the settings (settings.h), one line "setting" each. */
bool slr_log_enabled(enum slr_log_level level);
void slr_log(enum slr_log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A line that was asked for by another setting than SLIPRING_LOG: written unless that is off, as of
 * level info. */
void slr_log_asked(const char *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One line for people, "slipring: TEXT", on `fd`, which is the program's stderr, wherever the log goes:
 * what they are to see who have asked for no log. From level warn on. Where stderr is the log and that
 * is JSON, it is an event with the field msg, so that what reads the lines need not know of it. */
void slr_log_tell(int fd, const char *event, const char *text);

/* The rank that %r in SLIPRING_LOG_FILE and the field "rank" of each line stand for: that of the
 * first communicator (-1: none yet). Later calls change nothing. */
void slr_log_set_rank(int rank);
int slr_log_rank(void); /* -1: no communicator yet */

/* The rank that the job's starter gave this process, in digits; NULL: none did. */
const char *slr_log_starter_rank(void);

/* True the first time that `key`, which slr_mix() makes, is seen in this process (bounded table:
 * when it is full, false). For one line per call shape. */
bool slr_log_first(uint64_t key);

/* In the child after fork: forget the parent's open sink and seen keys are kept; lines carry the
 * child's pid. */
void slr_log_after_fork(void);

#endif
