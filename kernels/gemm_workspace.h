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

#include <stdatomic.h>
#include "kernels/gemm.h"

/* The real call has succeeded. */
void slr_workspace_set(cublasHandle_t handle, const void *p, size_t bytes);
void slr_workspace_reset(cublasHandle_t handle);

/* The handle is about to be destroyed: the next one may have its address. */
void slr_workspace_forget(cublasHandle_t handle);

extern _Atomic bool slr_workspaces; /* some handle has, or had, one */

/* Around a GEMM with the handle, which may have a workspace, while something is pending. Enter waits while
 * the handle is taken. */
void slr_workspace_entered(cublasHandle_t handle);
void slr_workspace_left(cublasHandle_t handle);

static inline void slr_workspace_enter(cublasHandle_t handle)
{
    if (atomic_load_explicit(&slr_workspaces, memory_order_relaxed))
        slr_workspace_entered(handle);
}

static inline void slr_workspace_leave(cublasHandle_t handle)
{
    if (atomic_load_explicit(&slr_workspaces, memory_order_relaxed))
        slr_workspace_left(handle);
}

/* Within such a GEMM: takes the handle from all other threads, so that its stream and workspace may be
 * changed and put back. False: it may be in use. Others would use what is meant for this thread. Those
 * that come to a hooked GEMM wait. For those that call something else: the handle is only taken where
 * this thread has given it a workspace since the GEMM before, as PyTorch does for each, and the time
 * before, and no other thread has made a GEMM with it. Who changes a handle's configuration for each call
 * keeps other threads from it meanwhile ("extreme care needs to be taken when the handle configuration is
 * changed", cuBLAS, Thread Safety). */
bool slr_workspace_take(cublasHandle_t handle);
void slr_workspace_return(cublasHandle_t handle);

/* Empty: none. All memory, where one could not be noted for want of memory. */
struct slr_extent slr_workspace_of(cublasHandle_t handle);

#endif
