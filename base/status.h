/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes of slipring's own functions. The table is status.def. The function that first sees
 * an error logs it; callers only pass it on. */
#ifndef SLR_BASE_STATUS_H
#define SLR_BASE_STATUS_H

enum slr_status {
#define X(id, name, nccl, doc) SLR_##id,
#include "base/status.def"
#undef X
    SLR_STATUS_COUNT
};

const char *slr_status_name(enum slr_status s);

#endif
