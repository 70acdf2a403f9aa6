/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing a tune file while other processes read it, or replace it, too.
 *
 * The new text goes into a temporary file beside it, which is then renamed: who reads the file has
 * the old text or the new one, whatever happens meanwhile, also when this process is killed or the
 * disk is full. Who replaces it holds a lock (flock) on the file that the name stands for at that
 * time, from reading to renaming, so nothing that another one has added is lost. (On file systems
 * without such locks it may be.) A file that is not there yet is made by a link, which fails when
 * another process was faster. A symbolic link stays: what it points to is replaced. Mode and group
 * stay as they are. */
#ifndef SLR_PLUGIN_TUNER_TUNE_WRITE_H
#define SLR_PLUGIN_TUNER_TUNE_WRITE_H

#include "plugin/tuner/tune_table.h"

/* Adds the rules (tune_merge.h). 0; -EAGAIN: another process is at it, nothing has been waited for; or
 * another negative errno value with `error` filled: the file is as it was. */
int slr_tune_write(const char *path, const struct slr_tune_site *rules, size_t count, struct slr_tune_error *error);

#endif
