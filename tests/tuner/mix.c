/* SPDX-License-Identifier: Apache-2.0 */
/* slr_mix for the fuzz target, which is built without the rest of base/. Any mixing will do there. */
#include "base/log.h"

uint64_t slr_mix(uint64_t a, uint64_t b)
{
    return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 31);
}
