/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLR_KERNELS_RANKS_H
#define SLR_KERNELS_RANKS_H

#define SLR_MAX_RANKS 64 /* of one communicator that gathers over the ring */

#endif
