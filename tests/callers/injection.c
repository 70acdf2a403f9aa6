/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver loads within cuInit (CUDA_INJECTION64_PATH), as profilers are: it calls cuInit. */
#include <cuda.h>

int InitializeInjection(void);
int InitializeInjection(void)
{
    return cuInit(0) == CUDA_SUCCESS;
}
