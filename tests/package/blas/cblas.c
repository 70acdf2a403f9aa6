/* SPDX-License-Identifier: Apache-2.0 */
#include "cblas.h"

#include <stddef.h>

#define AT(p, trans, ld, row, col)                                                                                     \
    ((p)[(trans) == CblasNoTrans ? (row) + (col) * (size_t)(ld) : (col) + (row) * (size_t)(ld)])
#define GEMM(name, real)                                                                                               \
    void name(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, int m, int n, int k,           \
              real alpha, const real *a, int lda, const real *b, int ldb, real beta, real *c, int ldc)                 \
    {                                                                                                                  \
        (void)order;                                                                                                   \
        for (size_t j = 0; j < (size_t)n; j++)                                                                         \
            for (size_t i = 0; i < (size_t)m; i++) {                                                                   \
                real sum = 0, *out = &c[i + j * (size_t)ldc];                                                          \
                for (size_t l = 0; l < (size_t)k; l++)                                                                 \
                    sum += AT(a, ta, lda, i, l) * AT(b, tb, ldb, l, j);                                                \
                *out = alpha * sum + (beta == 0 ? 0 : beta * *out);                                                    \
            }                                                                                                          \
    }

void openblas_set_num_threads(int threads)
{
    (void)threads;
}

GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)
