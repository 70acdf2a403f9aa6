/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: what a rank sees of a site's calls: how long they take, of each row (ways.h) and way, and in
 * what period their GEMMs come. Under the communicator's lock; where events are recorded, its context current. */
#ifndef SLR_PLUGIN_TRIALS_SAMPLES_H
#define SLR_PLUGIN_TRIALS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "plugin/trials/ways.h"
#include "plugin/util/consumer.h"

/* Makes the event where there is none yet. False: it could not be recorded. */
bool slr_trial_record(CUevent *event, CUstream stream);
void slr_trial_drop(CUevent *event); /* NULL: nothing */

/* ---- clocks: how long a gather takes, with the GEMM that consumes it ---- */

#define SLR_CLOCK_PATIENCE 256u /* calls of the communicator */
#define SLR_CLOCKS 512          /* measured calls: the host may be that far ahead */

struct slr_clock {
    enum { SLR_CLOCK_FREE, SLR_CLOCK_RUNS, SLR_CLOCK_STOPPED } state;
    CUevent begin, gathered, consumed; /* NULL: not made yet */
    bool ended;                        /* `gathered` has been recorded */
    bool eaten;                        /* and `consumed` */
    bool open;
    uint64_t call; /* the caller's: its number among the communicator's */
    uint64_t from; /* host, ns */
    float period;  /* to the next call, ms */
    bool idle;     /* its stream had nothing left to do when that came */
    /* The caller's: what is measured. */
    uint32_t site;
    int way;
    uint32_t round;
    uint32_t stage; /* its number */
    uint64_t gemm;
    bool known;
};

/* NULL: none is free, or an event could not be made. */
struct slr_clock *slr_clock_begin(struct slr_clock *clocks, CUstream stream);
void slr_clock_gathered(struct slr_clock *clock, CUstream stream);
void slr_clock_consumed(struct slr_clock *clock, CUstream stream);

/* No GEMM will come any more. False: it has no time, and is free again. */
bool slr_clock_stop(struct slr_clock *clock);

/* The next call of the site of a stopped one comes, on `stream`, on which nothing of it has been put yet. */
void slr_clock_next(struct slr_clock *clock, CUstream stream);

/* The stopped one of the earliest call, if it is over, with its time; 0: that is not known. Or one that is still open at
 * call number `now`, and is not waited for any longer: then it has none. NULL: there is none. */
struct slr_clock *slr_clock_read(struct slr_clock *clocks, uint64_t now, float *ms);

void slr_clocks_close(struct slr_clock *clocks);

/* ---- what has been measured of one row (ways.h) on this rank ----
 *
 * A way's time is the device's, unless in any way the device was nearly always done when the site's
 * next call came: then the program waits for the host in that way at least, and all are compared by
 * what an iteration takes, the time from call to call or the device's, whichever is longer. (The host
 * may run ahead of a device that is busy.)
 */

#define SLR_SAMPLES SLR_TRIAL_PERIOD /* of a way in a round, at most */

struct slr_samples {
    uint64_t gemm; /* slr_consumer_hash(&what) */
    uint32_t site;
    struct slr_consumer what;
    struct slr_trial_row
        before; /* what was measured when all ways have been in one stage, the latest; calls 0: never */
    uint8_t count[SLR_WAYS][SLR_TRIAL_ROUNDS];
    float ms[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES];     /* on the device */
    float period[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES]; /* from call to call on the host, or ms if that is longer */
    uint8_t idle[SLR_WAYS];                                /* how often the device was done at the next call */
};

/* A call's times. NULL: nothing. */
void slr_samples_add(struct slr_samples *row, const struct slr_clock *clock, float ms);

/* A stage begins. */
void slr_samples_forget(struct slr_samples *row);

/* Every way has been measured in more than half of the rounds, if not now, then in a stage before. */
bool slr_samples_tried(const struct slr_samples *row, uint32_t rounds);

/* Now, in the stage that tries all ways. */
bool slr_samples_whole(const struct slr_samples *row, uint32_t rounds);

/* Times are the host's. */
bool slr_samples_of_host(const struct slr_samples *row, uint32_t rounds);

/* For the other ranks. `base`: the way that others are compared with. */
struct slr_trial_row slr_samples_row(const struct slr_samples *row, uint32_t rounds, int base);

/* The same at the end of a stage. What all ways have taken counts until all are measured anew: a stage that has missed
 * some of them says what an earlier one has found. But a GEMM that has not come at all is the program's no more. */
struct slr_trial_row slr_samples_post(struct slr_samples *row, uint32_t rounds, int base, enum slr_stage stage);

/* ---- in how many calls a program does the same again ----
 *
 * From its latest calls without a gap: of a site, by the GEMMs that come with them, and of a communicator, by the calls.
 * (tools/symmetry/period.c finds those of buffers as well, for which it compares each call with the 128 before it.) */

#define SLR_TRIAL_WATCHED_CALLS (2 * SLR_TRIAL_PERIOD)

#define SLR_TRIAL_LATEST_CALLS 1024u

struct slr_trial_gemms {
    uint64_t gemm[SLR_TRIAL_WATCHED_CALLS]; /* 0: none */
    uint32_t calls;                         /* in all */
};

struct slr_trial_calls {
    uint64_t call[SLR_TRIAL_LATEST_CALLS]; /* operation, size, and whether it is the first one of its group */
    uint32_t calls;                        /* in all */
};

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm);

/* The smallest period of SLR_TRIAL_PERIOD at most that the latest calls have, three times over: at least SLR_TRIAL_PERIOD
 * calls, and never more than SLR_TRIAL_WATCHED_CALLS. 0: none, or too few calls. */
uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g);

/* None came with the latest SLR_TRIAL_PERIOD calls. */
bool slr_trial_gemms_none(const struct slr_trial_gemms *g);

void slr_trial_calls_add(struct slr_trial_calls *of, uint64_t call);

/* The smallest period that half of the calls that are kept have, and `least` at least, and that has come three times. So one
 * of layers, which is shorter, is not taken for the iteration's once there have been some. 0: none. */
uint32_t slr_trial_calls_period(const struct slr_trial_calls *of, uint32_t least);

#endif
