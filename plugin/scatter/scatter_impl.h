/* SPDX-License-Identifier: Apache-2.0 */
/* What a reduce-scatter that runs now and one that is recorded have in common; for this folder alone. */
#ifndef SLR_PLUGIN_SCATTER_SCATTER_IMPL_H
#define SLR_PLUGIN_SCATTER_SCATTER_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/produce/product.h"

struct slr_call;

enum { SLR_PLAIN_PARTS = 4 }; /* of a shard that no GEMM has cut */

/* What the ring needs. Without a product (NULL) the parts are put into `plain`, which stays as long as *s.
 * `before` is the caller's to fill. */
void slr_scatter_describe(const struct slr_call *call, const struct slr_product *p,
                          struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS], struct slr_scatter *s);

/* The result may be written while the GEMM is still computing other parts. */
bool slr_scatter_may_write(const struct slr_product *p, const struct slr_call *call);

#endif
