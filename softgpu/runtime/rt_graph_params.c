/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs whose parameters differ between the runtime and the driver: copies, fills, kernels, and the general
 * form. */
#include "rt.h"

#include <string.h>

_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS), "one layout, two names");
_Static_assert(sizeof(struct cudaHostNodeParamsV2) == sizeof(CUDA_HOST_NODE_PARAMS_v2), "one layout, two names");
_Static_assert(sizeof(struct cudaChildGraphNodeParams) == sizeof(CUDA_CHILD_GRAPH_NODE_PARAMS),
               "one layout, two names");

#define FILL(p) (const CUDA_MEMSET_NODE_PARAMS *)(p)

/* Nodes run in the current context. */
static CUcontext current(void)
{
    CUcontext ctx = NULL;
    return RT_DRIVER(rt_drv.CtxGetCurrent, &ctx) == CUDA_SUCCESS ? ctx : NULL;
}

/* ---- copies ---- */

static CUmemorytype source_of(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDefault                                        ? CU_MEMORYTYPE_UNIFIED
           : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                            : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype target_of(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDefault                                        ? CU_MEMORYTYPE_UNIFIED
           : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                            : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t to_driver(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out)
{
    if (!p)
        return rt_fail(cudaErrorInvalidValue);
    if (p->srcArray || p->dstArray)
        return rt_fail(cudaErrorNotSupported);
    *out = (CUDA_MEMCPY3D){.srcXInBytes = p->srcPos.x,
                           .srcY = p->srcPos.y,
                           .srcZ = p->srcPos.z,
                           .srcMemoryType = source_of(p->kind),
                           .srcHost = p->srcPtr.ptr,
                           .srcDevice = rt_ptr(p->srcPtr.ptr),
                           .srcPitch = p->srcPtr.pitch,
                           .srcHeight = p->srcPtr.ysize,
                           .dstXInBytes = p->dstPos.x,
                           .dstY = p->dstPos.y,
                           .dstZ = p->dstPos.z,
                           .dstMemoryType = target_of(p->kind),
                           .dstHost = p->dstPtr.ptr,
                           .dstDevice = rt_ptr(p->dstPtr.ptr),
                           .dstPitch = p->dstPtr.pitch,
                           .dstHeight = p->dstPtr.ysize,
                           .WidthInBytes = p->extent.width,
                           .Height = p->extent.height,
                           .Depth = p->extent.depth};
    return cudaSuccess;
}

static void from_driver(const CUDA_MEMCPY3D *p, struct cudaMemcpy3DParms *out)
{
    int from_host = p->srcMemoryType == CU_MEMORYTYPE_HOST, to_host = p->dstMemoryType == CU_MEMORYTYPE_HOST;
    void *from = from_host ? (void *)(uintptr_t)p->srcHost : (void *)p->srcDevice;
    void *to = to_host ? p->dstHost : (void *)p->dstDevice;

    *out =
        (struct cudaMemcpy3DParms){.srcPtr = {from, p->srcPitch, p->WidthInBytes, p->srcHeight},
                                   .dstPtr = {to, p->dstPitch, p->WidthInBytes, p->dstHeight},
                                   .extent = {p->WidthInBytes, p->Height, p->Depth},
                                   .kind = from_host ? (to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                                                     : (to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice)};
}

static struct cudaMemcpy3DParms one_row(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return (struct cudaMemcpy3DParms){.srcPtr = {(void *)(uintptr_t)from, bytes, bytes, 1},
                                      .dstPtr = {to, bytes, bytes, 1},
                                      .extent = {bytes, 1, 1},
                                      .kind = kind};
}

RT_API cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                          size_t count, const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    RT_TRY(rt_enter());
    RT_TRY(to_driver(params, &copy));
    return rt_done(RT_DRIVER(rt_drv.GraphAddMemcpyNode, node, graph, dependencies, count, &copy, current()));
}

RT_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                            const cudaGraphNode_t *dependencies, size_t count, void *to,
                                            const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms params = one_row(to, from, bytes, kind);
    return cudaGraphAddMemcpyNode(node, graph, dependencies, count, &params);
}

RT_API cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    if (!params)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.GraphMemcpyNodeGetParams, node, &copy)));
    from_driver(&copy, params);
    return cudaSuccess;
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    RT_TRY(rt_enter());
    RT_TRY(to_driver(params, &copy));
    return rt_done(RT_DRIVER(rt_drv.GraphMemcpyNodeSetParams, node, &copy));
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *to, const void *from, size_t bytes,
                                                  enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms params = one_row(to, from, bytes, kind);
    return cudaGraphMemcpyNodeSetParams(node, &params);
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    RT_TRY(rt_enter());
    RT_TRY(to_driver(params, &copy));
    return rt_done(RT_DRIVER(rt_drv.GraphExecMemcpyNodeSetParams, exec, node, &copy, current()));
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to,
                                                      const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms params = one_row(to, from, bytes, kind);
    return cudaGraphExecMemcpyNodeSetParams(exec, node, &params);
}

/* ---- fills ---- */

RT_PLAIN(cudaGraphAddMemsetNode,
         (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
          const struct cudaMemsetParams *params),
         GraphAddMemsetNode, node, graph, dependencies, count, FILL(params), current())
RT_PLAIN(cudaGraphMemsetNodeGetParams, (cudaGraphNode_t node, struct cudaMemsetParams *params),
         GraphMemsetNodeGetParams, node, (CUDA_MEMSET_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphMemsetNodeSetParams, (cudaGraphNode_t node, const struct cudaMemsetParams *params),
         GraphMemsetNodeSetParams, node, FILL(params))
RT_PLAIN(cudaGraphExecMemsetNodeSetParams,
         (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemsetParams *params),
         GraphExecMemsetNodeSetParams, exec, node, FILL(params), current())

/* ---- kernels: those of the driver are no functions of the runtime's, and there are no others here ---- */

RT_API cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                          size_t count, const struct cudaKernelNodeParams *params)
{
    (void)node, (void)graph, (void)dependencies, (void)count, (void)params;
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

RT_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS driver;
    if (!params)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.GraphKernelNodeGetParams, node, &driver)));
    return rt_fail(cudaErrorInvalidDeviceFunction);
}

RT_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *params)
{
    (void)node, (void)params;
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

RT_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const struct cudaKernelNodeParams *params)
{
    (void)exec, (void)node, (void)params;
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

/* ---- the general form ---- */

static cudaError_t all_to_driver(const struct cudaGraphNodeParams *p, CUgraphNodeParams *out)
{
    if (!p)
        return rt_fail(cudaErrorInvalidValue);
    memset(out, 0, sizeof(*out));
    out->type = (CUgraphNodeType)p->type;
    memcpy(out->reserved0, p->reserved0, sizeof(out->reserved0));
    out->reserved2 = p->reserved2;
    switch (p->type) {
    case cudaGraphNodeTypeKernel:
        return rt_fail(cudaErrorNoKernelImageForDevice);
    case cudaGraphNodeTypeMemcpy:
        out->memcpy.flags = p->memcpy.flags;
        return to_driver(&p->memcpy.copyParams, &out->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
        memcpy(&out->memset, &p->memset, sizeof(p->memset)); /* the driver's has a context at the end */
        return cudaSuccess;
    case cudaGraphNodeTypeHost:
        memcpy(&out->host, &p->host, sizeof(p->host));
        return cudaSuccess;
    case cudaGraphNodeTypeGraph:
        memcpy(&out->graph, &p->graph, sizeof(p->graph));
        return cudaSuccess;
    case cudaGraphNodeTypeWaitEvent:
        out->eventWait.event = p->eventWait.event;
        return cudaSuccess;
    case cudaGraphNodeTypeEventRecord:
        out->eventRecord.event = p->eventRecord.event;
        return cudaSuccess;
    case cudaGraphNodeTypeEmpty:
        return cudaSuccess;
    default:
        return rt_fail(cudaErrorNotSupported);
    }
}

RT_API cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                    const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams all;
    RT_TRY(rt_enter());
    RT_TRY(all_to_driver(params, &all));
    return rt_done(
        RT_DRIVER(rt_drv.GraphAddNode, node, graph, dependencies, (const CUgraphEdgeData *)edges, count, &all));
}

RT_API cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams all;
    RT_TRY(rt_enter());
    RT_TRY(all_to_driver(params, &all));
    return rt_done(RT_DRIVER(rt_drv.GraphNodeSetParams, node, &all));
}

RT_API cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                              struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams all;
    RT_TRY(rt_enter());
    RT_TRY(all_to_driver(params, &all));
    return rt_done(RT_DRIVER(rt_drv.GraphExecNodeSetParams, exec, node, &all));
}
