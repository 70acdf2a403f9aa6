/* SPDX-License-Identifier: Apache-2.0 */
/* A device's time in the host's: when an event was, in nanoseconds of CLOCK_MONOTONIC, which all
 * processes of a host share. CUDA gives only the time between two events of a context.
 *
 * A *base* is an event for which the host's time is known within a bound: it is recorded on a
 * stream of its own that is idle, between two looks at the host's clock. The tightest of some
 * attempts is taken, and a new base is looked for when the present one is old: the two clocks drift
 * apart, and cuEventElapsedTime answers with 24 bits.
 *
 *   error of a time   half of the base's bracket
 *                     + 100 ppm of the time between event and base (the drift: oscillators are good
 *                       for 50 ppm)
 *                     + 2^-24 of that time (the float's precision)
 *                     + 500 ns (an event's resolution, as CUDA documents it)
 *
 * That a device's second is the host's is not taken for granted: the first base is only an
 * *anchor*, and how fast the device's clock runs is measured between it and each later one. When
 * that differs from the host's by more than a thousandth, as on a simulated device whose time is
 * dilated, times are converted by the measured rate, and its uncertainty adds to the drift.
 *
 * Where the stream does not run within a millisecond, because all streams share a hardware queue
 * that waits for a peer, the attempt is given up, and the older base stays, with the error that it
 * has. While there is none at all, the next attempts are given more time, up to 32 ms.
 *
 * Of one context, which is current in all calls. Not thread-safe. slr_device_clock_look may wait
 * for the device, as long as two attempts: not for the data path.
 */
#ifndef SLR_KERNELS_DEVICE_CLOCK_H
#define SLR_KERNELS_DEVICE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"

struct slr_device_clock {
    CUstream stream;
    CUevent anchor, base, best, attempt;
    bool anchored, known; /* `anchor` and `base` mean something */
    uint64_t anchor_ns, anchor_half_ns;
    uint64_t base_ns, half_ns; /* the base was at base_ns, give or take half_ns */
    uint64_t patience_ns;      /* for one attempt */
    double rate;               /* the host's nanoseconds in one of the device's */
    double drift;              /* and how wrong that can be */
};

/* On failure nothing is left. */
enum slr_status slr_device_clock_open(struct slr_device_clock *clock);
void slr_device_clock_close(struct slr_device_clock *clock);

/* Looks for a better base, if the present one is old. False: there is none yet. */
bool slr_device_clock_look(struct slr_device_clock *clock);

/* For the last times that will be asked for: while there is no base, tries for up to a second. */
bool slr_device_clock_insist(struct slr_device_clock *clock);

/* When a complete event was, and how wrong that can be. Whatever is not CUDA_SUCCESS: not known. */
CUresult slr_device_clock_time(const struct slr_device_clock *clock, CUevent event, uint64_t *ns, uint64_t *error);

#endif
