/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that implement settings.h, and by the tool that prints the tables. */
#ifndef SLR_BASE_SETTINGS_INTERNAL_H
#define SLR_BASE_SETTINGS_INTERNAL_H

#include "base/settings.h"

/* Longest value of a TEXT setting; a file name is the longest use. */
#define SLR_SETTING_TEXT_MAX 4095
/* No setting's name is longer, with its prefix. */
#define SLR_SETTING_NAME_SIZE 64

/* The row with this name (without the prefix, exact), or NULL. */
const struct slr_setting_row *slr_setting_find(const char *name, size_t len);

/* The row that is likely what was meant: what other libraries call `name` (DEBUG: LOG), or whose name
 * is close to it. NULL: none. Letter case does not count. */
const struct slr_setting_row *slr_setting_nearest(const char *name, size_t len);

/* Steps (insert, delete, replace, swap of neighbours) between two words, letter case ignored;
 * `limit` + 1 when there are more. */
unsigned slr_edit_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit);

#endif
