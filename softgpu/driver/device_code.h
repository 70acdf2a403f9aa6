/* SPDX-License-Identifier: Apache-2.0 */
/* Device code that the stand-in driver has a model of: modules of PTX, and what their functions do.
 *
 * module_ptx.c reads of a PTX text which entry points it has, what parameters they take and how many threads they allow.
 * Nothing of their bodies is executed: an entry point whose name is known here (device_reduce.c) runs its model, written
 * in C and not from the device code's text, as a built-in kernel (launch.c). Of the others one can get a function, and
 * each launch says that there is no image for the device. */
#ifndef SOFTGPU_DEVICE_CODE_H
#define SOFTGPU_DEVICE_CODE_H

#include "sg.h"

/* One kernel: its descriptor as built-in kernels have it, and what is wrong with the arguments of a launch, in words, or
 * NULL. On a device the kernel would read or write elsewhere, or fault. */
struct sg_model {
    struct softgpu_kernel_desc desc;
    const char *(*wrong)(const void *args);
};
extern const struct sg_model sg_models_reduce[];
extern const unsigned sg_models_reduce_count;

/* For launch.c, of the function that `desc` belongs to; what is no function of a module may all. */

/* May it be launched so? Names what is wrong with the arguments in a report. */
CUresult sg_module_launch_locked(const struct softgpu_kernel_desc *desc, const CUDA_KERNEL_NODE_PARAMS *p);
/* Does it belong to the context? */
bool sg_module_fits_locked(const struct softgpu_kernel_desc *desc, const struct sg_ctx *ctx);
/* A function of a module that is launched, or asked for what only its code tells, is loaded by that (or by cuFuncLoad).
 * True when it is by this call. */
bool sg_module_first_use_locked(const struct softgpu_kernel_desc *desc);
/* What cuFuncLoad does, in the current context. Of a built-in kernel: nothing. */
CUresult sg_function_load(CUfunction function);
bool sg_module_has_locked(const struct softgpu_kernel_desc *desc);
bool sg_module_gone_locked(const struct softgpu_kernel_desc *desc); /* unloaded */

#endif
