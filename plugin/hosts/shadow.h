/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between all ranks of a communicator that spans hosts, for what they agree on: a communicator of slipring's own, not
 * blocking, so that a rank that does not come holds up nobody for good. It lives as long as the whole, for duels (duel.c)
 * and for the communicators that are split off.
 *
 * NCCL wants a communicator's operations in the same order on all ranks. So each use has a turn, which is taken in the
 * program's call that causes it: these are in the same order on all ranks. Who uses it waits for its turn, on a thread of
 * slipring's or in a call that waits for all ranks anyway. */
#ifndef SLR_PLUGIN_HOSTS_SHADOW_H
#define SLR_PLUGIN_HOSTS_SHADOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"

#define SLR_SHADOW_BYTES 64 /* most that a rank tells the others at once */
#define SLR_NO_DEADLINE UINT64_MAX

struct slr_shadow {
    ncclComm_t comm; /* NULL: none */
    int ranks;
    CUstream stream;
    CUdeviceptr memory; /* all ranks' part, behind them this rank's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t taken, over; /* turns */
    uint64_t user;        /* 1 + the turn in which it is used now; 0: none */
    _Atomic bool ended;   /* nobody waits any more */
};

/* Before all else. */
void slr_shadow_prepare(struct slr_shadow *s);

/* Stream and memory, when the device's context is current. SLR_OK or what is wrong; slr_shadow_close() in any case. */
enum slr_status slr_shadow_open(struct slr_shadow *s, int ranks);

/* Until what has been asked of NCCL, with `r` as its answer, is over on `comm`, or what is wrong; ncclInProgress at the
 * deadline (slr_now_ms()), or when the shadow ends. Of a split the answer is success at once. */
ncclResult_t slr_shadow_await(const struct slr_shadow *s, ncclComm_t comm, ncclResult_t r, uint64_t deadline);

/* Until what is on the stream is over. False: it is not, or the communicator has failed. */
bool slr_shadow_await_stream(const struct slr_shadow *s, CUstream stream, ncclComm_t comm, uint64_t deadline);

/* Tells all ranks `own` and fills `all`, a part of so many bytes of each, in the context of the device. False: this rank
 * has not got them. */
bool slr_shadow_exchange(struct slr_shadow *s, const void *own, void *all, size_t bytes, uint64_t deadline);

/* ---- turns ---- */

uint64_t slr_shadow_take(struct slr_shadow *s);

/* Waits for it. False: the shadow has ended, or the process is about to. */
bool slr_shadow_begin(struct slr_shadow *s, uint64_t turn);

/* Whether who uses it is to wait any longer. */
bool slr_shadow_goes_on(const struct slr_shadow *s);

/* Also where it has not begun, as nothing came of it: behind those before it. */
void slr_shadow_over(struct slr_shadow *s, uint64_t turn);

/* ---- the end ---- */

/* Until all turns that have been taken are over, at most SLIPRING_AGREE_TIMEOUT: what the others have put on their devices
 * for such a turn ends only when this rank takes part. */
void slr_shadow_finish(struct slr_shadow *s);

/* Whoever waits goes on. True: a turn was not over, or has failed, and the shadow is good for nothing but an abort. */
bool slr_shadow_end(struct slr_shadow *s);

/* At the end of the process: of all, likewise, but not as long. Behind it no thread calls CUDA or NCCL for any of them. */
void slr_shadows_stop(void);

/* It has ended; waits until nobody uses it any more. `abort`: as ncclCommAbort. */
void slr_shadow_close(struct slr_shadow *s, bool abort);

#endif
