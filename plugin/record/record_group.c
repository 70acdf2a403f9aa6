/* SPDX-License-Identifier: Apache-2.0 */
/* Captured calls of a group, at its end.
 *
 * They are recorded in rounds, the n-th call of each communicator in the n-th one. All calls of a round start behind
 * what was on their streams before, and none behind another, as ranks need not call different communicators in one
 * order. The first round starts before NCCL's operations of the group, and the ring waits for none of these.
 *
 * A communicator whose operations in the group are on several streams starts behind all of them, and all of them see
 * its results. */
#include <stdlib.h>
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/pending/pending.h"
#include "plugin/record/record_impl.h"

struct slr_recordings {
    size_t count;
    struct one {
        struct slr_recording x;
        unsigned round;
        enum slr_status status;
    } one[];
};

/* The group's other streams of the communicator. */
static bool is_other(const struct slr_group_use *use, const struct one *one)
{
    return use->comm == one->x.call.comm && use->stream != one->x.call.stream;
}

static bool on_several(const struct slr_group *group, const struct one *one)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (is_other(&group->uses[i], one))
            return true;
    return false;
}

static enum slr_status enter_others(const struct slr_group *group, const struct one *one)
{
    struct slr_lane *lane = one->x.lane;
    enum slr_status s = SLR_OK;
    for (size_t i = 0; i < group->use_count && s == SLR_OK; i++) {
        if (!is_other(&group->uses[i], one))
            continue;
        slr_pending_join_stream(group->uses[i].stream, SLR_R_JOIN_NEXT_GATHER, "ncclGroupEnd");
        slr_lane_lock(lane);
        s = slr_shared_work_begin(&lane->comm->shared);
        if (s == SLR_OK) {
            s = slr_ring_entry(&lane->ring, group->uses[i].stream, false);
            slr_shared_work_end();
        }
        slr_lane_unlock(lane);
    }
    return s;
}

static void enter_round(struct slr_recordings *all, const struct slr_group *group, unsigned round)
{
    for (size_t i = 0; i < all->count; i++) {
        struct one *one = &all->one[i];
        if (one->round == round && one->status == SLR_OK)
            one->status = enter_others(group, one);
        if (one->round == round && one->status == SLR_OK)
            one->status = slr_recording_steps(&one->x, SLR_RECORD_ENTER);
    }
}

/* False: there is none. */
static bool step_round(struct slr_recordings *all, unsigned round, unsigned step)
{
    bool any = false;
    for (size_t i = 0; i < all->count; i++) {
        struct one *one = &all->one[i];
        any |= one->round == round;
        if (one->round == round && one->status == SLR_OK)
            one->status = slr_recording_steps(&one->x, step);
    }
    return any;
}

struct slr_recordings *slr_record_group_enter(const struct slr_group *group)
{
    struct slr_recordings *all = NULL;
    if (!group->captured_count || !(all = malloc(sizeof *all + group->captured_count * sizeof all->one[0])))
        return NULL;
    all->count = group->captured_count;
    for (size_t i = 0; i < all->count; i++) {
        struct one *one = &all->one[i];
        one->round = 0;
        for (size_t j = 0; j < i; j++)
            one->round += group->captured[j].comm == group->captured[i].comm;
        one->status = slr_recording_open(&one->x, &group->captured[i], true);
    }
    enter_round(all, group, 0);
    return all;
}

/* Its streams wait for each other. */
static enum slr_status cross(const struct slr_group *group, const struct one *one)
{
    struct slr_lane *lane = one->x.lane;
    slr_lane_lock(lane);
    slr_pending_join(lane, SLR_R_JOIN_OTHER_OP, "ncclGroupEnd");
    enum slr_status s = slr_shared_work_begin(&lane->comm->shared);
    const bool begun = s == SLR_OK;
    for (size_t i = 0; i < group->use_count && s == SLR_OK; i++)
        for (size_t j = 0; j < group->use_count && s == SLR_OK; j++)
            if (i != j && group->uses[i].comm == one->x.call.comm && group->uses[j].comm == one->x.call.comm)
                s = slr_ring_wait_stream(&lane->ring, group->uses[i].stream, group->uses[j].stream);
    if (begun)
        slr_shared_work_end();
    slr_lane_unlock(lane);
    return s;
}

static ncclResult_t close_all(struct slr_recordings *all)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < all->count; i++) {
        const ncclResult_t one = slr_recording_close(&all->one[i].x, all->one[i].status);
        r = one != ncclSuccess ? one : r;
    }
    free(all);
    return r;
}

ncclResult_t slr_record_group_end(struct slr_recordings *all, const struct slr_group *group, bool enqueued)
{
    if (!all) {
        for (size_t i = 0; i < group->captured_count; i++)
            slr_connect_end(&group->captured[i].comm, 1);
        return group->captured_count && enqueued ? ncclSystemError : ncclSuccess;
    }
    for (size_t i = 0; i < all->count && !enqueued; i++)
        all->one[i].status = SLR_ABSENT;
    for (unsigned round = 0; step_round(all, round, SLR_RECORD_PUT); round++) {
        step_round(all, round, SLR_RECORD_LEAVE);
        enter_round(all, group, round + 1);
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->one[i].status == SLR_OK && all->one[i].round == 0 && on_several(group, &all->one[i]))
            all->one[i].status = cross(group, &all->one[i]);
    return close_all(all);
}
