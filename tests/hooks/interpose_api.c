/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL, cuBLAS and cuBLASLt hooks: found in every way, off when they have to be, and with their arguments as the
 * caller gave them. Run under the recording library with the fake libraries on the library path. Argument: on, off
 * (SLIPRING_ENABLE=off), absent (no libraries loaded). */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <nccl.h>
#include <string.h>
#include "base/real.h"
#include "check.h"
#include "fake/recorder.h"
#include "plugin/calls/calls.h"
#include "plugin/fuse/fuse.h"
#include "plugin/lifecycle/lifecycle.h"

static const char *(*hook)(void);
static const struct slr_gemm *(*gemm)(void);
static const char *(*nccl_called)(void), *(*cublas_called)(void), *(*cublaslt_called)(void);
static slr_test_pending_t set_pending;
static slr_test_guard_t set_guard;

static void *exported(const char *name)
{
    void *p = dlsym(RTLD_DEFAULT, name);
    CHECK_FOR(name, p != NULL);
    return p;
}

#define FUNCTION(name) ((__typeof__(&name))exported(#name))
#define IS(a, b) CHECK_FOR(b, strcmp(a, b) == 0)

static void check_lookup(void *nccl, void *cublas, void *cublaslt)
{
#define N(need, sym)                                                                                                   \
    CHECK_FOR(#sym, dlsym(nccl, #sym) == NULL || dlsym(nccl, #sym) == exported(#sym));                                 \
    CHECK_FOR("p" #sym, dlsym(nccl, "p" #sym) == NULL || dlsym(nccl, "p" #sym) != exported(#sym));
#define B(need, sym) CHECK_FOR(#sym, dlsym(cublas, #sym) == NULL || dlsym(cublas, #sym) == exported(#sym));
#define T(need, sym) CHECK_FOR(#sym, dlsym(cublaslt, #sym) == exported(#sym));
#include "base/hooks.def"
    CHECK(dlsym(nccl, "ncclAllGather") == exported("ncclAllGather"));
    CHECK(dlsym(nccl, "ncclCommShrink") == NULL);
    CHECK(dlsym(cublas, "cublasSgemm_v2") == exported("cublasSgemm_v2"));
}

/* `called`: the hook that has to be seen, "" when the call has to go straight to NCCL. */
static void nccl_seen(const char *called, const char *real)
{
    IS(hook(), called);
    IS(nccl_called(), real);
}

static void check_nccl(bool on)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    for (size_t i = 0; i < sizeof(id.internal); i++)
        id.internal[i] = (char)i;
    CHECK(FUNCTION(ncclCommInitRank)(&comm, 4, id, 3) == ncclInProgress);
    CHECK(comm == (ncclComm_t)&comm);
    nccl_seen(on ? "slr_comm_init_rank" : "", "ncclCommInitRank");
    CHECK(FUNCTION(ncclCommInitRankConfig)(&comm, 4, id, 3, NULL) == ncclInProgress);
    nccl_seen(on ? "slr_comm_init_rank_config" : "", "ncclCommInitRankConfig");

#define SEES(fn, ours, ...)                                                                                            \
    do {                                                                                                               \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == ncclInProgress);                                                            \
        nccl_seen(on ? ours : "", #fn);                                                                                \
        set_guard(1);                                                                                                  \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == ncclInProgress);                                                            \
        nccl_seen("", #fn);                                                                                            \
        set_guard(0);                                                                                                  \
    } while (0)
    SEES(ncclCommInitAll, "slr_comm_init_all", &comm, 1, NULL);
    SEES(ncclCommSplit, "slr_comm_split", comm, 0, 0, &comm, NULL);
    SEES(ncclGetUniqueId, "slr_get_unique_id", &id);
    SEES(ncclCommGetUniqueId, "slr_comm_get_unique_id", comm, &id);
    SEES(ncclCommGrow, "slr_comm_grow", comm, 2, &id, -1, &comm, NULL);
    SEES(ncclCommFinalize, "slr_comm_finalize", comm);
    SEES(ncclCommDestroy, "slr_comm_destroy", comm);
    SEES(ncclCommAbort, "slr_comm_abort", comm);
    SEES(ncclCommSuspend, "slr_comm_suspend", comm, 1);
    SEES(ncclCommGetAsyncError, "slr_comm_get_async_error", comm, NULL);
    SEES(ncclAllGather, "slr_all_gather", NULL, NULL, 1, ncclInt8, comm, NULL);
    SEES(ncclReduceScatter, "slr_reduce_scatter", NULL, NULL, 1, ncclInt8, ncclSum, comm, NULL);
    SEES(ncclAllReduce, "slr_all_reduce", NULL, NULL, 1, ncclInt8, ncclSum, comm, NULL);
    SEES(ncclAllGatherConfig, "slr_all_gather", NULL, NULL, 1, ncclInt8, comm, NULL, (void *)&id);
    SEES(ncclReduceScatterConfig, "slr_reduce_scatter", NULL, NULL, 1, ncclInt8, ncclSum, comm, NULL, (void *)&id);
    /* What has none of the ring's forms: noticed. */
    SEES(ncclReduceConfig, "slr_other_begin", NULL, NULL, 1, ncclInt8, ncclSum, 0, comm, NULL, NULL);
    SEES(ncclPutSignal, "slr_other_begin", NULL, 1, ncclInt8, 1, NULL, 0, 0, 0, 0, comm, NULL);
    SEES(ncclSignal, "slr_other_begin", 1, 0, 0, 0, comm, NULL);
    SEES(ncclWaitSignal, "slr_other_begin", 0, NULL, comm, NULL);
    /* Without: the plain call. */
    CHECK(FUNCTION(ncclAllGatherConfig)(NULL, NULL, 1, ncclInt8, comm, NULL, NULL) == ncclInProgress);
    nccl_seen(on ? "slr_all_gather" : "", on ? "ncclAllGather" : "ncclAllGatherConfig");
    SEES(ncclGroupStart, "slr_group_start", );
    SEES(ncclGroupEnd, "slr_group_end", );

    CHECK(FUNCTION(ncclCommShrink)(comm, NULL, 0, &comm, NULL, 0) == ncclInternalError);
    CHECK(FUNCTION(ncclGroupSimulateEnd)(NULL) == ncclInternalError);
    nccl_seen("", "");
}

static struct {
    int alpha, beta, a, b, c, handle;
} at;
#define HANDLE ((cublasHandle_t)&at.handle)
#define SHAPE HANDLE, CUBLAS_OP_T, CUBLAS_OP_N, 2, 3, 4
#define P(x) ((void *)&at.x)

static const struct slr_gemm plain = {.handle = (cublasHandle_t)&at.handle,
                                      .transa = CUBLAS_OP_T,
                                      .transb = CUBLAS_OP_N,
                                      .m = 2,
                                      .n = 3,
                                      .k = 4,
                                      .alpha = &at.alpha,
                                      .beta = &at.beta,
                                      .a = &at.a,
                                      .b = &at.b,
                                      .c = &at.c,
                                      .lda = 5,
                                      .ldb = 6,
                                      .ldc = 7,
                                      .batch = 1};

static void gemm_is(const char *name, enum slr_gemm_api api, cudaDataType type, bool ex, bool strided)
{
    struct slr_gemm want = plain;
    const struct slr_gemm *g = gemm();
    want.api = api;
    want.atype = want.btype = want.ctype = type;
    if (ex) {
        want.btype = CUDA_R_16BF;
        want.ctype = CUDA_R_32F;
        want.compute = CUBLAS_COMPUTE_32F;
        want.algo = CUBLAS_GEMM_DEFAULT_TENSOR_OP;
    }
    if (strided) {
        want.stride_a = 80;
        want.stride_b = 90;
        want.stride_c = (int64_t)1 << 40;
        want.batch = 8;
    }
#define SAME(field) CHECK_FOR(name, g->field == want.field)
    SAME(api), SAME(handle), SAME(transa), SAME(transb), SAME(m), SAME(n), SAME(k), SAME(alpha), SAME(beta), SAME(a);
    SAME(b), SAME(c), SAME(atype), SAME(btype), SAME(ctype), SAME(lda), SAME(ldb), SAME(ldc), SAME(stride_a);
    SAME(stride_b), SAME(stride_c), SAME(batch), SAME(compute), SAME(algo);
}

/* Pending: the plugin gets it. Nothing pending, or guarded: cuBLAS does. */
#define GEMM(fn, api, type, ex, strided, ...)                                                                          \
    do {                                                                                                               \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == CUBLAS_STATUS_NOT_SUPPORTED);                                               \
        IS(hook(), "");                                                                                                \
        IS(cublas_called(), #fn);                                                                                      \
        set_pending(1);                                                                                                \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == CUBLAS_STATUS_SUCCESS);                                                     \
        IS(hook(), "slr_gemm_call");                                                                                   \
        IS(cublas_called(), "");                                                                                       \
        gemm_is(#fn, api, type, ex, strided);                                                                          \
        set_guard(1);                                                                                                  \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == CUBLAS_STATUS_NOT_SUPPORTED);                                               \
        IS(hook(), "");                                                                                                \
        IS(cublas_called(), #fn);                                                                                      \
        set_guard(0);                                                                                                  \
        set_pending(0);                                                                                                \
    } while (0)
#define PLAIN SHAPE, P(alpha), P(a), 5, P(b), 6, P(beta), P(c), 7
#define EX                                                                                                             \
    SHAPE, P(alpha), P(a), CUDA_R_16F, 5, P(b), CUDA_R_16BF, 6, P(beta), P(c), CUDA_R_32F, 7, CUBLAS_COMPUTE_32F,      \
        CUBLAS_GEMM_DEFAULT_TENSOR_OP
#define STRIDED                                                                                                        \
    SHAPE, P(alpha), P(a), CUDA_R_16F, 5, 80, P(b), CUDA_R_16BF, 6, 90, P(beta), P(c), CUDA_R_32F, 7, 1LL << 40, 8,    \
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP

static void check_cublas(void)
{
    GEMM(cublasSgemm_v2, SLR_GEMM_S, CUDA_R_32F, false, false, PLAIN);
    GEMM(cublasSgemm_v2_64, SLR_GEMM_S_64, CUDA_R_32F, false, false, PLAIN);
    GEMM(cublasDgemm_v2, SLR_GEMM_D, CUDA_R_64F, false, false, PLAIN);
    GEMM(cublasDgemm_v2_64, SLR_GEMM_D_64, CUDA_R_64F, false, false, PLAIN);
    GEMM(cublasHgemm, SLR_GEMM_H, CUDA_R_16F, false, false, PLAIN);
    GEMM(cublasHgemm_64, SLR_GEMM_H_64, CUDA_R_16F, false, false, PLAIN);
    GEMM(cublasGemmEx, SLR_GEMM_EX, CUDA_R_16F, true, false, EX);
    GEMM(cublasGemmEx_64, SLR_GEMM_EX_64, CUDA_R_16F, true, false, EX);
    GEMM(cublasGemmStridedBatchedEx, SLR_GEMM_STRIDED_EX, CUDA_R_16F, true, true, STRIDED);
    /* not in this cuBLAS */
    CHECK(FUNCTION(cublasGemmStridedBatchedEx_64)(STRIDED) == CUBLAS_STATUS_NOT_INITIALIZED);
}

/* What has been set is told whether something is pending or not, as GEMMs that come later want to know. */
#define SET(fn, status, ours, ...)                                                                                     \
    do {                                                                                                               \
        CHECK(FUNCTION(fn)(__VA_ARGS__) == CUBLAS_STATUS_##status);                                                    \
        IS(cublas_called(), #fn);                                                                                      \
        IS(hook(), on ? ours : "");                                                                                    \
    } while (0)

static void check_workspace(bool on)
{
    SET(cublasSetWorkspace_v2, SUCCESS, "slr_workspace_set", HANDLE, P(a), 3);
    CHECK(!on || (gemm()->handle == HANDLE && gemm()->written[0].begin == (uintptr_t)P(a)));
    CHECK(!on || gemm()->written[0].end == (uintptr_t)P(a) + 3);
    SET(cublasSetWorkspace_v2, NOT_INITIALIZED, "", NULL, P(a), 3);
    SET(cublasSetStream_v2, SUCCESS, "slr_workspace_reset", HANDLE, NULL);
    SET(cublasSetStream_v2, NOT_INITIALIZED, "", NULL, NULL);
    set_guard(1);
    SET(cublasSetStream_v2, SUCCESS, "slr_workspace_reset", HANDLE, NULL);
    set_guard(0);
    SET(cublasDestroy_v2, NOT_SUPPORTED, "slr_workspace_forget", HANDLE);
}

static struct {
    int desc, la, lb, lc, ld, d, workspace;
    cublasLtMatmulAlgo_t algo;
} lt_at;
#define LT(x) ((void *)&lt_at.x)
#define MATMUL                                                                                                         \
    (cublasLtHandle_t) HANDLE, LT(desc), P(alpha), P(a), LT(la), P(b), LT(lb), P(beta), P(c), LT(lc), LT(d), LT(ld),   \
        &lt_at.algo, LT(workspace), 4096, (cudaStream_t)&lt_at

static void check_cublaslt(void)
{
    CHECK(FUNCTION(cublasLtMatmul)(MATMUL) == CUBLAS_STATUS_NOT_SUPPORTED);
    IS(hook(), "");
    IS(cublaslt_called(), "cublasLtMatmul");
    set_pending(1);
    CHECK(FUNCTION(cublasLtMatmul)(MATMUL) == CUBLAS_STATUS_SUCCESS);
    IS(hook(), "slr_gemm_call");
    IS(cublaslt_called(), "");
    const struct slr_gemm *g = gemm();
    const struct slr_lt *lt = g->lt;
    CHECK(g->api == SLR_GEMM_LT && g->alpha == P(alpha) && g->beta == P(beta));
    CHECK(g->a == P(a) && g->b == P(b) && g->c == LT(d));
    CHECK(lt->handle == (cublasLtHandle_t)HANDLE && lt->desc == LT(desc) && lt->c == P(c));
    CHECK(lt->la == LT(la) && lt->lb == LT(lb) && lt->lc == LT(lc) && lt->ld == LT(ld));
    CHECK(lt->algo == &lt_at.algo && lt->workspace == LT(workspace) && lt->workspace_bytes == 4096);
    CHECK(lt->stream == (cudaStream_t)&lt_at);
    set_guard(1);
    CHECK(FUNCTION(cublasLtMatmul)(MATMUL) == CUBLAS_STATUS_NOT_SUPPORTED);
    IS(hook(), "");
    IS(cublaslt_called(), "cublasLtMatmul");
    set_guard(0);
    set_pending(0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    hook = (const char *(*)(void))exported("slr_test_hook");
    gemm = (const struct slr_gemm *(*)(void))exported("slr_test_gemm");
    set_pending = (slr_test_pending_t)exported("slr_test_pending");
    set_guard = (slr_test_guard_t)exported("slr_test_guard");

    CHECK(FUNCTION(ncclGroupStart)() == ncclInternalError);
    CHECK(FUNCTION(cublasSgemm_v2)(PLAIN) == CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(FUNCTION(cublasLtMatmul)(MATMUL) == CUBLAS_STATUS_NOT_INITIALIZED);
    if (strcmp(argv[1], "absent") == 0)
        return 0;
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *cublas = dlopen("libcublas.so.13", RTLD_NOW),
         *cublaslt = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    CHECK_FOR(dlerror(), nccl && cublas && cublaslt);
    nccl_called = (const char *(*)(void))dlsym(nccl, "fake_nccl_last");
    cublas_called = (const char *(*)(void))dlsym(cublas, "fake_cublas_last");
    cublaslt_called = (const char *(*)(void))dlsym(cublaslt, "fake_cublaslt_last");
    check_lookup(nccl, cublas, cublaslt);
    check_nccl(strcmp(argv[1], "on") == 0);
    check_cublas();
    check_workspace(strcmp(argv[1], "on") == 0);
    check_cublaslt();
    return 0;
}
