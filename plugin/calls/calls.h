/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls, as the hooks of interpose/ hand them over: all-gathers, groups, and all others.
 *
 * The folder puts the others together and is used by interpose/ only. This header is its door;
 * collective.h is for the folder alone. It may use every other folder of plugin/.
 *
 * Each function does what the vendor's function of the like name promises, including the call to
 * the real one, and returns its result. Vendor argument checking stays the vendor's: bad arguments
 * are passed on. Called with slr_guard == 0 by the application's thread; they raise the guard
 * around vendor calls themselves.
 */
#ifndef SLR_PLUGIN_CALLS_CALLS_H
#define SLR_PLUGIN_CALLS_CALLS_H

#include "base/real.h"
#include "plugin/abi/nccl_common.h"

/* Those that the ring can have. `config` NULL: the function that takes none. */
ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t slr_reduce_scatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

ncclResult_t slr_all_reduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);

/* Another operation, which goes to NCCL. Before the real call: in a group its stream synchronises
 * with the gathers of its communicator; else it may be one that is measured (timeline.h). `r` is
 * what the real call returned, and so is what slr_other_end returns. */
struct slr_other {
    enum slr_nccl_func func;
    size_t count;
    ncclDataType_t type;
    ncclComm_t comm;
    cudaStream_t stream;
    struct slr_comm *tracked; /* held between the two, with the guard up; NULL: not measured */
    struct slr_timed *timed;  /* NULL: not this one */
    int outer;                /* of slr_program_begin, if tracked */
};
void slr_other_begin(struct slr_other *o);
ncclResult_t slr_other_end(struct slr_other *o, ncclResult_t r);

/* ncclGroupStart, ncclGroupEnd and ncclGroupSimulateEnd: see group.c. */
ncclResult_t slr_group_start(void);
ncclResult_t slr_group_end(void);
ncclResult_t slr_group_simulate_end(ncclSimInfo_t *info);

/* Another function of NCCL's is about to be called, which a group orders with its calls: collective.h. Outside of
 * groups it does nothing. */
void slr_group_goes_on(void);

#endif
