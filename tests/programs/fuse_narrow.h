/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of fuse_narrow: the case, its sizes, memory and data, and its call of cublasLtMatmul. */
#ifndef TESTS_E2E_FUSE_NARROW_H
#define TESTS_E2E_FUSE_NARROW_H

#include <cublasLt.h>
#include "fuse.h"

#define E4M3 CUDA_R_8F_E4M3
#define E5M2 CUDA_R_8F_E5M2
#define BF16 CUDA_R_16BF
#define FP32 CUDA_R_32F
enum scaling { NONE, TENSOR, ROWS, LINES, SQUARES, TILES }; /* of X; LINES: by 128, W by squares; SQUARES: W by lines */
/* Where X's factors come from. BEHIND, BEFORE: gathered on the same communicator and stream. ELSEWHERE: on others, and
 * late. OF_LARGE: given; a small gather of what the large one brings stands between it and the GEMM. */
enum scales { GIVEN, BEFORE, BEHIND, ELSEWHERE, OF_LARGE };
enum { WORKSPACE = 1 << 20 };

struct narrow_case {
    const char *name;
    enum form form;
    cudaDataType x, w, d;
    int64_t cols, other, k;
    enum scaling scaling;
    enum scales scales;
    uint32_t epilogue;
    bool d_scale, amax, asked, in_place, fast;
    double beta;          /* of a C of its own, bf16 beside 8-bit operands; in form A/N of D */
    bool c_is_d;          /* beta's C is D */
    bool alpha_on_device; /* and beta */
};
/* Sizes in elements, but for scale factors and `aux`: bytes. */
struct shape {
    int64_t total, m, n, inner, aux_ld;
    size_t shard, x, w, d, sx, sw, sx_shard, aux, vector;
    cudaDataType c; /* C's type */
    bool on_a, sums;
};

/* What one call writes. */
struct output {
    char *d, *aux, *vector, *amax;
};
struct memory {
    char *send, *recv, *w, *c, *sx, *sx_send, *sw, *sd, *bias, *workspace, *scalars, *side;
    struct output fused, whole;
};

/* fuse_narrow_data.c */
size_t elem_of(cudaDataType type);
void put_value(cudaDataType type, void *p, size_t i, float v);
bool narrow(const struct narrow_case *c);
enum scaling of_w(enum scaling of_x);
struct shape shape_of(const struct narrow_case *c, int nranks);
struct memory allocate(const struct narrow_case *c, const struct shape *s);
void release(const struct memory *mem);

/* New data and poison, by the seed. */
void load(const struct rank *r, const struct narrow_case *c, const struct shape *s, const struct memory *mem,
          uint64_t seed);

/* D as it must be, for epilogues without auxiliary input. */
float expected(const struct narrow_case *c, const struct shape *s, uint64_t seed, int64_t row, int64_t col);

/* fuse_narrow_call.c: with descriptors of its own. */
void matmul(const struct narrow_case *c, const struct shape *s, const struct memory *mem, cublasLtHandle_t h,
            const struct output *o, cudaStream_t stream);

#endif
