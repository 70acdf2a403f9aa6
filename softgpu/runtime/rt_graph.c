/* SPDX-License-Identifier: Apache-2.0 */
/* Capture and graphs. What the runtime and the driver both declare has one layout. */
#include "rt.h"

#include <string.h>

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "one layout, two names");
_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS), "one layout, two names");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo), "one layout, two names");
_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS), "one layout, two names");
_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "one layout, two names");
_Static_assert((int)cudaGraphNodeTypeEventRecord == (int)CU_GRAPH_NODE_TYPE_EVENT_RECORD, "one list, two names");

#define EDGES(p) (const CUgraphEdgeData *)(p)

/* ---- capture ---- */

RT_STREAM(cudaStreamBeginCapture, ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode), StreamBeginCapture,
          stream, (CUstreamCaptureMode)mode)
RT_STREAM(cudaStreamEndCapture, ptsz, (cudaStream_t stream, cudaGraph_t *graph), StreamEndCapture, stream, graph)
RT_STREAM(cudaStreamIsCapturing, ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus *status), StreamIsCapturing,
          stream, (CUstreamCaptureStatus *)status)
RT_STREAM(cudaStreamGetCaptureInfo, ptsz,
          (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
           const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count),
          StreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, dependencies,
          (const CUgraphEdgeData **)edges, count)
RT_PLAIN(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), ThreadExchangeStreamCaptureMode,
         (CUstreamCaptureMode *)mode)

RT_STREAM(cudaStreamBeginCaptureToGraph, ptsz,
          (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
           size_t count, enum cudaStreamCaptureMode mode),
          StreamBeginCaptureToGraph, stream, graph, dependencies, EDGES(edges), count, (CUstreamCaptureMode)mode)
RT_STREAM(cudaStreamUpdateCaptureDependencies, ptsz,
          (cudaStream_t stream, cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges, size_t count,
           unsigned int flags),
          StreamUpdateCaptureDependencies, stream, dependencies, EDGES(edges), count, flags)

/* ---- graphs ---- */

RT_PLAIN(cudaGraphCreate, (cudaGraph_t * graph, unsigned int flags), GraphCreate, graph, flags)
RT_PLAIN(cudaGraphDestroy, (cudaGraph_t graph), GraphDestroy, graph)
RT_PLAIN(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), GraphClone, clone, graph)
RT_PLAIN(cudaGraphNodeFindInClone, (cudaGraphNode_t * found, cudaGraphNode_t node, cudaGraph_t clone),
         GraphNodeFindInClone, found, node, clone)
RT_PLAIN(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type), GraphNodeGetType, node,
         (CUgraphNodeType *)type)
RT_PLAIN(cudaGraphDestroyNode, (cudaGraphNode_t node), GraphDestroyNode, node)
RT_PLAIN(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count), GraphGetNodes, graph, nodes,
         count)
RT_PLAIN(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count), GraphGetRootNodes, graph,
         nodes, count)
RT_PLAIN(cudaGraphGetEdges,
         (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges, size_t *count),
         GraphGetEdges, graph, from, to, (CUgraphEdgeData *)edges, count)
RT_PLAIN(cudaGraphNodeGetDependencies,
         (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count),
         GraphNodeGetDependencies, node, nodes, (CUgraphEdgeData *)edges, count)
RT_PLAIN(cudaGraphNodeGetDependentNodes,
         (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *count),
         GraphNodeGetDependentNodes, node, nodes, (CUgraphEdgeData *)edges, count)
RT_PLAIN(cudaGraphAddDependencies,
         (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
          size_t count),
         GraphAddDependencies, graph, from, to, EDGES(edges), count)
RT_PLAIN(cudaGraphRemoveDependencies,
         (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
          size_t count),
         GraphRemoveDependencies, graph, from, to, EDGES(edges), count)

/* ---- nodes whose parameters are the driver's ---- */

#define ADDS cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count

RT_PLAIN(cudaGraphAddEmptyNode, (ADDS), GraphAddEmptyNode, node, graph, dependencies, count)
RT_PLAIN(cudaGraphAddChildGraphNode, (ADDS, cudaGraph_t child), GraphAddChildGraphNode, node, graph, dependencies,
         count, child)
RT_PLAIN(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *graph), GraphChildGraphNodeGetGraph, node,
         graph)
RT_PLAIN(cudaGraphAddEventRecordNode, (ADDS, cudaEvent_t event), GraphAddEventRecordNode, node, graph, dependencies,
         count, event)
RT_PLAIN(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event), GraphEventRecordNodeGetEvent,
         node, event)
RT_PLAIN(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event), GraphEventRecordNodeSetEvent,
         node, event)
RT_PLAIN(cudaGraphAddEventWaitNode, (ADDS, cudaEvent_t event), GraphAddEventWaitNode, node, graph, dependencies, count,
         event)
RT_PLAIN(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event), GraphEventWaitNodeGetEvent, node,
         event)
RT_PLAIN(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event), GraphEventWaitNodeSetEvent, node,
         event)
RT_PLAIN(cudaGraphAddHostNode, (ADDS, const struct cudaHostNodeParams *params), GraphAddHostNode, node, graph,
         dependencies, count, (const CUDA_HOST_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, struct cudaHostNodeParams *params), GraphHostNodeGetParams,
         node, (CUDA_HOST_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const struct cudaHostNodeParams *params),
         GraphHostNodeSetParams, node, (const CUDA_HOST_NODE_PARAMS *)params)

RT_PLAIN(cudaGraphAddMemAllocNode, (ADDS, struct cudaMemAllocNodeParams *params), GraphAddMemAllocNode, node, graph,
         dependencies, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphMemAllocNodeGetParams, (cudaGraphNode_t node, struct cudaMemAllocNodeParams *params),
         GraphMemAllocNodeGetParams, node, (CUDA_MEM_ALLOC_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphAddMemFreeNode, (ADDS, void *pointer), GraphAddMemFreeNode, node, graph, dependencies, count,
         rt_ptr(pointer))
RT_PLAIN(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *pointer), GraphMemFreeNodeGetParams, node,
         (CUdeviceptr *)pointer)
RT_PLAIN(cudaDeviceGraphMemTrim, (int device), DeviceGraphMemTrim, device)
RT_PLAIN(cudaDeviceGetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attribute, void *value),
         DeviceGetGraphMemAttribute, device, (CUgraphMem_attribute)attribute, value)
RT_PLAIN(cudaDeviceSetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attribute, void *value),
         DeviceSetGraphMemAttribute, device, (CUgraphMem_attribute)attribute, value)

/* ---- executable graphs ---- */

RT_PLAIN(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
         GraphInstantiateWithFlags, exec, graph, flags)
RT_PLAIN(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
         GraphInstantiateWithFlags, exec, graph, flags)
RT_STREAM(cudaGraphInstantiateWithParams, ptsz,
          (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams *params), GraphInstantiateWithParams,
          exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params)
RT_PLAIN(cudaGraphExecDestroy, (cudaGraphExec_t exec), GraphExecDestroy, exec)
RT_PLAIN(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags), GraphExecGetFlags, exec,
         (cuuint64_t *)flags)
RT_PLAIN(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
         GraphExecUpdate, exec, graph, (CUgraphExecUpdateResultInfo *)info)
RT_STREAM(cudaGraphUpload, ptsz, (cudaGraphExec_t exec, cudaStream_t stream), GraphUpload, exec, stream)
RT_STREAM(cudaGraphLaunch, ptsz, (cudaGraphExec_t exec, cudaStream_t stream), GraphLaunch, exec, stream)
RT_PLAIN(cudaGraphExecHostNodeSetParams,
         (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaHostNodeParams *params),
         GraphExecHostNodeSetParams, exec, node, (const CUDA_HOST_NODE_PARAMS *)params)
RT_PLAIN(cudaGraphExecChildGraphNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child),
         GraphExecChildGraphNodeSetParams, exec, node, child)
RT_PLAIN(cudaGraphExecEventRecordNodeSetEvent, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
         GraphExecEventRecordNodeSetEvent, exec, node, event)
RT_PLAIN(cudaGraphExecEventWaitNodeSetEvent, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
         GraphExecEventWaitNodeSetEvent, exec, node, event)
RT_PLAIN(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
         GraphNodeSetEnabled, exec, node, enabled)
RT_PLAIN(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
         GraphNodeGetEnabled, exec, node, enabled)

/* ---- user objects ---- */

RT_PLAIN(cudaUserObjectCreate,
         (cudaUserObject_t * object, void *pointer, cudaHostFn_t destroy, unsigned int count, unsigned int flags),
         UserObjectCreate, object, pointer, destroy, count, flags)
RT_PLAIN(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count), UserObjectRetain, object, count)
RT_PLAIN(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count), UserObjectRelease, object, count)
RT_PLAIN(cudaGraphRetainUserObject,
         (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags), GraphRetainUserObject,
         graph, object, count, flags)
RT_PLAIN(cudaGraphReleaseUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
         GraphReleaseUserObject, graph, object, count)
