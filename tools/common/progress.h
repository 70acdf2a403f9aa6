/* SPDX-License-Identifier: Apache-2.0 */
/* What a long command shows on stderr while it works. Nothing is ever written to stdout.
 *
 * On a terminal (stderr is one, and TERM is neither empty nor "dumb"): one line that is drawn again
 * at most ten times a second and is cut to the terminal's width. Elsewhere (a file, a pipe, CI):
 * plain lines when it begins, whenever a further tenth is done or ten seconds have passed since the
 * last line, and when it ends; no escape sequence and no carriage return. No colours are used
 * anywhere, so NO_COLOR has nothing to switch off.
 *
 * Nothing here runs by itself: call progress_at often (also with the same `done`) to keep the
 * elapsed time moving; a call that draws nothing costs a clock reading. One thread; several at a
 * time are possible in a log, not on a terminal. Every function takes NULL, which progress_begin
 * returns when there is no memory. */
#ifndef SLR_TOOLS_PROGRESS_H
#define SLR_TOOLS_PROGRESS_H

#include <stdint.h>

struct progress;

/* `what` names the work in each line (copied). `total`: steps, bytes or whatever `done` counts; 0:
 * not known. */
struct progress *progress_begin(const char *what, uint64_t total);

/* So much is done. `note` (or NULL: as before) says in a few words what is being done now; control
 * characters in it are shown as '?'. When `total` is known the remaining time is derived from the
 * pace so far. */
void progress_at(struct progress *p, uint64_t done, const char *note);

/* Plain lines from now on, as in a log: for when something else writes to the terminal at the same
 * time. */
void progress_plain(struct progress *p);

/* Takes the line off the terminal, so that something else can be printed; the next progress_at
 * draws it again. */
void progress_clear(struct progress *p);

/* The last line: `result` (NULL: "done") and the time that it took. Frees `p`. */
void progress_end(struct progress *p, const char *result);

/* Milliseconds of a clock that never goes back; tests put their own here. */
extern uint64_t (*progress_clock_ms)(void);

#endif
