/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to make and to end communicators: comms.c runs the cases of comms_make.c, comms_split.c and
 * comms_end.c. */
#ifndef TESTS_FORMS_COMMS_H
#define TESTS_FORMS_COMMS_H

#include "forms.h"

struct comm_case {
    const char *name;
    int procs; /* processes; each has the id of rank_body */
    rank_body body;
};
extern const struct comm_case comm_make_cases[], comm_split_cases[], comm_end_cases[];

#define SMALL ((size_t)40000) /* bytes of a shard: three slots of 16 KiB */

/* A communicator over all processes, and another over the same ranks, whose id travels over the first. */
ncclComm_t comm_first(const struct rank *r);
void tell(ncclComm_t comm, void *data, size_t bytes, int root); /* all ranks have the root's data */
void more_ids(const struct rank *r, ncclComm_t comm, ncclUniqueId *ids, int n);

/* Of communicators that are not blocking. */
void settle(ncclComm_t comm, ncclResult_t e); /* until it is not in progress; `e`: what has been answered */
ncclComm_t open_nonblocking(const struct rank *r, bool in_group);
void check_nonblocking(ncclComm_t comm, const char *what);
void end_nonblocking(ncclComm_t comm);

/* One gather on a stream of its own, checked. */
void check_one(ncclComm_t comm, const char *what);

#endif
