/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores of the host a rank's process runs on: one for the thread that issues work, others for
 * all its other threads. bench/peerlib/cores.py chooses them, and keeps PyTorch's ranks to them in
 * the same way. */
#ifndef BENCH_PIN_H
#define BENCH_PIN_H

#include <sched.h>
#include <stdbool.h>

struct pin {
    cpu_set_t rest; /* of the other threads; with one core in all it is `issue` */
    int issue;
};

/* `text` has REST/ISSUE for each rank, parted by colons; REST is a list as 0-3,8. False: it is not of
 * that form, or not for `ranks` ranks. */
bool pin_parse(const char *text, struct pin *pins, int ranks);

/* Before the process has begun a thread: they inherit it. -errno when the system refuses. */
int pin_process(const struct pin *pin);

/* The calling thread has `issue` from now on, and no other thread has it; those that are begun later
 * inherit it until this is called again. -errno. */
int pin_issuer(const struct pin *pin);

#endif
