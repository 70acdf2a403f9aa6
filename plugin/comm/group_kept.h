/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread has called since ncclGroupStart: kept until the outermost ncclGroupEnd
 * (calls/group.c), which enqueues it. Thread-local, like NCCL's own group state; only the thread
 * itself touches it. */
#ifndef SLR_PLUGIN_COMM_GROUP_KEPT_H
#define SLR_PLUGIN_COMM_GROUP_KEPT_H

#include "plugin/comm/call.h"

struct slr_init;
struct slr_window;

/* What passed/turn.h keeps of a call between its beginning and its end. */
struct slr_turn_call {
    bool entered; /* false: there is none, or its group's end has it */
    int word;     /* which says that it is over */
#define SLR_NO_WORD (-1)
    unsigned entry; /* of passed/in_call.h */
};

/* A stream that an operation of the group uses, for one communicator. */
struct slr_group_use {
    struct slr_comm *comm; /* with a use; NULL: one that is not tracked */
    CUstream stream;
    bool nccl;               /* NCCL has an operation on it */
    bool left, turn;         /* and a gather that may hang, in its turn: passed/turn.h */
    struct slr_turn_call in; /* at the end */
};

struct slr_group {
    uint64_t number; /* of the process's groups, from 1 */
    int depth;
    bool begun; /* something has been called */
    bool holds; /* that is `held`, the only one yet, which has not been made: calls/collective.h */
    struct slr_call held;
    ncclResult_t told;      /* what it came to when it was made; for the end */
    struct slr_call *calls; /* the gathers that go to the ring */
    size_t count, room;
    struct slr_call *captured; /* those that are captured for the ring (record/record.h) */
    size_t captured_count, captured_room;
    struct slr_group_use *uses; /* of all operations, each pair once */
    size_t use_count, use_room;
    struct slr_init *inits;     /* communicators that NCCL makes at the end (lifecycle/init.h) */
    struct slr_window *windows; /* windows that it registers there (memory/registration.h) */
};

/* The group that this thread has open, or NULL. */
struct slr_group *slr_group_now(void);

static inline bool slr_in_group(void)
{
    return slr_group_now() != NULL;
}

/* After a real ncclGroupStart. */
void slr_group_open(void);

/* Before a real ncclGroupEnd. The group, when this is the outermost end: the caller's, to be freed
 * with slr_group_free, and what is called from here on is outside of it. Else NULL. */
struct slr_group *slr_group_close(void);
void slr_group_free(struct slr_group *g);

/* Keeps a call for the end of the group. False: no memory; the caller reports it. */
bool slr_group_keep(const struct slr_call *call);

/* The same of a call that is captured. And how many of the communicator there are. */
bool slr_group_keep_captured(const struct slr_call *call);
unsigned slr_group_kept_captured(const struct slr_comm *c);

/* An operation uses the stream. */
bool slr_group_add_use(struct slr_comm *c, CUstream stream, bool nccl);

/* And it is a gather that NCCL has, `turn`: in its turn. Behind slr_group_add_use(). */
void slr_group_add_turn(const struct slr_comm *c, CUstream stream, bool turn);

/* How many calls of the communicator this thread's group has kept, captured ones apart; 0 outside of groups. */
uint64_t slr_group_kept(const struct slr_comm *c);

#endif
