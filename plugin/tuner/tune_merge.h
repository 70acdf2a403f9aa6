/* SPDX-License-Identifier: Apache-2.0 */
/* A tune file's text with more rules for call sites.
 *
 * A rule that the library has written ends with the comment "# kept by slipring". Only such lines are
 * ever taken out; every other line stays as it is, comments too, and in its place. New rules come at
 * the end. A rule is taken out
 *
 *   - when a new one has the same conditions, or has the same but for the consumer and chose the other
 *     one of ring and NCCL, which holds for all gathers of a site;
 *   - as the oldest, the topmost, when there are more than SLR_TUNE_MOST_KEPT, or more rules or bytes
 *     than a file may have. */
#ifndef SLR_PLUGIN_TUNER_TUNE_MERGE_H
#define SLR_PLUGIN_TUNER_TUNE_MERGE_H

#include "plugin/tuner/tune_table.h"

#define SLR_TUNE_MOST_KEPT 1024u

/* *out is to be freed by the caller. 0, or a negative errno value with `error` filled and *out NULL:
 * the text is broken, or there is no room. */
int slr_tune_merge(const char *text, size_t len, const struct slr_tune_site *rules, size_t count, char **out,
                   size_t *out_len, struct slr_tune_error *error);

#endif
