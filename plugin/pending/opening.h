/* SPDX-License-Identifier: Apache-2.0 */
/* Before code can run that bypasses slipring (base/real.h): joins all that is pending, also in captures and
 * in other contexts, and records what is to be ordered later (order.h). Without locks; from inside of slipring's own
 * calls it does nothing, as the thread may hold them. */
#ifndef SLR_PLUGIN_PENDING_OPENING_H
#define SLR_PLUGIN_PENDING_OPENING_H

void slr_pending_opening(void);

#endif
