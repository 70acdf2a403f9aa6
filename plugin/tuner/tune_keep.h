/* SPDX-License-Identifier: Apache-2.0 */
/* What call sites have found by trying is kept in the tune file, if SLIPRING_TUNE_KEEP says so. It is
 * written by the house-keeping thread within seconds, and at the end of the process, never by a
 * thread that makes calls. tune_merge.h says what becomes of the file, tune_write.h how it is
 * replaced. What can not be written is one warning, and then nothing more is tried. */
#ifndef SLR_PLUGIN_TUNER_TUNE_KEEP_H
#define SLR_PLUGIN_TUNER_TUNE_KEEP_H

#include "plugin/tuner/tune_table.h"

/* To be written; instead of what is to be written for the same conditions. */
void slr_tune_keep(const struct slr_tune_site *rule);

/* The house-keeping thread's tick. */
void slr_tune_keep_tick(void);

/* The process ends; the threads have stopped. */
void slr_tune_keep_end(void);

#endif
