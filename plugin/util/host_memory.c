/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/util/host_memory.h"

#include <stdlib.h>

#define PAGE ((size_t)4096)

enum slr_status slr_host_memory(void **host, CUdeviceptr *at, size_t bytes)
{
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    *host = aligned_alloc(PAGE, whole);
    enum slr_status s =
        *host ? SLR_CU(cuMemHostRegister, *host, whole, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE)
              : SLR_NOMEM;
    if (s == SLR_OK) {
        s = SLR_CU(cuMemHostGetDevicePointer, at, *host, 0);
        if (s == SLR_OK)
            return SLR_OK;
        slr_real.cuMemHostUnregister(*host);
    }
    free(*host);
    *host = NULL;
    *at = 0;
    return s;
}

void slr_host_memory_free(void *host)
{
    slr_cu_status(slr_real.cuMemHostUnregister(host), "cuMemHostUnregister");
    free(host);
}
