/* What the NCCL and cuBLAS hooks of interpose/ call. Each function does what the vendor's function of the like name
 * promises, including the call to the real one, and returns its result. Vendor argument checking stays the vendor's:
 * bad arguments are passed on.
 *
 * Called with slr_guard == 0 by the application's thread; they raise the guard around vendor calls themselves.
 */
#ifndef SLR_PLUGIN_COMM_HOOKS_H
#define SLR_PLUGIN_COMM_HOOKS_H

#include "base/real.h"
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "plugin/abi/nccl_common.h"

ncclResult_t slr_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                bool with_config);
ncclResult_t slr_comm_init_rank_scalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                         ncclConfig_t *config);
ncclResult_t slr_comm_init_all(ncclComm_t *comms, int ndev, const int *devlist);
ncclResult_t slr_comm_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t slr_comm_shrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                             int flags);
ncclResult_t slr_comm_finalize(ncclComm_t comm);
ncclResult_t slr_comm_destroy(ncclComm_t comm);
ncclResult_t slr_comm_abort(ncclComm_t comm);
ncclResult_t slr_comm_revoke(ncclComm_t comm, int flags);
ncclResult_t slr_comm_get_async_error(ncclComm_t comm, ncclResult_t *error);
ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream);

/* Buffers that the application registers (registered.h). */
ncclResult_t slr_comm_register(const ncclComm_t comm, void *buffer, size_t bytes, void **handle);
ncclResult_t slr_comm_deregister(const ncclComm_t comm, void *handle);
ncclResult_t slr_comm_window_register(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags);
ncclResult_t slr_comm_window_deregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t slr_mem_alloc(void **p, size_t bytes);
ncclResult_t slr_mem_free(void *p);

/* Another operation, which goes to NCCL. Before the real call: in a group its stream synchronises with the gathers of
 * its communicator; else it may be one that is measured (trace.h). `r` is what the real call returned, and so is what
 * slr_other_end returns. */
struct slr_other {
    enum slr_nccl_func func;
    size_t count;
    ncclDataType_t type;
    ncclComm_t comm;
    cudaStream_t stream;
    struct slr_comm *tracked; /* held between the two calls, and the guard is up; NULL: not measured */
    struct slr_timed *timed;  /* NULL: not this one */
};
void slr_other_begin(struct slr_other *o);
ncclResult_t slr_other_end(struct slr_other *o, ncclResult_t r);

ncclResult_t slr_group_start(void);
ncclResult_t slr_group_end(void);
ncclResult_t slr_group_simulate_end(ncclSimInfo_t *info);

/* Runs the GEMM: fused with the pending gather that it consumes, else joined and whole. Interpose calls it only when
 * something is pending (slr_gate_word != 0); otherwise it calls the real function at once. Of cublasLtMatmul the call
 * is completed (slr_gemm_describe). */
cublasStatus_t slr_gemm_call(struct slr_gemm *gemm);

/* Start and end of the process's part: called once, before the first communicator function and at unload or exit. */
void slr_plugin_at_exit(void);

/* In the child after fork: slipring stays off there (CUDA does not survive a fork either). */
void slr_plugin_after_fork_child(void);

#endif
