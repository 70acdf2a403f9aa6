/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes, their names, and each thread's last error. */
#include "rt.h"
#include "rt_error_table.h"

static _Thread_local cudaError_t last_error;

static const char *name_of(cudaError_t error)
{
    switch (error) {
#define RT_CASE(name)                                                                                                  \
    case name:                                                                                                         \
        return #name;
        RT_ERROR_TABLE(RT_CASE)
#undef RT_CASE
    default:
        return NULL;
    }
}

cudaError_t rt_map(CUresult result)
{
    return name_of((cudaError_t)result) ? (cudaError_t)result : cudaErrorUnknown;
}

cudaError_t rt_fail(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t rt_done(CUresult result)
{
    return rt_fail(rt_map(result));
}

RT_API cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

RT_API cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

RT_API const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = name_of(error);
    return name ? name : "unrecognized error code";
}

/* The driver's text; the name for what only the runtime knows and while there is no driver. */
RT_API const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    const cudaError_t before = last_error;
    if (rt_load() != cudaSuccess)
        last_error = before;
    else if (rt_drv.GetErrorString && rt_drv.GetErrorString((CUresult)error, &text) == CUDA_SUCCESS && text)
        return text;
    return cudaGetErrorName(error);
}
