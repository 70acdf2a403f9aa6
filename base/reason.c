/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reason.h"
#include <stddef.h>

static const struct {
    const char *name, *doc, *cure;
} rows[] = {
#define X(id, name, doc, cure) {name, doc, cure},
#include "base/reasons.def"
#undef X
};
_Static_assert(sizeof rows / sizeof *rows == SLR_R_COUNT, "one row per reason");

const char *slr_reason_name(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? rows[r].name : "unknown";
}

const char *slr_reason_doc(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? rows[r].doc : "not a reason";
}

const char *slr_reason_cure(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? rows[r].cure : NULL;
}
