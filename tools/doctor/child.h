/* Children with a time limit. */
#ifndef SLR_TOOLS_DOCTOR_CHILD_H
#define SLR_TOOLS_DOCTOR_CHILD_H

#include <stddef.h>

enum doctor_how { DOCTOR_ENDED, DOCTOR_SIGNALLED, DOCTOR_TIMED_OUT, DOCTOR_NOT_STARTED };

struct doctor_end {
    enum doctor_how how;
    int value; /* exit status, or number of the signal */
};

/* Zeroed memory that children share; exits with DOCTOR_EXIT_ERROR when there is none. Never freed. */
void *doctor_shared(size_t bytes);

/* Runs job(data, 0..n-1) in n children at the same time and waits for all; what is still running after `limit_ms` is
 * killed. A child's stdout goes nowhere. `end[i]` says how each ended. */
void doctor_run(void (*job)(void *data, int index), void *data, int n, unsigned limit_ms, struct doctor_end *end);

/* Runs a program and takes what it prints to stdout, and to stderr too with `both`; `out` is always terminated, and cut
 * at `size`. The environment is the caller's. */
struct doctor_end doctor_capture(char *const argv[], int both, char *out, size_t size, unsigned limit_ms);

#endif
