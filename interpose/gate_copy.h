/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking copies between devices, which come behind all work of both (Programming Guide, peer-to-peer memory copy):
 * whatever context is current, so also behind gathers of other contexts. */
#ifndef SLR_INTERPOSE_GATE_COPY_H
#define SLR_INTERPOSE_GATE_COPY_H

#include <cuda.h>
#include <stdbool.h>
#include "interpose/gate_table.h"

/* For a row of one of the COPY classes: the devices of the copy's ends. False: it is no copy between two devices. */
bool slr_gate_copy_devices(const struct slr_gate_row *row, const struct slr_gate_frame *frame, CUdevice device[2]);

#endif
