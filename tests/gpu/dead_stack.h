/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank hangs: the stack of each of its threads, on its own stderr, as on a machine with a GPU there may be no
 * debugger, or none that may look. */
#ifndef TESTS_GPU_DEAD_STACK_H
#define TESTS_GPU_DEAD_STACK_H

#include <sys/types.h>

/* In the rank, before it does anything: takes SIGUSR2. */
void dead_stack_ready(void);

/* From outside: every thread of the process in turn, with what the kernel says of it. */
void dead_stack_show(pid_t pid);

#endif
