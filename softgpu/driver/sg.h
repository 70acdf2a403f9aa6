/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the stand-in driver. One process-wide mutex (sg_lock) guards every table and every queue; worker threads
 * drop it while they copy, compute or poll. Functions ending in _locked want it held. Handles that applications see
 * are serial numbers, never addresses, so a handle that is used after its destruction is always recognised. */
#ifndef SOFTGPU_SG_H
#define SOFTGPU_SG_H

#include "../softgpu.h"
#include "cuda13.h"
#include "race.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum sg_entry {
#define SG_ENTRY(symbol, base, version, mode) SG_##symbol,
#include "entries.def"
#undef SG_ENTRY
    SG_ENTRY_COUNT
};

/* Every entry point starts with this: not initialised, forked child and injected faults return here. */
#define SG_ENTER(symbol)                                                                                               \
    do {                                                                                                               \
        CUresult enter_rc_ = sg_enter(SG_##symbol);                                                                    \
        if (enter_rc_)                                                                                                 \
            return enter_rc_;                                                                                          \
    } while (0)

/* Defines an entry point and its per-thread-default-stream twin around a common body `symbol_on`. */
#define SG_PAIR(symbol, suffix, params, legacy_args, pt_args)                                                          \
    CUresult CUDAAPI symbol params                                                                                     \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        return symbol##_on legacy_args;                                                                                \
    }                                                                                                                  \
    CUresult CUDAAPI symbol##suffix params                                                                             \
    {                                                                                                                  \
        SG_ENTER(symbol##suffix);                                                                                      \
        return symbol##_on pt_args;                                                                                    \
    }
#define SG_PT(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define SG_MAX_DEVICES 64

/* ---- configuration (config.c) ---- */
struct sg_config {
    int devices;
    size_t mem_bytes;
    bool misuse_abort, hang_abort, timing, compute_off, p2p_broken;
    double hang_seconds; /* real seconds, already dilated */
    const char *report;
    double link_gbs, net_gbs, hbm_gbs, pcie_gbs, tflops, collective_share, launch_us, memop_us, scale;
    /* strict rules, see ../README.md */
    unsigned queue, launches; /* entries of a stream's queue, and launches among them; 0: no limit */
    unsigned connections;     /* hardware queues of a context */
    bool ties, lazy, nccl_blind, same_primary, same_stream, ctxsync, books, green_events, gemms_full;
    unsigned one_lane; /* 1, 2: SOFTGPU_GRAPH_ONE_LANE */
};
extern struct sg_config sg_cfg;
void sg_config_load(void);

/* ---- process state (init.c) ---- */
extern pthread_mutex_t sg_lock;
extern uint64_t sg_progress; /* operations finished in this process; under sg_lock */
CUresult sg_enter(enum sg_entry entry);
bool sg_exiting(void);
void sg_kernel_begin(void); /* brackets code that must not run while libraries shut down at exit */
void sg_kernel_end(void);
/* From now on the thread runs code of the program that must not call CUDA; NULL: no longer. */
void sg_forbid_calls(const char *where);
int64_t sg_now(void); /* CLOCK_MONOTONIC, ns */
static inline void sg_acquire(void)
{
    pthread_mutex_lock(&sg_lock);
}
static inline void sg_release(void)
{
    pthread_mutex_unlock(&sg_lock);
}

/* ---- misuse and faults (report.c, fault.c) ---- */
void sg_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sg_report_hang_locked(void);
void sg_fault_load(void);
CUresult sg_fault(enum sg_entry entry);
const char *sg_entry_name(enum sg_entry entry);
const char *sg_entry_base(enum sg_entry entry);

/* ---- handles (handle.c) ---- */
enum sg_kind {
    SG_CTX = 1,
    SG_STREAM,
    SG_EVENT,
    SG_GRAPH,
    SG_EXEC,
    SG_NODE,
    SG_FUNC,
    SG_POOL,
    SG_ALLOC,
    SG_OBJECT,
    SG_MODULE,
    SG_GREEN,
    SG_RESOURCES
};
void *sg_handle_new_locked(enum sg_kind kind, void *obj);
void *sg_handle_get_locked(enum sg_kind kind, const void *handle); /* NULL after a misuse report */
void *sg_handle_peek_locked(enum sg_kind kind, const void *handle);
void sg_handle_drop_locked(const void *handle);
void sg_handle_renew_locked(const void *handle,
                            void *obj); /* it names `obj` from now on, whether it was dropped or not */

/* ---- devices (device.c) ---- */
#define SG_LINK_BYTES 4096
struct sg_link { /* modelled engines of one device; in a memfd, mapped by importers too */
    _Atomic int64_t ingress, egress, net, hbm, compute, pcie_in, pcie_out; /* busy until, ns */
    _Atomic int64_t full;                                                  /* until then no multiprocessor is free */
};
struct sg_device {
    int physical; /* ordinal before CUDA_VISIBLE_DEVICES */
    CUuuid uuid;
    size_t used;
    struct sg_link *link;
    int link_fd;
    struct sg_ctx *primary;
    CUcontext primary_handle; /* of the latest one; NULL: none yet */
    int primary_refs;
    unsigned primary_flags;
    void *pool, *current_pool; /* default and current memory pool handles */
};
extern struct sg_device sg_devices[SG_MAX_DEVICES];
extern int sg_device_count;
CUresult sg_devices_init(void);
struct sg_device *sg_device(CUdevice dev);

/* ---- hardware queues (connection.c) ---- */
#define SG_CONNECTIONS 32
struct sg_connection {
    struct sg_op *first, *last; /* what has not begun, in the order of the calls */
    unsigned streams;           /* that have work and go through it */
    int64_t t;                  /* modelled begin of the latest that has begun; of a wait, its end */
};
void sg_connection_enter_locked(struct sg_stream *s, struct sg_op *op);
int64_t sg_connection_turn_locked(struct sg_stream *s, const struct sg_op *op); /* waits for it, on the worker */
void sg_connection_begun_locked(struct sg_op *op, int64_t t);                   /* once; then it does nothing */
void sg_connection_idle_locked(struct sg_stream *s);                            /* the stream has no work left */

/* ---- contexts (context.c) ---- */
struct sg_ctx {
    CUcontext handle;
    CUdevice dev;
    unsigned flags;
    bool primary, dead;
    uint64_t id;
    uint64_t peers;  /* bit per device: peer access enabled */
    CUresult sticky; /* an execution error poisons the context, as on a real device */
    struct sg_stream *streams;
    struct sg_stream *legacy;
    struct sg_fence *between; /* the latest copy between devices that all later work comes behind */
    struct sg_ctx *of;        /* a green context's primary one; NULL: it is none */
    CUgreenCtx green;         /* its handle as a green one, */
    unsigned sms;             /* and its multiprocessors */
    struct sg_stream *whole;  /* what waits for, or is waited for by, all streams; NULL: not needed so far */
    struct sg_fence *gate;    /* all later work of all streams comes behind it */
    struct sg_connection connections[SG_CONNECTIONS];
    struct sg_ctx *next;
    struct sg_clock ended, ended_blocking; /* of streams that are gone */
};
struct sg_ctx *sg_ctx_list_locked(void);
struct sg_ctx *sg_current_locked(CUresult *rc);
struct sg_ctx *sg_ctx_new_locked(CUdevice dev, unsigned flags, bool primary);
void sg_ctx_destroy_locked(struct sg_ctx *ctx);
/* What events, memory, modules and peer access belong to: a green context is the primary one with other resources. */
static inline struct sg_ctx *sg_root(const struct sg_ctx *ctx)
{
    return ctx->of ? ctx->of : (struct sg_ctx *)(uintptr_t)ctx;
}
/* Whether an event may be recorded on a stream: both are of one context. */
bool sg_same_events(struct sg_ctx *event, struct sg_ctx *stream);
void sg_green_destroy_all_locked(struct sg_ctx *primary);

/* ---- fences: completion of one operation (fence.c) ---- */
struct sg_waiter {
    pthread_cond_t *cv;
    struct sg_waiter *next;
};
struct sg_fence {
    int refs;
    bool done;
    int64_t t; /* completion, modelled when the timing model runs; ns */
    struct sg_stream *stream;
    struct sg_waiter *waiters;
    struct sg_clock clock;
};
struct sg_fence *sg_fence_new_locked(void);
struct sg_fence *sg_fence_ref_locked(struct sg_fence *f);
void sg_fence_put_locked(struct sg_fence *f);
void sg_fence_done_locked(struct sg_fence *f, int64_t t);
bool sg_fence_wait_locked(struct sg_fence *f, pthread_cond_t *cv, int64_t deadline); /* false: deadline (0: none) */
void sg_fence_sync_locked(struct sg_fence *f); /* host thread; takes no reference */

/* ---- memory (memory.c, memobj.c) ---- */
enum sg_mem_kind {
    SG_MEM_DEVICE,
    SG_MEM_POOL,
    SG_MEM_HOST,
    SG_MEM_REGISTERED,
    SG_MEM_MANAGED,
    SG_MEM_IMPORT,
    SG_MEM_MAPPING /* of a struct sg_alloc */
};
struct sg_opener {
    _Atomic uint32_t pid;
    _Atomic uint64_t start; /* start time of that process, against reused process ids */
};
#define SG_MAGIC 0x75706774666f7367ull
#define SG_OPENERS 160
struct sg_header { /* first page of an exportable allocation */
    uint64_t magic, generation, size;
    uint64_t owner_start;
    uint32_t owner_pid;
    int32_t physical;
    CUuuid uuid;
    int32_t link_fd; /* the owner's, of the device's engines */
    _Atomic uint32_t freed;
    struct sg_opener openers[SG_OPENERS];
};
struct sg_mem {
    uintptr_t base;
    size_t size, mapped;
    enum sg_mem_kind kind;
    CUdevice dev;
    struct sg_ctx *ctx;
    uint64_t id;          /* generation */
    unsigned flags, refs; /* refs: imports opened; pins: operations that run on it now */
    unsigned pins;
    bool dead, freeing;
    int fd;
    struct sg_header *hdr;
    struct sg_link *link; /* of the owning device; its own mapping when imported */
    struct sg_opener *opener;
    pid_t owner;
    void *pool;
    struct sg_graph_mem *graph; /* of an allocation node */
    struct sg_alloc *alloc; /* SG_MEM_MAPPING: what is mapped, and the devices that may read and write it, a bit each */
    uint64_t readers, writers;
    uint64_t race_key[2], race_offset;
};
struct sg_mem *sg_mem_find_locked(uintptr_t p);
struct sg_mem *sg_mem_after_locked(uintptr_t p); /* the first that ends after p */
struct sg_mem *sg_mem_at_locked(size_t i);       /* i-th by address, NULL past the end */
struct sg_mem *sg_mem_find_base_locked(uintptr_t p);
CUresult sg_mem_new_locked(struct sg_mem **out, enum sg_mem_kind kind, struct sg_ctx *ctx, size_t size);
void sg_mem_insert_locked(struct sg_mem *m);
void sg_mem_retire_locked(struct sg_mem *m);         /* out of the table; unmapped once nothing runs on it */
void sg_mem_drop_context_locked(struct sg_ctx *ctx); /* context destroyed: its allocations go too */
void sg_mem_pin_locked(struct sg_mem *m);
void sg_mem_unpin_locked(struct sg_mem *m);
/* Of cuMemAllocAsync's memory (pool.c); of other memory nothing is counted, and nothing allowed. */
bool sg_pool_allows_locked(const struct sg_mem *m, CUdevice dev);
void sg_pool_memory_freed_locked(struct sg_mem *m); /* given to a free */
void sg_pool_memory_ends_locked(struct sg_mem *m);
const char *sg_mem_describe_locked(uintptr_t p, char *buf, size_t n);
bool sg_mem_is_device(const struct sg_mem *m);
CUresult sg_mem_alloc(CUdeviceptr *dptr, enum sg_mem_kind kind, size_t size);
CUresult sg_mem_check_free_locked(uintptr_t p);
uint64_t sg_mem_next_id_locked(void);
int sg_obj_create_locked(struct sg_mem *m);
int sg_obj_map_locked(struct sg_mem *m, int fd);
void sg_obj_unmap_locked(struct sg_mem *m);
uintptr_t sg_arena_map_locked(int fd, off_t offset, size_t size, size_t *mapped); /* fd -1: host memory; 0: no place */
void sg_arena_unmap_locked(uintptr_t base);
bool sg_arena_holds_locked(uintptr_t p); /* device or page-locked memory, or once was or will be */
/* Address space without memory, given back with sg_arena_unmap_locked; and memory within it. */
uintptr_t sg_arena_reserve_locked(size_t size, size_t align);
bool sg_arena_place_locked(int fd, off_t offset, uintptr_t at, size_t size);
void sg_arena_clear_locked(uintptr_t at, size_t size);
uint64_t sg_process_start(pid_t pid);
uint64_t sg_own_start(void); /* of this process; read once */
int sg_open_peer_fd(uint32_t pid, int number, size_t bytes);
struct sg_link *sg_link_map(uint32_t pid, int number);             /* another process's engines, or NULL */
CUdevice sg_device_of_uuid(const CUuuid *uuid, CUdevice fallback); /* this process's ordinal of it */
void sg_header_fill(struct sg_header *h, uint64_t magic, uint64_t id, size_t size, const struct sg_device *d);
int sg_high_fd(int fd);
bool sg_process_alive(pid_t pid, uint64_t start);

/* ---- virtual memory management: vmm.c (physical memory), vmm_map.c (addresses) ---- */
#define SG_HEADER 4096 /* data of an exportable allocation begins there in its file */
#define SG_GRANULARITY ((size_t)2 << 20)
struct sg_alloc { /* physical memory as this process knows it; one for each cuMemCreate and each import */
    CUmemGenericAllocationHandle handle;
    unsigned refs, maps; /* of the handle, and mappings here; it goes with the last of them */
    unsigned retained;   /* by address, and not released by that thread yet; the latest to do so */
    pthread_t retainer;
    size_t size;
    CUdevice dev;
    CUmemAllocationProp prop;
    struct sg_header *hdr;
    struct sg_link *link;
    bool imported;
    int fd;       /* an import: of the same open file as share_fd of its owner */
    int share_fd; /* the open file behind every exported descriptor; -1: not exported yet */
    struct sg_alloc *next;
};
void sg_alloc_ref_map_locked(struct sg_alloc *a);
void sg_alloc_unref_map_locked(struct sg_alloc *a);
void sg_alloc_books_locked(const struct sg_alloc *a, const char *call); /* an end of it begins on this thread */
void sg_alloc_sweep_locked(void); /* gives back the budget of memory that nobody holds any more */
struct sg_alloc *sg_alloc_get_locked(CUmemGenericAllocationHandle handle);
bool sg_vmm_reserved_locked(uintptr_t p);
bool sg_vmm_range_locked(uintptr_t p, uintptr_t *base, size_t *size); /* the reservation around p */
bool sg_vmm_allows(const struct sg_mem *m, CUdevice dev, bool write);
void sg_vmm_destroy_locked(struct sg_mem *m); /* the end of a mapping */

struct sg_tips { /* what the next node of a capturing stream depends on; nodes may be gone meanwhile */
    CUgraphNode *node;
    unsigned n, cap;
};

/* ---- operations and streams (stream.c, worker.c, exec.c) ---- */
struct sg_range { /* something that an operation reads or writes; checked when enqueued and again before it runs */
    uintptr_t ptr;
    size_t bytes;
    unsigned how;       /* SG_RANGE_* */
    struct sg_mem *mem; /* pinned while the operation runs */
    uint64_t id;        /* of the memory when the operation was queued, or its graph's node made */
    int dev;            /* then; -1: on the host */
    uint64_t access;    /* then, of mapped memory (cuMemCreate): a bit for each device that may read it; else 0 */
    struct sg_ctx *ctx; /* then, of the memory */
};
enum { SG_RANGE_PEER = 1 /* a copy: may cross devices without peer access */, SG_RANGE_WRITE = 2 };
#define SG_RANGES 32
enum sg_op_kind { SG_OP_ORDER, SG_OP_COPY, SG_OP_FILL, SG_OP_KERNEL, SG_OP_HOST, SG_OP_WAIT, SG_OP_WRITE, SG_OP_FREE };
struct sg_copy {
    uintptr_t dst, src;
    size_t width, rows, slices, dpitch, spitch, dslice, sslice;
    void *staged;              /* copy of a pageable source; freed with the operation */
    CUcontext dctx, sctx;      /* that a Peer call names; else NULL */
    CUmemorytype dtype, stype; /* that the call or the node names; 0: as the memory is */
    bool implicit;             /* the call takes no stream */
};
struct sg_fill {
    uintptr_t dst;
    size_t width, rows, pitch; /* width in elements */
    uint32_t value;
    unsigned elem;
};
struct sg_kernel {
    const struct softgpu_kernel_desc *desc;
    void *args;
    CUfunction func;
    unsigned grid[3], block[3], shared_bytes; /* as the launch said; they mean nothing here */
};
struct sg_memop {
    uintptr_t addr;
    uint64_t value, seen; /* seen: last value read by a wait, for reports */
    unsigned flags;
    bool wide, raise; /* raise: a write that never lowers the word, of 64 bits */
};
#define SG_TIES 4
struct sg_op {
    struct sg_op *next;
    enum sg_op_kind kind;
    const char *what;
    struct sg_ctx *ctx;
    struct sg_fence *fence;
    struct sg_fence **deps;
    unsigned ndeps, nranges;
    bool recorded;                    /* part of a graph */
    bool awaits;                      /* only orders its stream behind another one */
    bool waiting, part;               /* part: of the call that queued the one before it, and of its entry */
    bool launch;                      /* of a kernel or a graph: its entry, if it has one of its own, is a launch */
    bool aside;                       /* goes through no hardware queue */
    struct sg_connection *connection; /* that it has not left yet, and who is next there */
    struct sg_op *behind;
    struct sg_ctx *ties[SG_TIES]; /* contexts of other devices that count it as their work; NULL-padded */
    int64_t enqueued, started;
    struct sg_range *ranges;
    struct sg_clock clock;
    uint64_t meeting; /* what its kernel meets others in, see softgpu.h; or 0 */
    union {
        struct sg_copy copy;
        struct sg_fill fill;
        struct sg_kernel kernel;
        struct sg_memop memop;
        struct {
            CUhostFn fn;
            CUstreamCallback callback;
            CUstream stream;
            void *user;
            bool inner; /* the driver's own: no function of the program's */
        } host;
        struct sg_mem *mem;
    } u;
};
struct sg_stream {
    CUstream handle;
    struct sg_ctx *ctx;
    struct sg_stream *next;
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy, per_thread, destroyed, has_worker;
    bool aside;                       /* its work goes through no hardware queue */
    struct sg_connection *connection; /* NULL: no work */
    struct sg_op *head, *tail;
    unsigned entries;  /* calls whose operations are queued */
    unsigned launches; /* of these, launches of kernels and graphs */
    struct sg_fence *last;
    struct sg_fence *work; /* of the latest operation that does something, or record behind that */
    bool awaits;           /* and since then for an event */
    pthread_cond_t cv;
    int64_t vtime; /* modelled completion of the last operation */
    struct sg_capture *capture;
    struct sg_tips tips;
    CUstreamAttrValue attrs[CU_LAUNCH_ATTRIBUTE_MAX];
    struct sg_clock clock;
    uint32_t race_queue; /* 0: none yet */
    bool race_forced;    /* a host has ended one of its waits */
};
struct sg_op *sg_op_new(enum sg_op_kind kind, const char *what);
struct sg_op *sg_op_clone(const struct sg_op *op);
void sg_op_free_locked(struct sg_op *op);
void sg_op_range(struct sg_op *op, uintptr_t ptr, size_t bytes, unsigned how);
void sg_op_dep_locked(struct sg_op *op, struct sg_fence *f);
const char *sg_op_describe_locked(const struct sg_op *op, char *buf, size_t n);

/* Resolves NULL, legacy and per-thread handles in the current context. Reports unknown handles. */
struct sg_stream *sg_stream_get_locked(CUstream handle, CUresult *rc);
struct sg_stream *sg_stream_new_locked(struct sg_ctx *ctx, unsigned flags, int priority);
/* What a wait for all of the context, or a record of it, is for on the stream: of a green one not events that the stream
 * waits for with nothing behind them (seen with driver 580 on an H100). */
static inline struct sg_fence *sg_stream_end_of(const struct sg_stream *s, const struct sg_ctx *ctx)
{
    return ctx->of ? s->work : s->last;
}
void sg_stream_retire_locked(struct sg_stream *s);
/* The same for a call that puts something into the queue: first waits, without the lock, until that has room. Whatever
 * the caller looked up before may be gone then. */
struct sg_stream *sg_stream_enter_locked(CUstream handle, CUresult *rc);
struct sg_stream *sg_stream_launch_locked(CUstream handle, CUresult *rc); /* that puts in a launch */
struct sg_stream *sg_stream_query_locked(CUstream handle, CUresult *rc);  /* waits for whoever waits in such a one */
void sg_entry_done_locked(struct sg_stream *s, const struct sg_op *op);
void sg_queue_locked(struct sg_stream *s, struct sg_op *op); /* unchecked; op->ctx is the stream's */
/* Takes the operation over in all cases. Checks its ranges, records it when the stream captures, else queues it. */
CUresult sg_submit_locked(struct sg_stream *s, struct sg_op *op);
CUresult sg_submit(CUstream stream, struct sg_op *op);
CUresult sg_submit_wait(CUstream stream, struct sg_op *op); /* and waits for its completion */
bool sg_stream_idle_locked(struct sg_stream *s);
void sg_stream_free_locked(struct sg_stream *s);
CUresult sg_stream_sync_locked(struct sg_stream *s);
CUresult sg_ctx_sync_locked(struct sg_ctx *ctx); /* drops the lock while it waits */
void sg_worker_start_locked(struct sg_stream *s);
int64_t sg_op_execute(struct sg_stream *s, struct sg_op *op, int64_t start); /* unlocked; returns completion time */
CUresult sg_ranges_check_locked(struct sg_op *op, bool pin);
CUresult sg_ranges_again_locked(struct sg_op *op); /* of a graph: as when its node was made? */
void sg_ranges_unpin_locked(struct sg_op *op);
enum { SG_COPY_DST_DEVICE = 1, SG_COPY_SRC_DEVICE = 2, SG_COPY_SYNC = 4 };
/* Operations as nodes of graphs have them; nothing is staged. Their memory is not checked yet. */
CUresult sg_kernel_op(const CUDA_KERNEL_NODE_PARAMS *p, struct sg_op **out);
CUresult sg_copy_op(const CUDA_MEMCPY3D *p, struct sg_op **out);
CUresult sg_copy_made_locked(const char *what, const struct sg_copy *shape, unsigned how, struct sg_op **out);
CUresult sg_fill_op(const char *what, const struct sg_fill *fill, struct sg_op **out);
struct sg_op *sg_host_op(CUhostFn fn, void *user);
CUresult sg_copy(const char *what, CUstream stream, const struct sg_copy *shape, unsigned how);
bool sg_wait_value(struct sg_op *op); /* whether it had to wait */
bool sg_memop_satisfied(const struct sg_memop *m, uint64_t v);
bool sg_op_skips_data(const struct sg_op *op);
void sg_write_value(struct sg_op *op);
CUresult sg_memop_batch(struct sg_op **ops, unsigned count, const CUstreamBatchMemOpParams *params); /* all or none */
/* The memory that lies on a device, at either end of a copy that runs; NULL: host memory. */
const struct sg_mem *sg_op_device_side(const struct sg_op *op, uintptr_t p);

/* ---- timing model (timing.c) ---- */
int64_t sg_model(const struct sg_op *op, const struct sg_ctx *ctx, int64_t start);
void sg_sleep_until(int64_t t);

/* ---- events (event.c) ---- */
struct sg_shared_event {
    uint32_t owner, serial;
    uint64_t start;
    _Atomic uint64_t recorded, completed;
};
struct sg_event {
    CUevent handle;
    struct sg_ctx *ctx;
    unsigned flags;
    struct sg_fence *fence; /* of the latest record; NULL: never recorded */
    uint64_t capture;       /* id of the capture that recorded it last, or 0 */
    struct sg_tips tips;
    struct sg_shared_event *shared; /* CU_EVENT_INTERPROCESS */
    int shared_fd;                  /* of the process that made it; -1 otherwise */
};
struct sg_event *sg_event_new_locked(struct sg_ctx *ctx, unsigned flags);
CUresult sg_event_share_locked(struct sg_event *e);
CUresult sg_event_record(CUevent hEvent, CUstream hStream, bool external);
CUresult sg_event_for_launch(CUevent hEvent); /* whether a launch may record it: no timing, one process */
bool sg_event_shared_done(const struct sg_event *e);
CUresult sg_event_shared_record_locked(struct sg_stream *s, struct sg_event *e);
CUresult sg_event_shared_wait_locked(struct sg_stream *s, struct sg_event *e);
/* What the stream's last operation completes is the event's latest record. */
CUresult sg_event_recorded_locked(struct sg_stream *s, struct sg_event *e);

#include "graph.h"

#endif
