/* SPDX-License-Identifier: Apache-2.0 */
/* The tuners that NCCL makes while communicators are being made, until it is known whose they are
 * (tuner_match.c). */
#ifndef SLR_PLUGIN_TUNER_TUNER_MADE_H
#define SLR_PLUGIN_TUNER_TUNER_MADE_H

#include <stdbool.h>
#include "plugin/tuner/tuner.h"

/* A communicator-making hook was called: NCCL's calls come through slipring in this process. */
void slr_tuner_hook_called(void);
bool slr_tuner_hooked(void);

/* This thread begins to make a communicator: the next tuner that is made on it goes to *slot, with
 * a reference. Ends with slr_tuner_forget, in whatever way. */
void slr_tuner_expect(struct slr_tuner **slot);
void slr_tuner_forget(struct slr_tuner **slot);

/* NCCL has made a tuner. */
void slr_tuner_made(struct slr_tuner *tuner);

/* Whether it has made any in this process. */
bool slr_tuner_any(void);

/* Those that were made on threads of NCCL's, chained by `next`, a reference each; they become the
 * caller's. NULL when more communicators than `own` are being made in this process: whose they are
 * can not be told yet. */
struct slr_tuner *slr_tuner_take_alone(unsigned own);

#endif
