/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs in graphs: they read their operands, and the scalars' values of the call, at each replay. */
#include "gemm_case.h"

#include <criterion/criterion.h>
#include <cublasLt.h>

#define N 4 /* matrices of N x N */
#define BYTES (N * N * sizeof(float))

static struct cu cu;
static CUstream stream;
static cublasHandle_t handle;

static void setup(void)
{
    cu = cu_load();
    cu_use(&cu, 0);
    cr_assert_eq(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    cr_assert_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
}

TestSuite(graph, .init = setup, .timeout = 60);

static float *matrix(void)
{
    CUdeviceptr p;
    cr_assert_eq(cu.cuMemAlloc(&p, BYTES), 0);
    return (float *)p;
}

static void set(float *m, float value)
{
    float host[N * N];
    for (int i = 0; i < N * N; i++)
        host[i] = value;
    cr_assert_eq(cu.cuMemcpyHtoD((CUdeviceptr)m, host, BYTES), 0);
    cr_assert_eq(cu.cuStreamSynchronize(NULL), 0); /* the other stream does not wait for it */
}

static void expect(const float *m, float value)
{
    float host[N * N];
    cr_assert_eq(cu.cuMemcpyDtoH(host, (CUdeviceptr)m, BYTES), 0);
    for (int i = 0; i < N * N; i++)
        cr_assert_eq(host[i], value);
}

static void begin(void)
{
    cr_assert_eq(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
}

static CUgraphExec end(size_t nodes)
{
    CUgraphExec x;
    CUgraph g;
    size_t n = 0;
    cr_assert_eq(cu.cuStreamEndCapture(stream, &g), 0);
    cr_assert_eq(cu.cuGraphGetNodes(g, NULL, &n), 0);
    cr_assert_eq(n, nodes);
    cr_assert_eq(cu.cuGraphInstantiateWithFlags(&x, g, 0), 0);
    cr_assert_eq(cu.cuGraphDestroy(g), 0);
    return x;
}

static void replay(CUgraphExec x)
{
    cr_assert_eq(cu.cuGraphLaunch(x, stream), 0);
    cr_assert_eq(cu.cuStreamSynchronize(stream), 0);
}

Test(graph, chained_gemms_read_their_operands_at_each_replay)
{
    float *a = matrix(), *b = matrix(), *c = matrix(), *d = matrix();
    float alpha = 2, zero = 0, one = 1;
    begin();
    cr_assert_eq(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, a, N, b, N, &zero, c, N),
                 CUBLAS_STATUS_SUCCESS);
    alpha = 99; /* the call has its value */
    cr_assert_eq(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, N, N, N, &one, c, N, b, N, &zero, d, N),
                 CUBLAS_STATUS_SUCCESS);
    CUgraphExec x = end(2);
    for (int i = 1; i <= 3; i++) {
        set(a, (float)i);
        set(b, 3);
        replay(x);
        expect(c, 2 * (float)i * 3 * N);
        expect(d, 2 * (float)i * 3 * N * 3 * N);
    }
}

Test(graph, a_matmul_with_a_workspace_is_captured_too)
{
    float *a = matrix(), *b = matrix(), *c = matrix(), one = 1, zero = 0;
    cublasLtMatmulHeuristicResult_t results[8];
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulDesc_t desc;
    cublasLtHandle_t lt;
    CUdeviceptr workspace;
    size_t room = 1 << 20;
    int found = 0;
    cr_assert_eq(cublasLtCreate(&lt), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuMemAlloc(&workspace, room), 0);
    cr_assert_eq(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, N, N, N), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    cr_assert_eq(
        cublasLtMatmulAlgoGetHeuristic(lt, desc, layout, layout, layout, layout, preference, 8, results, &found),
        CUBLAS_STATUS_SUCCESS);
    cr_assert_gt(found, 0);
    begin();
    for (int i = 0; i < found; i++)
        cr_assert_eq(cublasLtMatmul(lt, desc, &one, a, layout, b, layout, &zero, c, layout, c, layout, &results[i].algo,
                                    (void *)workspace, room, stream),
                     CUBLAS_STATUS_SUCCESS);
    CUgraphExec x = end((size_t)found);
    for (int i = 1; i <= 3; i++) {
        set(a, (float)i);
        set(b, 5);
        replay(x);
        expect(c, (float)i * 5 * N);
    }
}
