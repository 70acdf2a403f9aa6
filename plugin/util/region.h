/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a thread in which the program asked for less: see slipring.h, whose functions begin
 * and end them. */
#ifndef SLR_PLUGIN_UTIL_REGION_H
#define SLR_PLUGIN_UTIL_REGION_H

#include <stdbool.h>

/* Whether this thread's all-gathers go to NCCL now. */
bool slr_region_gathers(void);

/* Whether this thread's GEMMs stay whole now. */
bool slr_region_gemms(void);

#endif
