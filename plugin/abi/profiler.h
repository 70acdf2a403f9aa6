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
 * NULL as a parent.
 */
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

/* Parts of the unions that did not change over the versions. */
struct slr_profile_proxy_op {
    pid_t pid;
    uint8_t channel;
    int peer, steps, chunk_size, is_send;
};
struct slr_profile_proxy_step {
    int step;
};
struct slr_profile_net_plugin {
    int64_t id;
    void *data;
};
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
            const char *name; /* of the communicator; NULL from 2.27 on */
            uint64_t comm_hash;
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
            const char *name;
            uint64_t comm_hash;
            uint8_t func;
            void *buffer;
            uint8_t datatype;
            size_t count;
            int peer;
        } p2p;
        struct slr_profile_proxy_op proxy_op;
        struct slr_profile_proxy_step proxy_step;
    };
};

struct slr_profile_event_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t comm_hash;
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            size_t traffic_bytes;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll;
        struct {
            const char *name;
            uint64_t comm_hash;
            const char *func;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
        } p2p;
        struct slr_profile_proxy_op proxy_op;
        struct slr_profile_proxy_step proxy_step;
    };
};

struct slr_profile_event_v3 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t comm_hash;
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll;
        struct {
            const char *name;
            uint64_t comm_hash;
            const char *func;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
        } p2p;
        struct slr_profile_proxy_op proxy_op;
        struct slr_profile_proxy_step proxy_step;
        struct {
            uint8_t channel;
        } kernel_ch;
        struct slr_profile_net_plugin net_plugin;
    };
};

struct slr_profile_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll;
        struct {
            const char *func;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
        } p2p;
        struct slr_profile_proxy_op proxy_op;
        struct slr_profile_proxy_step proxy_step;
        struct slr_profile_kernel_ch kernel_ch;
        struct slr_profile_net_plugin net_plugin;
    };
};

/* v5 and v6 differ in what v6 adds to the union. `parent` of a collective is the application's call; v5 keeps what v4
 * called the parent beside it. */
#define SLR_PROFILE_UNION_V5                                                                                           \
    struct {                                                                                                           \
        bool captured;                                                                                                 \
        int depth;                                                                                                     \
    } group_api;                                                                                                       \
    struct {                                                                                                           \
        const char *func;                                                                                              \
        size_t count;                                                                                                  \
        const char *datatype;                                                                                          \
        int root;                                                                                                      \
        void *stream;                                                                                                  \
        bool captured;                                                                                                 \
    } coll_api;                                                                                                        \
    struct {                                                                                                           \
        const char *func;                                                                                              \
        size_t count;                                                                                                  \
        const char *datatype;                                                                                          \
        void *stream;                                                                                                  \
        bool captured;                                                                                                 \
    } p2p_api;                                                                                                         \
    struct {                                                                                                           \
        void *stream;                                                                                                  \
    } kernel_launch;                                                                                                   \
    struct {                                                                                                           \
        uint64_t seq;                                                                                                  \
        const char *func;                                                                                              \
        const void *send;                                                                                              \
        void *recv;                                                                                                    \
        size_t count;                                                                                                  \
        int root;                                                                                                      \
        const char *datatype;                                                                                          \
        uint8_t channels, warps;                                                                                       \
        const char *algo, *proto;                                                                                      \
        void *parent_group;                                                                                            \
    } coll;                                                                                                            \
    struct {                                                                                                           \
        const char *func;                                                                                              \
        void *buffer;                                                                                                  \
        const char *datatype;                                                                                          \
        size_t count;                                                                                                  \
        int peer;                                                                                                      \
        uint8_t channels;                                                                                              \
        void *parent_group;                                                                                            \
    } p2p;                                                                                                             \
    struct slr_profile_proxy_op proxy_op;                                                                              \
    struct slr_profile_proxy_step proxy_step;                                                                          \
    struct slr_profile_kernel_ch kernel_ch;                                                                            \
    struct slr_profile_net_plugin net_plugin;

struct slr_profile_event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        SLR_PROFILE_UNION_V5
    };
};

struct slr_profile_event_v6 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        SLR_PROFILE_UNION_V5
        struct {
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            const char *sync_strategy;
            bool intra_batch_sync;
            uint32_t batch_size, batches, ce_seq;
            void *stream;
        } ce_coll;
        struct {
            bool complete;
            int nranks;
        } ce_sync;
        struct {
            int ops;
            size_t bytes;
            bool intra_sync;
        } ce_batch;
    };
};

union slr_profile_state_v1 { /* v1 to v3 */
    struct {
        size_t trans_size;
        int steps;
    } proxy_op;
    struct {
        int appended;
    } proxy_ctrl;
};

union slr_profile_state_v4 { /* v4 to v6 */
    struct {
        size_t trans_size;
    } proxy_step;
    struct {
        int appended;
    } proxy_ctrl;
    struct {
        void *data;
    } net_plugin;
    struct {
        uint64_t ptimer;
    } kernel_ch;
};

/* The exported tables. The activation mask is one word for the whole process in NCCL: the last init decides. */
#define SLR_PROFILER_REST(event, states)                                                                               \
    ncclResult_t (*start_event)(void *context, void **handle, const struct event *descr);                              \
    ncclResult_t (*stop_event)(void *handle);                                                                          \
    ncclResult_t (*record_event_state)(void *handle, int state, const union states *args);                             \
    ncclResult_t (*finalize)(void *context)

#define SLR_PROFILER_V1_TO_V3(version)                                                                                 \
    struct slr_profiler_v##version {                                                                                   \
        const char *name;                                                                                              \
        ncclResult_t (*init)(void **context, int *mask);                                                               \
        SLR_PROFILER_REST(slr_profile_event_v##version, slr_profile_state_v1);                                         \
    }
SLR_PROFILER_V1_TO_V3(1);
SLR_PROFILER_V1_TO_V3(2);
SLR_PROFILER_V1_TO_V3(3);

struct slr_profiler_v4 {
    const char *name;
    ncclResult_t (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nnodes, int nranks,
                         int rank, slr_nccl_logger logger);
    SLR_PROFILER_REST(slr_profile_event_v4, slr_profile_state_v4);
};

#define SLR_PROFILER_V5_TO_V6(version)                                                                                 \
    struct slr_profiler_v##version {                                                                                   \
        const char *name;                                                                                              \
        ncclResult_t (*init)(void **context, uint64_t comm_hash, int *mask, const char *comm_name, int nnodes,         \
                             int nranks, int rank, slr_nccl_logger logger);                                            \
        SLR_PROFILER_REST(slr_profile_event_v##version, slr_profile_state_v4);                                         \
    }
SLR_PROFILER_V5_TO_V6(5);
SLR_PROFILER_V5_TO_V6(6);

/* Offsets as NCCL's compiler lays them out (LP64). */
#define SLR_AT(type, field, at) _Static_assert(offsetof(struct type, field) == (at), #type "." #field)
#define SLR_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
SLR_SIZE(struct slr_profile_event_v1, 120);
SLR_AT(slr_profile_event_v1, rank, 16);
SLR_AT(slr_profile_event_v1, coll.func, 48);
SLR_AT(slr_profile_event_v1, coll.datatype, 84);
SLR_AT(slr_profile_event_v1, coll.traffic_bytes, 96);
SLR_AT(slr_profile_event_v1, coll.proto, 107);
SLR_AT(slr_profile_event_v1, coll.is_nvls, 112);
SLR_AT(slr_profile_event_v1, p2p.peer, 72);
SLR_SIZE(struct slr_profile_event_v2, 128);
SLR_AT(slr_profile_event_v2, coll.datatype, 88);
SLR_AT(slr_profile_event_v2, coll.channels, 104);
SLR_AT(slr_profile_event_v2, coll.proto, 120);
SLR_AT(slr_profile_event_v2, p2p.peer, 72);
SLR_SIZE(struct slr_profile_event_v3, 120);
SLR_AT(slr_profile_event_v3, coll.channels, 96);
SLR_AT(slr_profile_event_v3, coll.proto, 112);
SLR_AT(slr_profile_event_v3, kernel_ch.channel, 24);
SLR_SIZE(struct slr_profile_event_v4, 104);
SLR_AT(slr_profile_event_v4, coll.seq, 24);
SLR_AT(slr_profile_event_v4, coll.channels, 80);
SLR_AT(slr_profile_event_v4, coll.proto, 96);
SLR_AT(slr_profile_event_v4, p2p.channels, 60);
SLR_AT(slr_profile_event_v4, kernel_ch.ptimer, 32);
SLR_SIZE(struct slr_profile_event_v5, 112);
SLR_AT(slr_profile_event_v5, rank, 16);
SLR_AT(slr_profile_event_v5, group_api.depth, 28);
SLR_AT(slr_profile_event_v5, coll_api.stream, 56);
SLR_AT(slr_profile_event_v5, coll_api.captured, 64);
SLR_AT(slr_profile_event_v5, p2p_api.captured, 56);
SLR_AT(slr_profile_event_v5, coll.channels, 80);
SLR_AT(slr_profile_event_v5, coll.proto, 96);
SLR_AT(slr_profile_event_v5, coll.parent_group, 104);
SLR_AT(slr_profile_event_v5, p2p.parent_group, 64);
SLR_AT(slr_profile_event_v5, kernel_ch.ptimer, 32);
SLR_SIZE(struct slr_profile_event_v6, 112);
SLR_AT(slr_profile_event_v6, coll.proto, 96);
SLR_AT(slr_profile_event_v6, ce_coll.sync_strategy, 80);
SLR_AT(slr_profile_event_v6, ce_coll.batch_size, 92);
SLR_AT(slr_profile_event_v6, ce_coll.stream, 104);
SLR_SIZE(union slr_profile_state_v1, 16);
SLR_SIZE(union slr_profile_state_v4, 8);
SLR_AT(slr_profiler_v1, finalize, 40);
SLR_AT(slr_profiler_v2, finalize, 40);
SLR_AT(slr_profiler_v3, finalize, 40);
SLR_AT(slr_profiler_v4, finalize, 40);
SLR_AT(slr_profiler_v5, finalize, 40);
SLR_AT(slr_profiler_v6, finalize, 40);
#undef SLR_AT
#undef SLR_SIZE

#endif
