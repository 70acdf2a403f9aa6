/* The driver's own look-up. The real one answers, with all that versions and flags mean to it; then the function that
 * it found is exchanged for its wrapper. */
#include <errno.h>
#include <stddef.h>
#include "base/real.h"
#include "interpose/resolve.h"
#include "interpose/wrappers.h"

#undef cuGetProcAddress /* cuda.h: cuGetProcAddress_v2 */
SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);

static CUresult exchange(CUresult result, void **pfn)
{
    void *wrapper = result == CUDA_SUCCESS && pfn && *pfn ? slr_wrapper_by_address(*pfn) : NULL;
    if (wrapper)
        *pfn = wrapper;
    return result;
}

static CUresult without(void)
{
    return slr_find_cuda() ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_INITIALIZED;
}

SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    __typeof__(&cuGetProcAddress) real;
    real = slr_find_cuda() ? (__typeof__(real))slr_real_cuGetProcAddress : NULL;
    return real ? exchange(real(symbol, pfn, version, flags), pfn) : without();
}

SLR_API
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    __typeof__(&cuGetProcAddress_v2) real;
    real = slr_find_cuda() ? (__typeof__(real))slr_real_cuGetProcAddress_v2 : NULL;
    return real ? exchange(real(symbol, pfn, version, flags, status), pfn) : without();
}

SLR_HOOK_NAME(cuGetProcAddress);
SLR_HOOK_NAME(cuGetProcAddress_v2);
