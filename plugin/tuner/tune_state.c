/* SPDX-License-Identifier: Apache-2.0 */
/* What all tuners of the process decide by. */
#include "plugin/tuner/tune_state.h"

#include "base/log.h"
#include "base/once.h"
#include "base/settings.h"

static struct slr_tune_state state;
static struct slr_once once;

/* A broken table is as none on this rank; on the others it is not, so it has a word of its own. */
#define NO_TABLE 0
#define BROKEN_TABLE 1

static uint64_t load(void)
{
    struct slr_tune_error error;
    state.path = slr_settings()->text[SLR_S_TUNE_FILE];
    if (!state.path[0])
        return NO_TABLE;
    if (slr_tune_load(&state.table, state.path, &error) == 0) {
        slr_log(SLR_LOG_INFO, "tune_table", "file=%s rules=%zu digest=%016llx", state.path, state.table.count,
                (unsigned long long)state.table.digest);
        return state.table.digest;
    }
    slr_log(SLR_LOG_WARN, "tune_table_broken", "file=%s line=%d problem=%s msg=%s", state.path, error.line, error.text,
            "none of the table is used: NCCL's defaults for everything");
    return BROKEN_TABLE;
}

const struct slr_tune_state *slr_tune_state(void)
{
    /* A table that changes on the disk is not read again: ranks would change over at different
     * calls. */
    if (slr_once_done(&once) || !slr_once_begin(&once))
        return &state;
    state.overlap_channels = (int)slr_get(SLR_S_TUNE_OVERLAP_CHANNELS);
    state.samples = (unsigned)slr_get(SLR_S_TUNE_EXPLORE);
    uint64_t table = load(), settings = (uint64_t)state.overlap_channels << 32 | state.samples;
    uint64_t word = slr_mix(table, settings);
    /* 0 is kept for "nothing to decide": ranks without a tuner publish it, too. */
    state.word = table == NO_TABLE && !settings ? 0 : word ? word : 1;
    slr_once_end(&once);
    return &state;
}
