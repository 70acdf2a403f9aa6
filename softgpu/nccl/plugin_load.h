/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins, found as NCCL 2.28 finds them: by NCCL_TUNER_PLUGIN and NCCL_PROFILER_PLUGIN.
 *
 * The value is a library's name or path; "none" is no plugin; STATIC_PLUGIN (any beginning of it, in any letter case,
 * as in NCCL) is the program itself and what was preloaded. A value without a slash that is not lib*.so is also looked
 * for as libnccl-tuner-VALUE.so, and without the variable libnccl-tuner.so is. All by dlopen(RTLD_NOW | RTLD_LOCAL). */
#ifndef SOFTGPU_NCCL_PLUGIN_LOAD_H
#define SOFTGPU_NCCL_PLUGIN_LOAD_H

#include "plugin/abi/nccl_common.h"

enum plugin_kind { PLUGIN_TUNER, PLUGIN_PROFILER, PLUGIN_KINDS };

/* A user of the plugin more: what `versions` names first of the symbols that the library has, and its place in the
 * list, or NULL. Opened with the first user, closed with the last; what could not be loaded is not tried again. The
 * list ends with NULL. Thread-safe. */
const void *plugin_use(enum plugin_kind kind, const char *const *versions, int *version);
void plugin_unuse(enum plugin_kind kind); /* pairs with a plugin_use that did not return NULL */

/* A line of NCCL_DEBUG=INFO, if NCCL_DEBUG_SUBSYS selects one of `subsystems` (without it: INIT, BOOTSTRAP and ENV). */
void nccl_info(unsigned long subsystems, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int nccl_info_wanted(unsigned long subsystems);

/* What plugins are given to log with. */
void nccl_plugin_log(enum slr_nccl_log_level level, unsigned long subsystems, const char *file, int line,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
