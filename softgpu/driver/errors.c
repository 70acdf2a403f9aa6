/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetErrorName and cuGetErrorString: usable before cuInit. */
#include "sg.h"

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define SG_ERROR(code, text) {code, #code, text},
#include "errors.def"
#undef SG_ERROR
};

static int find(CUresult error)
{
    for (int i = 0; i < (int)(sizeof(errors) / sizeof(errors[0])); i++)
        if (errors[i].code == error)
            return i;
    return -1;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **pStr)
{
    int i = find(error);
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = i < 0 ? NULL : errors[i].name;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **pStr)
{
    int i = find(error);
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = i < 0 ? NULL : errors[i].text;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
