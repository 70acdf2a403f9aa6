/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/settings_internal.h"

const struct slr_setting_row slr_setting_rows[SLR_S_COUNT] = {
#define X(id, name, kind, def, min, max, choices, scope, doc)                                                          \
    [SLR_S_##id] = {name, SLR_KIND_##kind, def, min, max, choices, SLR_SCOPE_##scope, doc},
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
