/* SPDX-License-Identifier: Apache-2.0 */
/* What all tuners of the process decide by. */
#include "plugin/tuner/tune_state.h"

#include <errno.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"

static struct slr_tune_state state;
static struct slr_once once;

/* A broken table is as none on this rank; on the others it is not, so it has a word of its own. */
#define NO_TABLE 0
#define BROKEN_TABLE 1

const char *slr_tune_path(void)
{
    return slr_settings()->text[SLR_S_TUNE_FILE];
}

/* 0; 1: there is no file, and need not be; or a negative errno value. */
static int read_file(struct slr_tune_table *table)
{
    struct slr_tune_error error;
    const char *path = slr_tune_path();
    *table = (struct slr_tune_table){0};
    if (!path[0])
        return 1;
    int rc = slr_tune_load(table, path, &error);
    if (rc == -ENOENT && slr_get(SLR_S_TUNE_KEEP))
        return 1; /* nothing has been kept yet */
    if (rc && slr_log_first(slr_mix(0x62726f6b656e, (uint64_t)error.line)))
        slr_log(SLR_LOG_WARN, "tune_table_broken", "file=%s line=%d problem=%s msg=%s", path, error.line, error.text,
                "none of the table is used: NCCL's defaults for everything, and no call site is known");
    return rc;
}

bool slr_tune_read(struct slr_tune_table *table)
{
    return read_file(table) == 0;
}

static uint64_t load(void)
{
    int rc = read_file(&state.table);
    state.path = slr_tune_path();
    if (rc)
        return rc > 0 ? NO_TABLE : BROKEN_TABLE;
    slr_log(SLR_LOG_INFO, "tune_table", "file=%s rules=%zu digest=%016llx", state.path, state.table.count,
            (unsigned long long)state.table.digest);
    /* Without rules for NCCL it decides nothing here, as none. */
    return state.table.count ? state.table.digest : NO_TABLE;
}

const struct slr_tune_state *slr_tune_state(void)
{
    /* A table that changes on the disk is not read again: ranks would change over at different
     * calls. */
    if (slr_once_done(&once) || !slr_once_begin(&once))
        return &state;
    state.samples = (unsigned)slr_get(SLR_S_TUNE_EXPLORE);
    uint64_t table = load(), word = slr_mix(table, state.samples);
    /* 0 is kept for "nothing to decide": ranks without a tuner publish it, too. */
    state.word = table == NO_TABLE && !state.samples ? 0 : word ? word : 1;
    slr_once_end(&once);
    return &state;
}
