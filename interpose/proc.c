/* The driver's own look-up. The real one answers, with all that versions and flags mean to it; then the function that
 * it found is exchanged for its wrapper. */
#include <errno.h>
#include <stddef.h>
#include "base/real.h"
#include "interpose/gate.h"
#include "interpose/resolve.h"
#include "interpose/wrappers.h"

#undef cuGetProcAddress /* cuda.h: cuGetProcAddress_v2 */
SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);

static CUresult exchange(CUresult result, const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    int saved = errno;
    void *wrapper = NULL;
    if (result == CUDA_SUCCESS && symbol && pfn && *pfn) {
        wrapper = slr_wrapper_by_address(*pfn);
        if (!wrapper)
            wrapper =
                slr_gate_spare(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, *pfn);
    }
    if (wrapper)
        *pfn = wrapper;
    errno = saved;
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
    return real ? exchange(real(symbol, pfn, version, flags), symbol, pfn, version, flags) : without();
}

SLR_API
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    __typeof__(&cuGetProcAddress_v2) real;
    real = slr_find_cuda() ? (__typeof__(real))slr_real_cuGetProcAddress_v2 : NULL;
    return real ? exchange(real(symbol, pfn, version, flags, status), symbol, pfn, version, flags) : without();
}

SLR_HOOK_NAME(cuGetProcAddress);
SLR_HOOK_NAME(cuGetProcAddress_v2);
