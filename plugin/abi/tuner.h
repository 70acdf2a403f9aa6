/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's tuner interfaces, as this library declares them. One struct each version; NCCL looks up `ncclTunerPlugin_vN`
 * and takes the highest that it knows:
 *
 *   v2  NCCL 2.21        v3  2.22 (cost table)        v4  2.24 (registered buffers)
 *   v5  2.28 (communicator id, NVLink domains, constants of the cost model; destroy is called finalize)
 *   v6  2.30 (chunk size)
 *
 * NCCL 2.22 and later serve the older ones too. Facts that the headers do not say, from NCCL's sources (2.28.9):
 *
 * - init is called once for each communicator, before it has been used, on a thread of NCCL's; finalize when it ends.
 * - getCollInfo is called by every rank for every collective (those of one group and size class together), in the order
 * of the calls. Its error fails the application's call, whatever the documentation says; so none is ever returned.
 * - collCostTable is float[numAlgo][numProto], microseconds, and passed as float**. A negative entry (-1) can not be
 *   used and must stay. The smallest entry that is not negative wins, so 0 chooses one.
 * - nChannels is 0 on entry; 0 leaves it to NCCL. More than the communicator has is cut, except for CollNet
 *   algorithms, where it is not checked.
 * - Every rank must answer alike, or the communicator hangs. */
#ifndef SLR_PLUGIN_ABI_TUNER_H
#define SLR_PLUGIN_ABI_TUNER_H

#include "plugin/abi/nccl_common.h"

#define SLR_COST_IGNORE (-1.0f)

struct slr_nvl_domains {
    int domains;
    int min_ranks, max_ranks; /* in one domain */
};

/* The constants of NCCL's cost model; a tuner may change them in init. Latencies in microseconds, bandwidths in
 * GB/s. */
struct slr_tuner_constants {
    double base_latency[7][3];  /* [algorithm][protocol] */
    double hw_latency[3][7][3]; /* [NVLink, PCI, network] */
    double ll_max_bw[4][3];     /* [Volta, Ampere, Hopper, Blackwell][1, 2, 4 nodes]; so are the next */
    double ring_ll128_bw[4][3]; /* per channel, as the next */
    double tree_ll128_bw[4][3];
    double tree_bw[4][3];
    double nvls_tree_bw[4][3];
};

#define SLR_TUNER_INIT_V2 size_t nranks, size_t nnodes, slr_nccl_logger log, void **context
#define SLR_TUNER_INIT_V5                                                                                              \
    void **context, uint64_t comm_id, size_t nranks, size_t nnodes, slr_nccl_logger log,                               \
        struct slr_nvl_domains *domains, struct slr_tuner_constants *constants
/* algorithm and protocol: -1 (as on entry) leaves both to NCCL. */
#define SLR_TUNER_ASK_V2                                                                                               \
    void *context, enum slr_nccl_func func, size_t bytes, int collnet, int nvls, int pipe_ops, int *algorithm,         \
        int *protocol, int *channels
#define SLR_TUNER_ASK_V3                                                                                               \
    void *context, enum slr_nccl_func func, size_t bytes, int pipe_ops, float **cost, int algos, int protos,           \
        int *channels
#define SLR_TUNER_ASK_V4                                                                                               \
    void *context, enum slr_nccl_func func, size_t bytes, int pipe_ops, float **cost, int algos, int protos,           \
        int registered, int *channels

#define SLR_TUNER_FIELDS(init_args, ask_args, end)                                                                     \
    const char *name;                                                                                                  \
    ncclResult_t (*init)(init_args);                                                                                   \
    ncclResult_t (*get_coll_info)(ask_args);                                                                           \
    ncclResult_t (*end)(void *context)
struct slr_tuner_v2 {
    SLR_TUNER_FIELDS(SLR_TUNER_INIT_V2, SLR_TUNER_ASK_V2, destroy);
};
struct slr_tuner_v3 {
    SLR_TUNER_FIELDS(SLR_TUNER_INIT_V2, SLR_TUNER_ASK_V3, destroy);
};
struct slr_tuner_v4 {
    SLR_TUNER_FIELDS(SLR_TUNER_INIT_V2, SLR_TUNER_ASK_V4, destroy);
};
struct slr_tuner_v5 {
    SLR_TUNER_FIELDS(SLR_TUNER_INIT_V5, SLR_TUNER_ASK_V4, finalize);
};
struct slr_tuner_v6 {
    SLR_TUNER_FIELDS(SLR_TUNER_INIT_V5, SLR_TUNER_ASK_V4, finalize);
    /* May be NULL: NCCL's chunk size stays. */
    ncclResult_t (*get_chunk_size)(void *context, enum slr_nccl_func func, size_t bytes, int algorithm, int protocol,
                                   int channels, size_t *chunk);
};

/* Sizes and places on the platforms that NCCL supports (64 bits). */
_Static_assert(sizeof(struct slr_tuner_v2) == 32 && sizeof(struct slr_tuner_v3) == 32 &&
                   sizeof(struct slr_tuner_v4) == 32 && sizeof(struct slr_tuner_v5) == 32 &&
                   sizeof(struct slr_tuner_v6) == 40,
               "a name and three functions; v6 has a fourth");
_Static_assert(offsetof(struct slr_tuner_v6, get_chunk_size) == 32, "behind finalize");
_Static_assert(sizeof(struct slr_nvl_domains) == 12, "three int");
_Static_assert(offsetof(struct slr_tuner_constants, hw_latency) == 168 &&
                   offsetof(struct slr_tuner_constants, ll_max_bw) == 672 && sizeof(struct slr_tuner_constants) == 1152,
               "21 + 63 + 5 * 12 doubles");

/* Defined in tuner_abi.c; const, as NCCL only reads them. */
#define SLR_EXPORT __attribute__((visibility("default")))
extern SLR_EXPORT const struct slr_tuner_v2 ncclTunerPlugin_v2;
extern SLR_EXPORT const struct slr_tuner_v3 ncclTunerPlugin_v3;
extern SLR_EXPORT const struct slr_tuner_v4 ncclTunerPlugin_v4;
extern SLR_EXPORT const struct slr_tuner_v5 ncclTunerPlugin_v5;
extern SLR_EXPORT const struct slr_tuner_v6 ncclTunerPlugin_v6;

#endif
