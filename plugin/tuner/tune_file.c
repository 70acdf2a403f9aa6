/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include "base/hash.h"
#include "base/wait.h"
#include "base/log.h"
#include "base/settings.h"
#include "plugin/tuner/tuner.h"
#include "plugin/tuner/tune_impl.h"

static struct slr_tune_table table;
static struct slr_tune_state state = {.table = &table};
static struct slr_once once;

/* A broken table is as none on this rank; on the others it is not, so it has a word of its own. */
#define NO_TABLE 0
#define BROKEN_TABLE 1

const char *slr_tune_path(void)
{
    return slr_settings()->text[SLR_S_TUNE_FILE];
}

/* 0; 1: there is no file, and need not be; or a negative errno value. */
static int read_file(struct slr_tune_table *into)
{
    struct slr_tune_error error;
    const char *path = slr_tune_path();
    *into = (struct slr_tune_table){0};
    if (!path[0])
        return 1;
    int rc = slr_tune_load(into, path, &error);
    if (rc == -ENOENT && slr_get(SLR_S_TUNE_KEEP))
        return 1; /* nothing has been kept yet */
    if (rc && slr_log_first(slr_mix(0x62726f6b656e, (uint64_t)error.line)))
        slr_log(SLR_LOG_WARN, "tune_table_broken", "file=%s line=%d problem=%s msg=%s", path, error.line, error.text,
                "none of the table is used: NCCL's defaults for everything, and no call site is known");
    return rc;
}

bool slr_tune_read(struct slr_tune_table *into)
{
    return read_file(into) == 0;
}

static uint64_t load(void)
{
    int rc = read_file(&table);
    state.path = slr_tune_path();
    if (rc)
        return rc > 0 ? NO_TABLE : BROKEN_TABLE;
    slr_log(SLR_LOG_INFO, "tune_table", "file=%s rules=%zu digest=%016llx", state.path, table.count,
            (unsigned long long)table.digest);
    /* Without rules for NCCL it decides nothing here, as none. */
    return table.count ? table.digest : NO_TABLE;
}

const struct slr_tune_state *slr_tune_state(void)
{
    /* A table that changes on the disk is not read again: ranks would change over at different calls. */
    if (slr_once_done(&once) || !slr_once_begin(&once))
        return &state;
    state.samples = (unsigned)slr_get(SLR_S_TUNE_EXPLORE);
    uint64_t digest = load(), word = slr_mix(digest, state.samples);
    /* 0 is kept for "nothing to decide": ranks without a tuner publish it, too. */
    state.word = digest == NO_TABLE && !state.samples ? 0 : word ? word : 1;
    slr_once_end(&once);
    return &state;
}

/* ---- what is kept ---- */

#define ROOM 256
#define DELAY_MS 1000 /* choices come in bursts: one write for all of them */
#define END_MS 2000   /* how long the end of the process waits for another one that writes */

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* one write at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* what follows; never held over a write */
static struct slr_tune_site waiting[ROOM];
static size_t count;
static uint64_t due_ms;
static bool off;

/* `newer`: than one for the same conditions that waits already. One too many is dropped: a program of
 * so many sites tries some again next time. */
static void put_waiting(const struct slr_tune_site *rule, bool newer)
{
    size_t i = 0;
    while (i < count && !slr_tune_site_same(&waiting[i], rule, true))
        i++;
    if (off || i == ROOM || (i < count && !newer))
        return;
    if (!count)
        due_ms = slr_now_ms() + DELAY_MS;
    waiting[i] = *rule;
    count += i == count;
}

void slr_tune_keep(const struct slr_tune_site *rule)
{
    if (!slr_get(SLR_S_TUNE_KEEP))
        return;
    if (!slr_tune_path()[0]) {
        if (slr_log_first(0x6b656570)) /* "keep" in ASCII */
            slr_log(SLR_LOG_WARN, "tune_not_kept", "file= line=0 msg=%s",
                    "SLIPRING_TUNE_KEEP is on, but SLIPRING_TUNE_FILE names no file to keep results in");
        return;
    }
    pthread_mutex_lock(&lock);
    put_waiting(rule, true);
    pthread_mutex_unlock(&lock);
}

/* What waits, if it is due, becomes the caller's. */
static size_t take_due(struct slr_tune_site *rules, uint64_t now)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    if (count && now >= due_ms) {
        n = count;
        memcpy(rules, waiting, n * sizeof *rules);
        count = 0;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static void give_back_rules(const struct slr_tune_site *rules, size_t n)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n; i++)
        put_waiting(&rules[i], false);
    pthread_mutex_unlock(&lock);
}

static void refused(const struct slr_tune_error *error)
{
    slr_log(SLR_LOG_WARN, "tune_not_kept", "file=%s line=%d problem=%s msg=%s", slr_tune_path(), error->line,
            error->text, "what call sites have found by trying is not kept");
    pthread_mutex_lock(&lock);
    off = true;
    pthread_mutex_unlock(&lock);
}

/* What is due. False: another process is writing, and it waits again. */
static bool write_due(uint64_t now)
{
    static struct slr_tune_site rules[ROOM]; /* under `writing` */
    struct slr_tune_error error;
    const size_t n = take_due(rules, now);
    int rc = n ? slr_tune_write(slr_tune_path(), rules, n, &error) : 0;
    if (rc == -EAGAIN)
        give_back_rules(rules, n);
    else if (rc)
        refused(&error);
    else if (n)
        slr_log(SLR_LOG_INFO, "tune_kept", "file=%s rules=%zu", slr_tune_path(), n);
    return rc != -EAGAIN;
}

void slr_tune_keep_tick(void)
{
    pthread_mutex_lock(&writing);
    write_due(slr_now_ms());
    pthread_mutex_unlock(&writing);
}

void slr_tune_keep_end(void)
{
    const uint64_t end = slr_now_ms() + END_MS;
    /* The house-keeping thread may be in a write that does not return. */
    if (pthread_mutex_trylock(&writing) != 0)
        return;
    while (!write_due(UINT64_MAX)) {
        if (slr_now_ms() >= end) {
            slr_log(SLR_LOG_WARN, "tune_not_kept", "file=%s line=0 msg=%s", slr_tune_path(),
                    "another process holds the file locked: what call sites have found by trying is not kept");
            break;
        }
        slr_sleep_ms(10);
    }
    pthread_mutex_unlock(&writing);
}
