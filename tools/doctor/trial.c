/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/trial.h"

#include <string.h>
#include <sys/socket.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"

static void job(void *data, int index)
{
    struct trial *t = data;
    struct trial_self s = {.t = t, .r = &t->rank[index], .number = index};
    trial_own(&s);
    trial_peers(&s);
}

/* One rank for each device that may be used. */
static struct trial *make(const struct doctor_devices *v)
{
    struct trial *t = child_shared(sizeof *t);
    t->devices = v;
    for (int i = 0; i < doctor_known_devices(v); i++)
        if (v->device[i].compute_mode != CU_COMPUTEMODE_PROHIBITED)
            t->rank[t->ranks++].device = i;
    return t;
}

/* Ranks are processes. With one device there are two, unless it takes only one. */
static int place(struct trial *t)
{
    const struct doctor_devices *v = t->devices;
    if (t->ranks == 1 && v->device[t->rank[0].device].compute_mode == CU_COMPUTEMODE_DEFAULT) {
        t->rank[1].device = t->rank[0].device;
        t->ranks = 2;
    }
    for (int i = 0; i < t->ranks; i++)
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, t->inbox[i]) != 0)
            t->inbox[i][0] = t->inbox[i][1] = -1;
    return t->ranks;
}

static const enum doctor_id ids[TRIAL_PARTS] = {
    DOCTOR_DEVICES, DOCTOR_CONTROL_MEMORY, DOCTOR_STREAM_MEMOPS, DOCTOR_GRAPHS,
    DOCTOR_IPC,     DOCTOR_IPC_VMM,        DOCTOR_ONE_PROCESS};
static const char *const titles[TRIAL_PARTS] = {"a context on each device",
                                                "the flags' memory was registered on each device",
                                                "a stream wrote a word and waited for one on each device",
                                                "a graph was captured, changed and launched on each device",
                                                "every process read every other's memory that its device reaches",
                                                "every process read every other's memory that its device reaches",
                                                ("every device's thread waited for the others' words and read their "
                                                 "virtual memory; cudaMalloc memory is staged there")};

/* The rank that did not come to its own end, or -1. One that waits for another is not the cause. */
static int culprit(const struct trial *t, const struct child_end *end)
{
    int other = -1;
    for (int i = 0; i < t->ranks; i++) {
        if (end[i].how == CHILD_SIGNALLED || end[i].how == CHILD_NOT_STARTED)
            return i;
        if (end[i].how == CHILD_TIMED_OUT && strncmp(t->rank[i].step, "waiting", 7) != 0)
            other = i;
    }
    return other;
}

/* Without these the rest goes on. */
static enum doctor_result severity(enum trial_part part)
{
    return part == TRIAL_VMM || part == TRIAL_GRAPHS || part == TRIAL_THREADS ? DOCTOR_WARN : DOCTOR_FAIL;
}

/* The part that a rank was at: the first that has no result. */
static enum trial_part part_of(const struct trial_rank *r)
{
    enum trial_part p = TRIAL_CONTEXT;
    while (p < TRIAL_VMM && r->state[p] != TRIAL_NOT_TRIED)
        p++;
    return p;
}

static void told_hang(struct doctor *d, const struct trial *t, int who, const struct child_end *end)
{
    const struct trial_rank *r = &t->rank[who];
    enum trial_part part = part_of(r);
    enum doctor_result result = severity(part);
    if (end[who].how == CHILD_TIMED_OUT)
        doctor_add(d, ids[part], result, "device %d did not answer within %u s, in %s", r->device, d->limit_ms / 1000,
                   *r->step ? r->step : "a wait");
    else
        doctor_add(d, ids[part], result, "the process on device %d ended (%s) in %s", r->device,
                   end[who].how == CHILD_SIGNALLED ? strsignal(end[who].value) : "not started",
                   *r->step ? r->step : "between calls");
}

static const struct trial_rank *with_state(const struct trial *t, enum trial_part part, enum trial_state state)
{
    for (int i = 0; i < t->ranks; i++)
        if (t->rank[i].state[part] == state)
            return &t->rank[i];
    return NULL;
}

void trial_told(struct doctor *d, const struct trial *t, enum trial_part part)
{
    const struct trial_rank *bad = with_state(t, part, TRIAL_BAD), *open = with_state(t, part, TRIAL_NOT_TRIED);
    if (bad)
        doctor_add(d, ids[part], severity(part), "device %d: %s", bad->device, bad->why[part]);
    else if (part == TRIAL_CONTEXT)
        return; /* nothing to say when it is good */
    else if (open && part == TRIAL_VMM && !t->devices->device[open->device].vmm)
        doctor_add(d, ids[part], DOCTOR_WARN, "device %d has no memory that can be exported as a descriptor",
                   open->device);
    else if (open && t->ranks == 1 && part >= TRIAL_IPC)
        doctor_add(d, ids[part], DOCTOR_UNKNOWN, "one device that takes one process: there is nothing to share");
    else if (open)
        doctor_add(d, ids[part], DOCTOR_UNKNOWN, "not tried on device %d: see what failed before", open->device);
    else
        doctor_add(d, ids[part], DOCTOR_OK, "%s", titles[part]);
}

/* What the device says counts where it could not be tried: it is about 64-bit words, and 32-bit
 * ones may do. */
static void attribute_of_memops(struct doctor *d, const struct trial *t)
{
    const struct doctor_devices *v = t->devices;
    if (with_state(t, TRIAL_MEMOPS, TRIAL_GOOD) || with_state(t, TRIAL_MEMOPS, TRIAL_BAD))
        return;
    for (int i = 0; i < doctor_known_devices(v); i++)
        if (!v->device[i].memops) {
            doctor_add(d, DOCTOR_STREAM_MEMOPS, DOCTOR_FAIL, "device %d says that it has no stream memory operations",
                       i);
            return;
        }
}

/* False: one of them did not come to its end. */
static bool check_processes(struct doctor *d, struct trial *t)
{
    struct child_end end[DOCTOR_MAX_DEVICES];
    if (place(t) < 1)
        return true;
    child_run(job, t, t->ranks, d->limit_ms, end);
    int who = culprit(t, end);
    if (who >= 0)
        told_hang(d, t, who, end);
    attribute_of_memops(d, t);
    for (enum trial_part part = TRIAL_CONTEXT; part < TRIAL_THREADS; part++)
        if (part == TRIAL_CONTEXT || !doctor_has(d, ids[part]))
            trial_told(d, t, part);
    return who < 0;
}

/* What does not work for one form may work for the other; what hangs would do so again. */
void doctor_check_trial(struct doctor *d)
{
    if (d->devices->count < 1)
        return;
    if (check_processes(d, make(d->devices)))
        doctor_check_threads(d, make(d->devices));
}
