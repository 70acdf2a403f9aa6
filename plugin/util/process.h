/* SPDX-License-Identifier: Apache-2.0 */
/* The process as a whole: whether slipring is on in it. */
#ifndef SLR_PLUGIN_UTIL_PROCESS_H
#define SLR_PLUGIN_UTIL_PROCESS_H

#include <stdbool.h>

/* True when every call goes to the vendor untouched: SLIPRING_ENABLE=off, or a child after fork
 * (CUDA does not survive that either). */
bool slr_process_off(void);

/* In the child after fork. */
void slr_process_forked(void);

#endif
