/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/tuner/tune_keep.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "plugin/tuner/tune_state.h"
#include "plugin/tuner/tune_write.h"

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
static void add(const struct slr_tune_site *rule, bool newer)
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
    add(rule, true);
    pthread_mutex_unlock(&lock);
}

/* What waits, if it is due, becomes the caller's. */
static size_t take(struct slr_tune_site *rules, uint64_t now)
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

static void give_back(const struct slr_tune_site *rules, size_t n)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n; i++)
        add(&rules[i], false);
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
    const size_t n = take(rules, now);
    int rc = n ? slr_tune_write(slr_tune_path(), rules, n, &error) : 0;
    if (rc == -EAGAIN)
        give_back(rules, n);
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
