/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put(char *buf, size_t size, const char *text)
{
    size_t used = strlen(buf);
    snprintf(buf + used, size - used, "%s", text);
}

static void put_bytes(char *buf, size_t size, const char *before, uint64_t bytes)
{
    static const char suffix[] = {0, 'K', 'M', 'G', 'T'};
    char number[48];
    unsigned i = 0;
    bool large = bytes >= 64 * 1024; /* 4096 reads better than 4K */
    while (large && i + 1 < sizeof suffix && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    snprintf(number, sizeof number, "%s%" PRIu64 "%.1s", before, bytes, i ? &suffix[i] : "");
    put(buf, size, number);
}

static void put_bytes_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    put(buf, size, "a size such as 64M");
    if (row->min > 0)
        put_bytes(buf, size, ", at least ", row->min);
    if (row->max < UINT64_MAX)
        put_bytes(buf, size, ", at most ", row->max);
}

static void put_time_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    char range[80];
    snprintf(range, sizeof range, "a time such as 500ms, 20s or 2min, from %" PRIu64 "ms to %" PRIu64 "min", row->min,
             row->max / 60000);
    put(buf, size, range);
}

static void put_uint_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    char range[80];
    snprintf(range, sizeof range, "a whole number from %" PRIu64 " to %" PRIu64, row->min, row->max);
    put(buf, size, range);
}

static void put_choice_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    const char *at = row->choices;
    put(buf, size, "one of ");
    for (size_t len; *at; at += len + (at[len] == '|')) {
        char word[SLR_SETTING_NAME_SIZE];
        len = strcspn(at, "|");
        snprintf(word, sizeof word, "%s%.*s", at == row->choices ? "" : ", ", (int)len, at);
        put(buf, size, word);
    }
}

const char *slr_setting_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    if (size == 0)
        return buf;
    buf[0] = '\0';
    switch (row->kind) {
    case SLR_KIND_BOOL:
        put(buf, size, "on or off");
        break;
    case SLR_KIND_UINT:
        put_uint_form(row, buf, size);
        break;
    case SLR_KIND_BYTES:
        put_bytes_form(row, buf, size);
        break;
    case SLR_KIND_MSEC:
        put_time_form(row, buf, size);
        break;
    case SLR_KIND_CHOICE:
        put_choice_form(row, buf, size);
        break;
    case SLR_KIND_TEXT:
        put(buf, size, "a text of at most 4095 bytes");
        break;
    }
    return buf;
}
_Static_assert(SLR_SETTING_TEXT_MAX == 4095, "the form of TEXT settings says so");
