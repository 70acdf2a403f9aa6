/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, captures, executable graphs and user objects. Part of sg.h.
 *
 * A node holds the operations that a launch of it queues, checked when the node is made: memory that is gone, or whose
 * address another block has by the time of a launch, is the program's fault and reported there.
 *
 * An executable graph has its own copy of the graph, and a plan of it: steps in an order that respects every edge, each
 * on a lane. A lane is a stream, and in a plan every step but the first of a lane depends directly on the one before
 * it, so lanes add no order that the graph does not have: nodes without an order between them run at the same time, and
 * the race oracle sees them as two queues. The first lane of the launching stream's context is that stream. Other lanes
 * are hidden streams of the executable graph, whose launches follow one another anyway. */
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

struct sg_node {
    CUgraphNode handle;
    CUgraphNode source; /* of a copy: the node that it was made from */
    CUgraphNodeType type;
    struct sg_graph *graph;
    struct sg_ctx *ctx; /* where it runs; NULL: where the graph is launched */
    struct sg_op **ops; /* what a launch queues, in this order */
    unsigned nops;
    CUevent event;               /* of event nodes */
    struct sg_graph *child;      /* of child graph nodes */
    struct sg_cond *cond;        /* of conditional nodes */
    struct sg_graph_mem *memory; /* of allocation and free nodes: a reference */
    struct sg_node **deps;
    unsigned ndeps;
    bool captured; /* a stream recorded it; else it was made by hand */
    bool disabled, mark;
    size_t index; /* in its graph; set and used within one call */
    void *shown;  /* what the last question for its parameters got a pointer to */
};
struct sg_object_refs { /* references to one user object that a graph owns */
    struct sg_object_refs *next;
    struct sg_object *object;
    unsigned count;
};
struct sg_graph {
    CUgraph handle;
    struct sg_node **nodes; /* in the order in which they were made */
    size_t count, cap;
    struct sg_node *owner; /* the node that it is embedded in */
    CUgraph source;        /* of a clone: the graph that it was made from */
    unsigned captures;     /* that record into it */
    bool instantiated;     /* with memory of its own or conditional nodes: only once at a time */
    struct sg_object_refs *objects;
};

/* ---- graph.c ---- */
struct sg_graph *sg_graph_new_locked(void);
void sg_graph_destroy_locked(struct sg_graph *g);
struct sg_graph *sg_graph_copy_locked(const struct sg_graph *from); /* the program may not copy all of them */
struct sg_node *sg_node_add_locked(struct sg_graph *g, CUgraphNodeType type, struct sg_ctx *ctx);
void sg_node_free_locked(struct sg_node *n); /* out of its graph, with all of its edges */
void sg_node_op(struct sg_node *n, struct sg_op *op);
void sg_node_drop_ops_locked(struct sg_node *n);
bool sg_node_depends(const struct sg_node *n, const struct sg_node *on); /* directly */
void sg_node_dep(struct sg_node *n, struct sg_node *on);
void sg_node_dep_drop(struct sg_node *n, const struct sg_node *on);
CUgraphNodeType sg_node_type_of(const struct sg_op *op);
bool sg_nodes_of_locked(const struct sg_graph *g, const CUgraphNode *nodes, size_t n); /* all of them, none twice */
/* Whether all edges are plain ones; others are for kernels that start each other, which there are none of here. */
bool sg_edges_plain(const CUgraphEdgeData *edges, size_t n);

struct sg_node *sg_graph_copied_locked(const struct sg_graph *copy, CUgraphNode from); /* the node's copy, or NULL */

/* ---- graph_params.c: what parameters say that a node does ---- */
#define SG_WORK_OPS 256
struct sg_work {
    CUgraphNodeType type;
    struct sg_ctx *ctx;
    struct sg_op *ops[SG_WORK_OPS];
    unsigned nops;
    CUevent event;
    struct sg_graph *child; /* a copy, or moved here */
    bool moved;
};
CUresult sg_work_of(const CUgraphNodeParams *p, struct sg_work *w); /* takes the lock */
void sg_work_drop_locked(struct sg_work *w);
void sg_work_into_locked(struct sg_work *w, struct sg_node *n); /* replaces what the node did */
CUresult sg_params_of_locked(struct sg_node *n, CUgraphNodeParams *p);
CUmemorytype sg_copy_type(const struct sg_op *op, uintptr_t end); /* of an end of a copy, as parameters name it */

/* ---- graph_update.c ---- */
/* What is wrong with an executable graph's node doing this from now on. */
CUgraphExecUpdateResult sg_change_of(const struct sg_node *have, struct sg_op *const *ops, unsigned nops,
                                     const struct sg_ctx *ctx);
/* Whether the ends of two copies are named by one type, and are of one kind of memory: cuMemCreate's, of one device and with
 * access for the same ones, or another. */
bool sg_ends_alike(const struct sg_op *a, const struct sg_op *b);
CUresult sg_exec_set_child(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph child); /* takes the lock */

/* ---- graph_exec.c, graph_plan.c ---- */
struct sg_step {
    struct sg_node *node; /* NULL: order alone, the begin or the end of a child graph */
    struct sg_ctx *ctx;
    unsigned *deps; /* earlier steps */
    unsigned ndeps, lane;
    bool last; /* nothing depends on it */
};
struct sg_lane {
    struct sg_ctx *ctx; /* NULL: the launching stream's */
    CUstream stream;    /* hidden; NULL: none yet */
    unsigned tail;
};
struct sg_exec {
    CUgraphExec handle;
    struct sg_graph *graph; /* its own copy; the nodes' sources are the nodes that setters name */
    CUgraph source;         /* that it was made from */
    unsigned long long flags;
    struct sg_step *steps;
    struct sg_lane *lanes;
    unsigned count, nlanes;
    struct sg_fence *last; /* of the latest launch */
};
/* False when the graph has a cycle; *bad is a node of it. */
bool sg_plan_locked(struct sg_exec *e, struct sg_node **bad);
void sg_plan_drop(struct sg_exec *e);
CUresult sg_exec_launch_locked(struct sg_exec *e, struct sg_stream *s);

/* ---- conditional.c ---- */
struct sg_cond { /* of one node */
    CUgraphConditionalHandle handle;
    CUgraphConditionalNodeType type;
    unsigned size;        /* bodies */
    struct sg_exec *runs; /* of each body: its graph; in an executable graph its plan and lanes, too */
    CUgraph *shown;       /* the bodies, as the program sees them */
    CUstream stream;      /* hidden: where they are launched; NULL: none yet */
};
CUresult sg_cond_add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n,
                     CUDA_CONDITIONAL_NODE_PARAMS *p); /* takes the lock */
void sg_cond_copy_locked(struct sg_node *to, const struct sg_cond *from);
void sg_cond_free_locked(struct sg_cond *c);
bool sg_graph_has_conditionals(const struct sg_graph *g);
bool sg_cond_unfinished_locked(const struct sg_graph *g);
/* Plans all bodies. False: *bad is a node that may not be there. */
bool sg_cond_plan_locked(struct sg_graph *g, struct sg_node **bad);
/* Gives the handles their values, at the begin of a launch. */
struct sg_op *sg_cond_begin_locked(const struct sg_graph *g);
void sg_cond_update_locked(struct sg_node *n, const struct sg_cond *from, struct sg_graph *keep);

/* ---- graph_memory.c ---- */
CUresult sg_graph_add_alloc(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n,
                            CUDA_MEM_ALLOC_NODE_PARAMS *p); /* these two take the lock */
CUresult sg_graph_add_free(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n, CUdeviceptr p);
void sg_graph_mem_ref_locked(struct sg_graph_mem *gm);
void sg_graph_mem_unref_locked(struct sg_graph_mem *gm);
bool sg_graph_mem_usable(const struct sg_mem *m); /* no graph's, or allocated now */
struct sg_op *sg_graph_mem_op(const struct sg_mem *m, const char *what);
void sg_graph_mem_freed_locked(struct sg_mem *m); /* by other means than nodes */
bool sg_graph_has_memory(const struct sg_graph *g);
CUresult sg_capture_alloc_locked(struct sg_stream *s, size_t bytes, CUdeviceptr *out);
CUresult sg_capture_free_locked(struct sg_stream *s, CUdeviceptr p);
CUresult sg_graph_mem_may_launch_locked(const struct sg_exec *e);
void sg_graph_mem_launched_locked(const struct sg_exec *e);

/* ---- user_object.c ---- */
/* Destroys it when the launch has run; NULL: at once. */
void sg_graph_leave_locked(struct sg_graph *g, struct sg_fence *after);
void sg_objects_drop_locked(struct sg_graph *g);
void sg_objects_copy_locked(struct sg_graph *to, const struct sg_graph *from);
void sg_objects_fence_done_locked(void); /* some operation has run */

/* ---- captures: capture.c, capture_event.c, capture_api.c ---- */
struct sg_capture {
    struct sg_capture *next;
    uint64_t id;
    struct sg_graph *graph;
    struct sg_stream *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
    bool given; /* the graph is the program's, not the capture's */
};
struct sg_node *sg_capture_node_locked(struct sg_stream *s, CUgraphNodeType type); /* behind the stream's tips */
CUresult sg_capture_op_locked(struct sg_stream *s, struct sg_op *op);
CUresult sg_capture_break_locked(struct sg_capture *c, CUresult rc); /* invalidates; returns rc */
CUresult sg_capture_refuse_locked(struct sg_stream *s);              /* a call that a capturing stream does not allow */
CUresult sg_capture_unsafe_locked(void);                             /* a call that a global capture does not allow */
void sg_capture_detach_locked(struct sg_capture *c);                 /* its streams record no more; frees it */
struct sg_capture *sg_capture_begin_locked(struct sg_stream *s, struct sg_graph *g, CUstreamCaptureMode mode);
CUstreamCaptureMode sg_capture_exchange_mode(CUstreamCaptureMode mode);
bool sg_capture_active_in_locked(struct sg_ctx *ctx); /* a blocking stream captures */
void sg_capture_leave_locked(struct sg_stream *s);    /* its stream is destroyed */
/* The legacy stream is used while a blocking stream captures: breaks the capture. Returns the error. */
CUresult sg_capture_implicit_locked(struct sg_ctx *ctx);
CUresult sg_capture_sync_locked(struct sg_ctx *ctx); /* SOFTGPU_CTXSYNC: no waiting for a context that captures */
struct sg_capture *sg_capture_find_locked(uint64_t id);
CUresult sg_capture_record_locked(struct sg_stream *s, struct sg_event *e, bool external);
/* The stream captures, or the event was recorded by a capture. External only when the stream captures. */
CUresult sg_capture_wait_locked(struct sg_stream *s, struct sg_event *e, bool external);
/* Asking the host about the event: an error when a capture has recorded it, which breaks a capture that goes on. */
CUresult sg_capture_refuse_event_locked(const struct sg_event *e);
void sg_tips_add(struct sg_tips *t, CUgraphNode node);
void sg_tips_join(struct sg_tips *t, const struct sg_tips *more);
void sg_tips_clear(struct sg_tips *t);

#endif
