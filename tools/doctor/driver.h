/* SPDX-License-Identifier: Apache-2.0 */
/* The driver, in a child: loaded by name, its functions looked up as slipring does it. Only for
 * code that runs in a child of child_run. */
#ifndef SLR_TOOLS_DOCTOR_DRIVER_H
#define SLR_TOOLS_DOCTOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include "base/real.h"

/* What the doctor calls besides what slipring calls (base/real.def). Any may be NULL. */
#define DOCTOR_DRIVER(X)                                                                                               \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDeviceGetP2PAttribute)                                                                                         \
    X(cuStreamBeginCapture)                                                                                            \
    X(cuStreamEndCapture)                                                                                              \
    X(cuMemcpyHtoD)                                                                                                    \
    X(cuMemCreate)                                                                                                     \
    X(cuMemGetAllocationGranularity)

struct doctor_driver {
    void *handle;
#define F(fn) __typeof__(&fn) fn;
    DOCTOR_DRIVER(F)
#undef F
};

/* Loads the driver, fills `drv` and the driver's part of slr_real. False: not loaded, see
 * dlerror(). `missing` gets the names of required functions that are not there, separated by
 * spaces. */
bool doctor_driver_load(struct doctor_driver *drv, char *missing, size_t size);

const char *doctor_cuda_error(CUresult r);

#endif
