/* SPDX-License-Identifier: Apache-2.0 */
/* A command that a tool runs and watches. Signals that ask the tool to end reach the command too,
 * and all processes that come from it; what has not ended JOB_GRACE_MS later is killed. The tool
 * then comes back from job_run like after any end, and can clean up. */
#ifndef SLR_TOOLS_JOB_H
#define SLR_TOOLS_JOB_H

#include <stdbool.h>
#include <stddef.h>

#define JOB_TICK_MS 100
#define JOB_GRACE_MS 10000

/* Runs argv (searched in PATH) with the caller's environment and waits for it; calls tick(ctx)
 * about every JOB_TICK_MS. `out` and `err` become its stdout and stderr; -1: the caller's. What it
 * leaves running when it ends by itself is left. Returns an exit status as a shell's: 128 + signal
 * (when it had to be killed, the signal that asked), 127 when it can not be started, with a message.
 * The caller has no other children. */
int job_run(char *const argv[], int out, int err, void (*tick)(void *), void *ctx);

/* The signal (SIGINT, SIGTERM, SIGHUP) that has asked this tool to end during a job; 0: none. */
int job_interrupted(void);

/* A fresh folder in TMPDIR, else /tmp. 0, or -errno when `who` has said on stderr that it can not be made. */
int job_folder(const char *who, char *path, size_t size);
/* Removes it with the files in it; other folders in it stay, and then so does it. */
void job_folder_remove(const char *path);
/* Whether a file can be written there, which is tried before the work of which it is to hold the result: nothing of it
 * changes. False: `who` has said on stderr why not. */
bool job_can_write(const char *who, const char *path);

#endif
