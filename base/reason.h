/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons: the one vocabulary in which decisions are logged, counted and tested. The table is
 * reasons.def. */
#ifndef SLR_BASE_REASON_H
#define SLR_BASE_REASON_H

enum slr_reason {
#define X(id, ...) SLR_R_##id,
#include "base/reasons.def"
#undef X
    SLR_R_COUNT
};

const char *slr_reason_name(enum slr_reason r);
const char *slr_reason_doc(enum slr_reason r);

const char *slr_reason_cure(enum slr_reason r); /* what to do about it; NULL: nothing that would help */

#endif
