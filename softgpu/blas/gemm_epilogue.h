/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM's epilogue, on one panel of columns after the other. */
#ifndef SOFTGPU_GEMM_EPILOGUE_H
#define SOFTGPU_GEMM_EPILOGUE_H

#include "gemm.h"

struct panel {
    const void *acc; /* m x cols, packed */
    int wide;        /* of doubles, else floats */
    const char *c, *bias;
    char *d, *aux;
    int64_t col, cols;
    double alpha, beta;
    double *gradient; /* m sums over the columns; or NULL */
    float amax_d, amax_aux;
};

void gemm_write_scalar(cudaDataType type, void *p, double v);

/* beta == 0 must not read C: it may hold NaN or not be there at all. */
void gemm_finish_panel(const struct gemm_args *g, struct panel *p);

/* The gradient vector of BGRADA or BGRADB: the sums of op(A)'s rows or op(B)'s columns. */
void gemm_operand_gradient(const struct gemm_args *g);

#endif
