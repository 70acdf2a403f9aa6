/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder record/ alone: one call on its way into a capture, and the capture's lane. */
#ifndef SLR_PLUGIN_RECORD_RECORD_IMPL_H
#define SLR_PLUGIN_RECORD_RECORD_IMPL_H

#include "plugin/comm/call.h"
#include "plugin/record/record.h"
#include "plugin/graphs/recorded.h"

enum { SLR_RECORD_ENTER = 1, SLR_RECORD_PUT = 2, SLR_RECORD_LEAVE = 4 };

struct slr_recording {
    struct slr_call call;
    CUgraph graph;
    unsigned long long capture;
    struct slr_lane *lane; /* the capture's */
    struct slr_recorded_gather g;
    struct slr_stand_ins stand_ins;
    bool prepared, first;
};

/* The call is to be connected. Ended by `close`, whatever the others have answered, which gives up the connection
 * unless the graph holds the call now. In between it stays where it is. `grouped`: struct slr_recorded_gather's. */
enum slr_status slr_recording_open(struct slr_recording *x, const struct slr_call *call, bool grouped);
enum slr_status slr_recording_steps(struct slr_recording *x, unsigned steps);
ncclResult_t slr_recording_close(struct slr_recording *x, enum slr_status s);

/* ---- capture_lane.c ---- */

/* The lane of the communicator's that serves the capture. NULL: none could be made. */
struct slr_lane *slr_capture_lane_of(struct slr_comm *c, unsigned long long capture, unsigned slots);

/* Under its lock: a call of the capture begins; true: it is the first one. And: the ring's streams are in the
 * capture. */
bool slr_capture_lane_enter(struct slr_lane *lane);
void slr_capture_lane_drawn(struct slr_lane *lane);

#endif
