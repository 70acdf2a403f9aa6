/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_TUNE_FILE in this process: what tuners decide by, read once, at the first tuner; what call sites know; and what is
 * kept in it. */
#ifndef SLR_PLUGIN_TUNER_TUNE_FILE_H
#define SLR_PLUGIN_TUNER_TUNE_FILE_H

#include "plugin/tuner/tune_table.h"

struct slr_tune_state {
    struct slr_tune_table table; /* empty: none, or broken */
    const char *path;            /* as the setting gives it */
    unsigned samples;            /* of each candidate; 0: nothing is explored */
    /* Stands for all this: equal on ranks that decide alike. 0: nothing to decide, as without a
     * tuner. */
    uint64_t word;
};

const struct slr_tune_state *slr_tune_state(void);

/* The file as it is now, to be freed by the caller, and its name. False: there is none, or it is
 * broken, which the log says once. */
bool slr_tune_read(struct slr_tune_table *table);
const char *slr_tune_path(void);

/* ---- what call sites have found by trying, if SLIPRING_TUNE_KEEP says so ----
 *
 * Written by the house-keeping thread within seconds, and at the end of the process, never by a thread that makes calls
 * (tune_impl.h: how). What can not be written is one warning, and then nothing more is tried. */

/* To be written; instead of what is to be written for the same conditions. */
void slr_tune_keep(const struct slr_tune_site *rule);

/* The house-keeping thread's tick. */
void slr_tune_keep_tick(void);

/* The process ends; the threads have stopped. */
void slr_tune_keep_end(void);

#endif
