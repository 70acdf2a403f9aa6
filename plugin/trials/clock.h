/* SPDX-License-Identifier: Apache-2.0 */
/* For trials.c alone: how long a gather takes, and with the GEMM that consumes it.
 *
 * On the device, by three events of a call: `begin` on its stream before anything of it; `gathered`
 * behind its end; `consumed` behind the GEMM, on the GEMM's stream. They are looked at later, so
 * nothing waits. A call that finds no clock free is not measured.
 *
 * On the host, from one call of a site to its next (slr_clock_next). That is an iteration's time where
 * the device had nothing left to do when the next call came, which its stream tells: then the host is what the
 * program waits for.
 *
 *   FREE    --slr_clock_begin-->  RUNS     its call may still be consumed by a GEMM; one at most
 *   RUNS    --slr_clock_stop-->   STOPPED  its last event is on its way
 *   STOPPED --slr_clock_read-->   FREE; not while it is open, because its site's next call has yet to
 *                                 come, but for SLR_CLOCK_PATIENCE calls only
 *
 * Under the communicator's lock, its context current. Whatever goes wrong costs the sample. */
#ifndef SLR_PLUGIN_TRIALS_CLOCK_H
#define SLR_PLUGIN_TRIALS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

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

#endif
