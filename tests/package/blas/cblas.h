/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of OpenBLAS that the software GPU uses, where there is no OpenBLAS (../aarch64.sh). Slow. Column order. */
#ifndef MATRIX_CBLAS_H
#define MATRIX_CBLAS_H

typedef enum CBLAS_ORDER { CblasColMajor = 102 } CBLAS_ORDER;
typedef enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 } CBLAS_TRANSPOSE;

void openblas_set_num_threads(int threads);
void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_dgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, int m, int n, int k,
                 double alpha, const double *a, int lda, const double *b, int ldb, double beta, double *c, int ldc);

#endif
