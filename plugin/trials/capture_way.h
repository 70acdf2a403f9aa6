/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: which way captured calls of a size go. A capture is no communication: ranks may capture
 * the calls of one launch at different times, before and after a choice. So the first rank that captures a call of the
 * size decides, by what is chosen there and then, and all captures of all ranks go by that, for good.
 *
 * Shared by the ranks: words that begin as 0. Each stands for one size: shard << 2 | scatter << 1 | ring. The word of a
 * size is in the first place that was free when it was written, by compare-and-swap from 0; no word changes again. So
 * whoever looks from the first place on finds it, or is the first; and when there is no place, none has one and the
 * size is NCCL's on all ranks. Nobody waits. */
#ifndef SLR_PLUGIN_TRIALS_CAPTURE_WAY_H
#define SLR_PLUGIN_TRIALS_CAPTURE_WAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/counters.h"

/* Whether it is the ring's. `wish`: what this rank would say, were it the first. `shard`: bytes, below 2^62; not 0. */
bool slr_capture_way(_Atomic uint64_t *word, unsigned words, size_t shard, const struct slr_collective *kind,
                     bool wish);

#endif
