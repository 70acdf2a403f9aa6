/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's data types. */
#ifndef SLR_PLUGIN_UTIL_NCCL_TYPE_H
#define SLR_PLUGIN_UTIL_NCCL_TYPE_H

#include <nccl.h>
#include <stddef.h>

/* As logs name them, and bytes of an element; "?" and 0 for an unknown one. */
const char *slr_type_name(ncclDataType_t type);
size_t slr_type_bytes(ncclDataType_t type);

#endif
