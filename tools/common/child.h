/* SPDX-License-Identifier: Apache-2.0 */
/* Children with a time limit: for what may hang or crash. */
#ifndef SLR_TOOLS_CHILD_H
#define SLR_TOOLS_CHILD_H

#include <stddef.h>

#define CHILDREN 64       /* most at a time */
#define CHILD_NO_MEMORY 3 /* exit status */

enum child_how { CHILD_ENDED, CHILD_SIGNALLED, CHILD_TIMED_OUT, CHILD_NOT_STARTED };

struct child_end {
    enum child_how how;
    int value; /* exit status, or number of the signal */
};

/* Zeroed memory that children share; exits with CHILD_NO_MEMORY when there is none. Never freed. */
void *child_shared(size_t bytes);

/* Runs job(data, 0..n-1) in n <= CHILDREN children at the same time and waits for all; what is
 * still running after `limit_ms` is killed. A child's stdout goes nowhere. `end[i]` says how each
 * ended. */
void child_run(void (*job)(void *data, int index), void *data, int n, unsigned limit_ms, struct child_end *end);

/* Runs a program and takes what it prints to stdout, and to stderr too with `both`; `out` is always
 * terminated, and cut at `size`. The environment is the caller's. */
struct child_end child_capture(char *const argv[], int both, char *out, size_t size, unsigned limit_ms);

#endif
