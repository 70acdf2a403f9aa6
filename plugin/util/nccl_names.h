/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's collectives, algorithms and protocols by name: tune files, log lines. */
#ifndef SLR_PLUGIN_UTIL_NCCL_NAMES_H
#define SLR_PLUGIN_UTIL_NCCL_NAMES_H

#include <stddef.h>
#include "plugin/abi/nccl_common.h"

/* As NCCL writes them; "default" for -1, "?" for a number that is none. */
const char *slr_tune_func_name(int func);
const char *slr_tune_algo_name(int algo);
const char *slr_tune_proto_name(int proto);

/* The number of a name in any letter case, -1 for "default" ("any" for collectives), -2 for none.
 * Collectives: those that tuners are asked about. */
int slr_tune_func_number(const char *name, size_t len);
int slr_tune_algo_number(const char *name, size_t len);
int slr_tune_proto_number(const char *name, size_t len);

#endif
