/* SPDX-License-Identifier: Apache-2.0 */
/* slipring's own settings: those that are not accepted, and those that contradict each other. */
#include <string.h>
#include <unistd.h>
#include <libgen.h>
#include <limits.h>
#include "base/settings.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/rails.h"

extern char **environ;

static void complain(void *ctx, const struct slr_setting_place *place, const char *name, const char *value,
                     const char *expected, const char *nearest)
{
    char where[300];
    slr_setting_place_text(place, where, sizeof where);
    doctor_add(ctx, DOCTOR_SETTINGS, DOCTOR_WARN, "%s%s%s=%.200s: expected %s%s%s%s", place->file ? where : "",
               place->file ? ": " : "", name, value, expected, nearest ? "; did you mean " : "", nearest ? nearest : "",
               nearest ? "?" : "");
}

/* A value by name; 0 when there is no such setting in this build. */
static uint64_t number(const struct slr_settings *s, const char *name)
{
    const struct slr_setting_row *row = slr_setting_find(name, strlen(name));
    return row ? s->num[row - slr_setting_rows] : 0;
}

static void fail(struct doctor *d, const char *text)
{
    doctor_add(d, DOCTOR_CONTRADICTIONS, DOCTOR_FAIL, "%s", text);
}

static void warn(struct doctor *d, const char *text)
{
    doctor_add(d, DOCTOR_CONTRADICTIONS, DOCTOR_WARN, "%s", text);
}

static void check_off(struct doctor *d, const struct slr_settings *s)
{
    if (!s->num[SLR_S_ENABLE])
        fail(d, "SLIPRING_ENABLE=off: every call goes to NCCL, on all ranks");
    if (s->num[SLR_S_CACHE_BYTES] < 2 * s->num[SLR_S_SLOT_BYTES]) {
        if (s->num[SLR_S_CACHE_BYTES] < 8192)
            fail(d, "SLIPRING_CACHE_BYTES does not hold two slots of 4096 bytes: nothing is substituted (no_staging)");
        else
            warn(d, "SLIPRING_CACHE_BYTES does not hold two slots of SLIPRING_SLOT_BYTES: slots shrink");
    }
    if (s->num[SLR_S_VERIFY])
        warn(d, "SLIPRING_VERIFY is not 0: calls are done twice and compared, which takes time");
}

static void check_pairs(struct doctor *d, const struct slr_settings *s)
{
    if (!s->num[SLR_S_ALLOC] && s->num[SLR_S_ZERO_COPY])
        warn(d, "SLIPRING_ALLOC=off with SLIPRING_ZERO_COPY=on: only registered buffers are used where they lie; every "
                "other shard is copied once more on its device, through a staging slot");
    if (s->num[SLR_S_STRICT] && s->given[SLR_S_FUSE] && s->num[SLR_S_FUSE])
        warn(d, "SLIPRING_STRICT=on with SLIPRING_FUSE=on: STRICT wins, no GEMM is split");
    if (s->num[SLR_S_STALL_TIMEOUT] && s->num[SLR_S_STALL_WARN] > s->num[SLR_S_STALL_TIMEOUT] &&
        s->given[SLR_S_STALL_WARN])
        warn(d, "SLIPRING_STALL_WARN comes after SLIPRING_STALL_TIMEOUT: it never warns");
}

static void check_log_file(struct doctor *d, const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    if (!strchr(folder, '%') && access(folder, W_OK) != 0)
        doctor_add(d, DOCTOR_CONTRADICTIONS, DOCTOR_WARN, "SLIPRING_LOG_FILE=%s: the folder %s can not be written to",
                   path, folder);
}

static void check_log(struct doctor *d, const struct slr_settings *s)
{
    const char *file = s->text[SLR_S_LOG_FILE];
    if (*file && s->num[SLR_S_LOG] == 0)
        warn(d, "SLIPRING_LOG=off with SLIPRING_LOG_FILE: nothing is written");
    if (*file)
        check_log_file(d, file);
    if (number(s, "TRACE") && s->num[SLR_S_LOG] == 0)
        warn(d, "SLIPRING_TRACE with SLIPRING_LOG=off: nothing is written");
    if (number(s, "TRACE") && !*file)
        warn(d, "SLIPRING_TRACE without SLIPRING_LOG_FILE: the lines of all ranks go to stderr");
    if (number(s, "TRACE") && !s->num[SLR_S_LOG_FORMAT])
        warn(d, "SLIPRING_TRACE without SLIPRING_LOG_FORMAT=json: slipring report can not read the lines");
}

static void check_tune_file(struct doctor *d, const char *path)
{
    if (*path && access(path, R_OK) != 0)
        doctor_add(d, DOCTOR_CONTRADICTIONS, DOCTOR_WARN,
                   "SLIPRING_TUNE_FILE=%s can not be read: NCCL's defaults are used", path);
}

void doctor_check_settings(struct doctor *d)
{
    static struct slr_settings s;
    slr_settings_parse(&s, environ, complain, d);
    slr_settings_files(&s, environ, complain, d);
    if (!doctor_has(d, DOCTOR_SETTINGS))
        doctor_add(d, DOCTOR_SETTINGS, DOCTOR_OK, "all that are set are accepted");
    check_off(d, &s);
    check_pairs(d, &s);
    check_log(d, &s);
    check_tune_file(d, s.text[SLR_S_TUNE_FILE]);
    if (!doctor_has(d, DOCTOR_CONTRADICTIONS))
        doctor_add(d, DOCTOR_CONTRADICTIONS, DOCTOR_OK, "none");
    doctor_check_rails(d, "", s.num[SLR_S_HOSTS]);
}
