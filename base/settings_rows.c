/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and look-ups in it: by name, and by a name that is nearly one. */
#include <ctype.h>
#include <string.h>
#include "base/settings_internal.h"

const struct slr_setting_row slr_setting_rows[SLR_S_COUNT] = {
#define X(id, name, kind, def, min, max, choices, scope, group, doc)                                                   \
    [SLR_S_##id] = {name, SLR_KIND_##kind, def, min, max, choices, SLR_SCOPE_##scope, SLR_GROUP_##group, doc},
#include "base/settings.def"
#undef X
};

const struct slr_setting_row *slr_setting_find(const char *name, size_t len)
{
    for (int i = 0; i < SLR_S_COUNT; i++)
        if (strncmp(slr_setting_rows[i].name, name, len) == 0 && slr_setting_rows[i].name[len] == '\0')
            return &slr_setting_rows[i];
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The usual table of prefixes, of which only the last three rows are kept; the third is for swapped
 * neighbours. */
unsigned slr_edit_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit)
{
    /* On the stack: this may run inside an allocation hook. */
    unsigned rows[3][SLR_SETTING_NAME_SIZE + 1];
    if (alen > SLR_SETTING_NAME_SIZE || blen > SLR_SETTING_NAME_SIZE)
        return limit + 1;
    for (size_t j = 0; j <= blen; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= alen; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= blen; j++) {
            now[j] = least(least(before[j], now[j - 1]) + 1, before[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                now[j] = least(now[j], two_before[j - 2] + 1);
        }
    }
    return least(rows[alen % 3][blen], limit + 1);
}

/* Names that people bring along from NCCL and other libraries, and what they mean here. */
static const struct {
    const char *name;
    enum slr_setting_id id;
} elsewhere[] = {
    {"DEBUG", SLR_S_LOG},
    {"DEBUG_LEVEL", SLR_S_LOG},
    {"LOG_LEVEL", SLR_S_LOG},
    {"LOGLEVEL", SLR_S_LOG},
    {"VERBOSE", SLR_S_LOG},
    {"VERBOSITY", SLR_S_LOG},
    {"QUIET", SLR_S_LOG},
    {"DEBUG_FILE", SLR_S_LOG_FILE},
    {"LOG_PATH", SLR_S_LOG_FILE},
    {"OUTPUT", SLR_S_LOG_FILE},
    {"LOG_JSON", SLR_S_LOG_FORMAT},
    {"DISABLE", SLR_S_ENABLE},
    {"DETERMINISTIC", SLR_S_STRICT},
    {"CHECK", SLR_S_VERIFY},
    {"THRESHOLD", SLR_S_MIN_BYTES},
    {"MIN_SIZE", SLR_S_MIN_BYTES},
    {"TUNER", SLR_S_TUNE_FILE},
    {"CUDA_GRAPHS", SLR_S_GRAPHS},
    {"TRACE_FILE", SLR_S_LOG_FILE},
};

static const struct slr_setting_row *known_elsewhere(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strlen(elsewhere[i].name) == len && slr_edit_distance(name, len, elsewhere[i].name, len, 0) == 0)
            return &slr_setting_rows[elsewhere[i].id];
    return NULL;
}

/* "Close" is one mistake in four letters, and at least one: a longer list of guesses would be
 * noise. */
const struct slr_setting_row *slr_setting_nearest(const char *name, size_t len)
{
    const struct slr_setting_row *named = known_elsewhere(name, len);
    if (named)
        return named;
    const struct slr_setting_row *best = NULL;
    unsigned limit = len < 8 ? 1 : (unsigned)least((unsigned)len / 4, 4);
    for (int i = 0; i < SLR_S_COUNT; i++) {
        const struct slr_setting_row *row = &slr_setting_rows[i];
        unsigned steps = slr_edit_distance(name, len, row->name, strlen(row->name), limit);
        if (steps > limit)
            continue;
        best = row;
        if (steps == 0)
            break;
        limit = steps - 1; /* only a closer one replaces it */
    }
    return best;
}
