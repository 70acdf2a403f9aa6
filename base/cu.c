/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cu.h"
#include "base/log.h"

enum slr_status slr_cu_status(CUresult r, const char *call)
{
    if (r == CUDA_SUCCESS)
        return SLR_OK;
    const char *name = "?";
    if (slr_real.cuGetErrorName)
        slr_real.cuGetErrorName(r, &name);
    slr_log(SLR_LOG_ERROR, "cuda_error", "call=%s error=%s code=%d", call, name, (int)r);
    return r == CUDA_ERROR_OUT_OF_MEMORY ? SLR_NOMEM : SLR_CUDA;
}
