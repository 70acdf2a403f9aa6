/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that a program has given to cuBLAS's handles (cublasSetWorkspace): scratch memory that
 * every call with the handle may overwrite, wherever it lies. A handle has one until it gets another,
 * or its stream is set (cublasSetStream: "unconditionally resets the workspace back to the default
 * workspace pool"), or it is destroyed. The default pool is cuBLAS's own memory, which no buffer of a
 * program shares.
 *
 * Thread-safe. The hooks tell; nothing is paid where no handle has ever had one.
 */
#ifndef SLR_KERNELS_GEMM_WORKSPACE_H
#define SLR_KERNELS_GEMM_WORKSPACE_H

#include "kernels/gemm.h"

/* The real call has succeeded. */
void slr_workspace_set(cublasHandle_t handle, const void *p, size_t bytes);
void slr_workspace_reset(cublasHandle_t handle);

/* The handle is about to be destroyed: the next one may have its address. */
void slr_workspace_forget(cublasHandle_t handle);

/* A GEMM with the handle, which may have a workspace, has come while something was pending. */
void slr_workspace_called(cublasHandle_t handle);

/* Whether the calling thread gives the handle a workspace for each of its GEMMs, as PyTorch does, that one
 * included of which slr_workspace_called has told. Who changes a handle's configuration for each call keeps all other
 * threads from it meanwhile: they would use what is meant for this one ("extreme care needs to be taken when the
 * handle configuration is changed", cuBLAS, Thread Safety). */
bool slr_workspace_each_call(cublasHandle_t handle);

/* Empty: none. All memory, where one could not be noted for want of memory. */
struct slr_extent slr_workspace_of(cublasHandle_t handle);

#endif
