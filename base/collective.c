/* SPDX-License-Identifier: Apache-2.0 */
#include "base/collective.h"

const struct slr_collective slr_collectives[SLR_COLLECTIVES] = {
#define X(id, ...) {SLR_##id, __VA_ARGS__},
#include "base/collectives.def"
#undef X
};
