/* SPDX-License-Identifier: Apache-2.0 */
/* What a reduce-scatter that runs now and one that is recorded have in common; for this folder alone. */
#ifndef SLR_PLUGIN_SCATTER_SCATTER_IMPL_H
#define SLR_PLUGIN_SCATTER_SCATTER_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/produce/product.h"

struct slr_call;

enum { SLR_PLAIN_PARTS = 4 }; /* of a shard that no GEMM has cut */

/* What the ring needs but `entry`. Without a product (NULL) the parts are put into `plain`, which stays as long as
 * *s. */
void slr_scatter_describe(const struct slr_call *call, const struct slr_product *p,
                          struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS], struct slr_scatter *s);

/* Here the call's stream comes to the call; parts of a product may be sent before. */
enum slr_status slr_scatter_mark_entry(struct slr_ring *ring, const struct slr_call *call, struct slr_scatter *s);

#endif
