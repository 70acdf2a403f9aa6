/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

static const char *const names[] = {
#define X(id, name, nccl, doc) name,
#include "base/status.def"
#undef X
};
_Static_assert(sizeof names / sizeof *names == SLR_STATUS_COUNT, "one name per status");

const char *slr_status_name(enum slr_status s)
{
    return (unsigned)s < SLR_STATUS_COUNT ? names[s] : "unknown";
}
