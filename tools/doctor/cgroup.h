/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kernel keeps what it allows a group of processes: control groups, version 1 and 2.
 *
 * All paths start with `root`, which is "" but in tests. Nothing that is read is trusted to be there: containers show
 * as much of it as they like. */
#ifndef SLR_TOOLS_DOCTOR_CGROUP_H
#define SLR_TOOLS_DOCTOR_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "tools/doctor/doctor.h"

struct cgroup_place {
    bool v2;
    size_t top;         /* so much of `dir` is the mount's; what is above it can not be seen from here */
    char dir[PATH_MAX]; /* of the group, with `root` in front */
};

/* The group of process `pid` ("self" or a number) that `controller` ("memory", "freezer") counts for. False: not to be
 * seen from here. */
bool cgroup_find(const char *root, const char *pid, const char *controller, struct cgroup_place *p);

/* The number in a file of the group; UINT64_MAX for "max". False: no such file, or no number; *value stays. */
bool cgroup_number(const struct cgroup_place *p, const char *file, uint64_t *value);

/* The same behind `key` in a file of lines "key number". */
bool cgroup_field(const struct cgroup_place *p, const char *file, const char *key, uint64_t *value);

/* From a group to the one that it is in. False: that is not to be seen from here. */
bool cgroup_up(struct cgroup_place *p);

/* The checks memory_limit and frozen. */
void doctor_check_cgroups(struct doctor *d, const char *root);

#endif
