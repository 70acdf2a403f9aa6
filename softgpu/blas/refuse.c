/* SPDX-License-Identifier: Apache-2.0 */
/* SOFTGPU_REFUSE_GEMM="N", "N+", "N=STATUS": the N-th GEMM of the process (N+: and all from then on), of cuBLAS and
 * cuBLASLt together, is answered with STATUS instead of being enqueued; without one with NOT_SUPPORTED. */
#include "gemm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    long n;
    int from;
    cublasStatus_t status;
} refused;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_long calls;

static void load(void)
{
    const char *text = getenv("SOFTGPU_REFUSE_GEMM");
    char *end = NULL;
    refused.status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!text)
        return;
    refused.n = strtol(text, &end, 10);
    refused.from = *end == '+';
    end += refused.from;
    if (*end == '=')
        refused.status = (cublasStatus_t)strtol(end + 1, NULL, 10);
}

cublasStatus_t gemm_refused(void)
{
    pthread_once(&once, load);
    long call = atomic_fetch_add(&calls, 1) + 1;
    return call == refused.n || (refused.from && call > refused.n) ? refused.status : CUBLAS_STATUS_SUCCESS;
}
