/* SPDX-License-Identifier: Apache-2.0 */
/* What the settings say about tuning, and the table: read once, at the first tuner of the process.
 */
#ifndef SLR_PLUGIN_TUNER_TUNE_STATE_H
#define SLR_PLUGIN_TUNER_TUNE_STATE_H

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

#endif
