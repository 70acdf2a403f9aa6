/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt that does nothing but note that a function was called. */
#include <cublasLt.h>

const char *fake_cublaslt_last(void);
static _Thread_local const char *last = "";

const char *fake_cublaslt_last(void)
{
    const char *name = last;
    last = "";
    return name;
}

#define T(need, name)                                                                                                  \
    cublasStatus_t name##_called(void) __asm__(#name);                                                                 \
    cublasStatus_t name##_called(void)                                                                                 \
    {                                                                                                                  \
        last = #name;                                                                                                  \
        return CUBLAS_STATUS_NOT_SUPPORTED; /* a result that no wrapper makes up */                                    \
    }
#define D(need, name)
#define N(need, name)
#define B(need, name)
#include "base/real.def"
