/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do with each other, tried: one process for each device (two when there is one device),
 * in step; then one process that has a thread for each device. Each says in shared memory how far it
 * came; the parts that need only the own device are in trial_own.c and trial_graphs.c, the others in
 * trial_peers.c, and the threads in trial_threads.c. */
#ifndef SLR_TOOLS_DOCTOR_TRIAL_H
#define SLR_TOOLS_DOCTOR_TRIAL_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "tools/common/child.h"
#include "tools/doctor/devices.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/driver.h"

#define TRIAL_BYTES 65536 /* that are compared */

/* The parts, in the order in which they are tried. */
enum trial_part {
    TRIAL_CONTEXT,
    TRIAL_CONTROL,
    TRIAL_MEMOPS,
    TRIAL_GRAPHS,
    TRIAL_IPC,
    TRIAL_VMM,
    TRIAL_THREADS, /* of one process: the rest is of processes */
    TRIAL_PARTS
};
enum trial_state { TRIAL_NOT_TRIED, TRIAL_GOOD, TRIAL_BAD };

_Static_assert(DOCTOR_MAX_DEVICES <= CHILDREN, "one process for each device");

struct trial_rank {
    int device;
    char step[48]; /* what it is doing */
    enum trial_state state[TRIAL_PARTS];
    char why[TRIAL_PARTS][128]; /* of BAD, and of NOT_TRIED when there is something to say */
    bool offers;                /* it has a block for the others */
    CUipcMemHandle handle;
};

struct trial {
    const struct doctor_devices *devices;
    int ranks;
    _Atomic int arrived[8]; /* of each meeting */
    struct trial_rank rank[DOCTOR_MAX_DEVICES];
    int inbox[DOCTOR_MAX_DEVICES][2]; /* datagram sockets: [0] the rank's, [1] the others' */
};

/* A rank, in its own process or thread. */
struct trial_self {
    struct trial *t;
    struct trial_rank *r;
    int number, meetings;
    struct doctor_driver drv;
    CUcontext ctx;
    CUdeviceptr block, copy; /* what the others read; what this rank copies into */
};

void trial_own(struct trial_self *s);
void trial_peers(struct trial_self *s);
/* TRIAL_THREADS: adds its finding. `t`: has ranks, and nothing in it yet. */
void doctor_check_threads(struct doctor *d, struct trial *t);
/* The finding of a part that came to its end. */
void trial_told(struct doctor *d, const struct trial *t, enum trial_part part);

/* The driver, loaded if it is not yet, and the device's primary context. */
bool trial_enter(struct trial_self *s, enum trial_part part);
/* A page of a memfd; -1: there is none. */
int trial_memory(void);
/* It is mapped and registered, as plugin/lifecycle/agreement.c does it with the control block. */
bool trial_control(struct trial_self *s, enum trial_part part, int fd, void **words, CUdeviceptr *device_words);
/* All ranks come here, whatever happened to them; one that hangs or died is found by the parent's
 * time limit. */
void trial_meet(struct trial_self *s);
/* Whether one rank's device is to reach the memory of another's. */
bool trial_reaches(const struct trial *t, int reader, int owner);

/* TRIAL_GRAPHS, with a page of registered memory. True: it did. */
bool trial_graphs(struct trial_self *s, void *words, CUdeviceptr device_words);

/* Notes that `part` failed in `what`; the first reason of a part stays. Returns false. */
bool trial_bad(struct trial_self *s, enum trial_part part, const char *what, const char *why);
/* TRIAL_TRY(s, part, table, fn, ...): calls it; false, and noted, when it is missing or fails. */
bool trial_went(struct trial_self *s, enum trial_part part, const char *function, CUresult r);
void trial_step(struct trial_self *s, const char *function);
#define TRIAL_TRY(s, part, table, fn, ...)                                                                             \
    ((table).fn ? (trial_step((s), #fn), trial_went((s), (part), #fn, (table).fn(__VA_ARGS__)))                        \
                : trial_bad((s), (part), #fn, "not in this driver"))

/* The bytes that `rank` puts into its block. */
void trial_pattern(int rank, unsigned char bytes[TRIAL_BYTES]);

/* Puts them there, on the default stream. They are there when it returns: a blocking copy from pageable memory alone may
 * return before, and another rank would read what was there. */
bool trial_write(struct trial_self *s, enum trial_part part, CUdeviceptr to);

#endif
