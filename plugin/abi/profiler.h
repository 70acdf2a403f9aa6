/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler plugin interface, versions 1 to 6: what a library exports as ncclProfiler_v1 ... ncclProfiler_v6.
 *
 * Written down here because nccl.h does not have it. Order and types of the fields are NCCL's binary interface; the
 * asserts at the end hold the offsets. NCCL looks for the newest version that it knows first:
 *
 *   version   first in   what it brought
 *   v1        2.23       groups, collectives, point-to-point, proxy operations; names are numbers
 *   v2        2.24       names are strings
 *   v3        2.26       kernel channels and network plugins; no trafficBytes
 *   v4        2.27       init is told communicator, ranks and logger; GPU time stamps (pTimer) of kernel channels
 *   v5        2.28       events of the application's own calls (group, collective, point-to-point API), kernel launches
 *   v6        2.29       collectives of the copy engines
 *   v7        2.31       tags of calls, kernel variants, phases of kernels: nothing that is read, so not declared here
 *
 * An older version is served by adapters inside NCCL: what a newer version brought is missing or zero in it. All
 * callbacks return 0 (ncclSuccess) or an ncclResult_t. A handle is whatever startEvent wrote; NCCL does not look into
 * it. startEvent leaves NULL where the event is of no interest, and NCCL then calls nothing for it, but may pass the
 * NULL as a parent. */
#ifndef SLR_PLUGIN_ABI_PROFILER_H
#define SLR_PLUGIN_ABI_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "plugin/abi/nccl_common.h"

/* Types of events; in the activation mask that init returns, and in a descriptor's `type`. An API event comes whenever
 * anything below it is wanted, whether its own bit is set or not. */
enum slr_profile_type {
    SLR_PROFILE_GROUP = 1 << 0,
    SLR_PROFILE_COLL = 1 << 1,
    SLR_PROFILE_P2P = 1 << 2,
    SLR_PROFILE_PROXY_OP = 1 << 3,
    SLR_PROFILE_PROXY_STEP = 1 << 4,
    SLR_PROFILE_PROXY_CTRL = 1 << 5,
    SLR_PROFILE_KERNEL_CH = 1 << 6, /* from v3 on */
    SLR_PROFILE_NET_PLUGIN = 1 << 7,
    SLR_PROFILE_GROUP_API = 1 << 8, /* from v5 on */
    SLR_PROFILE_COLL_API = 1 << 9,
    SLR_PROFILE_P2P_API = 1 << 10,
    SLR_PROFILE_KERNEL_LAUNCH = 1 << 11,
    SLR_PROFILE_CE_COLL = 1 << 12, /* from v6 on */
    SLR_PROFILE_CE_SYNC = 1 << 13,
    SLR_PROFILE_CE_BATCH = 1 << 14,
};

/* recordEventState's `state`: an int in all versions. Only this one is of interest here; it carries kernel_ch. */
#define SLR_PROFILE_STATE_KERNEL_CH_STOP 22

/* What slipring reads of the events, or gives to the kind of plugin that it is (softgpu/nccl/profiler.c). NCCL's unions
 * have more members, none of which is larger. */
#define SLR_PROFILE_COMM                                                                                               \
    const char *name; /* of the communicator; NULL from 2.27 on */                                                     \
    uint64_t comm_hash
#define SLR_PROFILE_COLL_FIELDS                                                                                        \
    uint64_t seq;                                                                                                      \
    const char *func;                                                                                                  \
    const void *send;                                                                                                  \
    void *recv;                                                                                                        \
    size_t count;                                                                                                      \
    int root;                                                                                                          \
    const char *datatype
#define SLR_PROFILE_RUN_FIELDS                                                                                         \
    uint8_t channels, warps;                                                                                           \
    const char *algo, *proto
#define SLR_PROFILE_P2P_FIELDS                                                                                         \
    const char *func;                                                                                                  \
    void *buffer;                                                                                                      \
    const char *datatype;                                                                                              \
    size_t count;                                                                                                      \
    int peer
struct slr_profile_kernel_ch { /* v4 to v6 */
    uint8_t channel;
    uint64_t ptimer; /* the GPU's globaltimer when the channel's work began, ns */
};

struct slr_profile_event_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            SLR_PROFILE_COMM;
            uint64_t seq;
            uint8_t func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            uint8_t datatype;
            uint32_t op;
            size_t traffic_bytes;
            uint8_t channels, warps, algo, proto;
            int is_collnet, is_nvls;
        } coll;
        struct {
            SLR_PROFILE_COMM;
            uint8_t func;
            void *buffer;
            uint8_t datatype;
            size_t count;
            int peer;
        } p2p;
    };
};

struct slr_profile_event_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            SLR_PROFILE_COMM;
            SLR_PROFILE_COLL_FIELDS;
            size_t traffic_bytes;
            SLR_PROFILE_RUN_FIELDS;
        } coll;
        struct {
            SLR_PROFILE_COMM;
            SLR_PROFILE_P2P_FIELDS;
        } p2p;
    };
};

struct slr_profile_event_v3 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            SLR_PROFILE_COMM;
            SLR_PROFILE_COLL_FIELDS;
            SLR_PROFILE_RUN_FIELDS;
        } coll;
        struct {
            SLR_PROFILE_COMM;
            SLR_PROFILE_P2P_FIELDS;
        } p2p;
    };
};

struct slr_profile_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            SLR_PROFILE_COLL_FIELDS;
            SLR_PROFILE_RUN_FIELDS;
        } coll;
        struct {
            SLR_PROFILE_P2P_FIELDS;
            uint8_t channels;
        } p2p;
        struct slr_profile_kernel_ch kernel_ch;
    };
};

/* v6 adds to the union of v5. `parent` of a collective is the application's call; v5 keeps what v4 called the parent
 * beside it. */
#define SLR_PROFILE_EVENT_V5_TO_V6(version, added)                                                                     \
    struct slr_profile_event_v##version {                                                                              \
        uint64_t type;                                                                                                 \
        void *parent;                                                                                                  \
        int rank;                                                                                                      \
        union {                                                                                                        \
            struct {                                                                                                   \
                bool captured;                                                                                         \
                int depth;                                                                                             \
            } group_api;                                                                                               \
            struct {                                                                                                   \
                const char *func;                                                                                      \
                size_t count;                                                                                          \
                const char *datatype;                                                                                  \
                int root;                                                                                              \
                void *stream;                                                                                          \
                bool captured;                                                                                         \
            } coll_api;                                                                                                \
            struct {                                                                                                   \
                const char *func;                                                                                      \
                size_t count;                                                                                          \
                const char *datatype;                                                                                  \
                void *stream;                                                                                          \
                bool captured;                                                                                         \
            } p2p_api;                                                                                                 \
            struct {                                                                                                   \
                SLR_PROFILE_COLL_FIELDS;                                                                               \
                SLR_PROFILE_RUN_FIELDS;                                                                                \
                void *parent_group;                                                                                    \
            } coll;                                                                                                    \
            struct {                                                                                                   \
                SLR_PROFILE_P2P_FIELDS;                                                                                \
                uint8_t channels;                                                                                      \
                void *parent_group;                                                                                    \
            } p2p;                                                                                                     \
            struct slr_profile_kernel_ch kernel_ch;                                                                    \
            added;                                                                                                     \
        };                                                                                                             \
    }
struct slr_profile_ce_coll {
    SLR_PROFILE_COLL_FIELDS;
    const char *sync_strategy;
    bool intra_batch_sync;
    uint32_t batch_size, batches, ce_seq;
    void *stream;
};
SLR_PROFILE_EVENT_V5_TO_V6(5, );
SLR_PROFILE_EVENT_V5_TO_V6(6, struct slr_profile_ce_coll ce_coll);

/* From v4 on, of SLR_PROFILE_STATE_KERNEL_CH_STOP. */
union slr_profile_state {
    struct {
        uint64_t ptimer;
    } kernel_ch;
};

/* The exported tables. The activation mask is one word for the whole process in NCCL: the last init decides. */
#define SLR_PROFILER(version, ...)                                                                                     \
    struct slr_profiler_v##version {                                                                                   \
        const char *name;                                                                                              \
        ncclResult_t (*init)(__VA_ARGS__);                                                                             \
        ncclResult_t (*start_event)(void *context, void **handle, const struct slr_profile_event_v##version *descr);   \
        ncclResult_t (*stop_event)(void *handle);                                                                      \
        ncclResult_t (*record_event_state)(void *handle, int state, const union slr_profile_state *args);              \
        ncclResult_t (*finalize)(void *context);                                                                       \
    }
#define SLR_PROFILE_INIT_V1 void **context, int *mask
#define SLR_PROFILE_INIT_V4                                                                                            \
    void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank, slr_nccl_logger log
#define SLR_PROFILE_INIT_V5                                                                                            \
    void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks, int rank, slr_nccl_logger log
SLR_PROFILER(1, SLR_PROFILE_INIT_V1);
SLR_PROFILER(2, SLR_PROFILE_INIT_V1);
SLR_PROFILER(3, SLR_PROFILE_INIT_V1);
SLR_PROFILER(4, SLR_PROFILE_INIT_V4);
SLR_PROFILER(5, SLR_PROFILE_INIT_V5);
SLR_PROFILER(6, SLR_PROFILE_INIT_V5);

/* Offsets as NCCL's compiler lays them out (LP64). */
#define SLR_AT(version, field, at)                                                                                     \
    _Static_assert(offsetof(struct slr_profile_event_v##version, field) == (at), #version "." #field)
#define SLR_LAYOUT(version, bytes, datatype_at, channels_at, proto_at, peer_at)                                        \
    _Static_assert(sizeof(struct slr_profile_event_v##version) == (bytes), #version);                                  \
    _Static_assert(offsetof(struct slr_profiler_v##version, finalize) == 40, #version);                                \
    SLR_AT(version, rank, 16);                                                                                         \
    SLR_AT(version, coll.datatype, datatype_at);                                                                       \
    SLR_AT(version, coll.channels, channels_at);                                                                       \
    SLR_AT(version, coll.proto, proto_at);                                                                             \
    SLR_AT(version, p2p.peer, peer_at)
SLR_LAYOUT(1, 120, 84, 104, 107, 72);
SLR_LAYOUT(2, 128, 88, 104, 120, 72);
SLR_LAYOUT(3, 120, 88, 96, 112, 72);
SLR_LAYOUT(4, 104, 72, 80, 96, 56);
SLR_LAYOUT(5, 112, 72, 80, 96, 56);
SLR_LAYOUT(6, 112, 72, 80, 96, 56);
SLR_AT(4, p2p.channels, 60);
SLR_AT(4, kernel_ch.ptimer, 32);
SLR_AT(5, group_api.depth, 28);
SLR_AT(5, coll_api.captured, 64);
SLR_AT(5, p2p_api.captured, 56);
SLR_AT(5, coll.parent_group, 104);
SLR_AT(5, p2p.parent_group, 64);
SLR_AT(5, kernel_ch.ptimer, 32);
SLR_AT(6, ce_coll.sync_strategy, 80);
SLR_AT(6, ce_coll.batch_size, 92);
SLR_AT(6, ce_coll.stream, 104);
#undef SLR_AT
#undef SLR_LAYOUT

#endif
