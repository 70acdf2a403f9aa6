/* SPDX-License-Identifier: Apache-2.0 */
/* Every driver function that this runtime looks up, in the order, with the version and with the flag that CUDA 13.0's
 * runtime uses (observed by running it on a driver that logs its look-ups).
 *
 *   D(name, version)                    one look-up, CU_GET_PROC_ADDRESS_DEFAULT
 *   S(name, version, version_ptsz)      two: default, then CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
 *
 * The field types come from cudaTypedefs.h by name and version, so a wrong version does not compile.
 */
#ifndef RT_DRIVER_TABLE_H
#define RT_DRIVER_TABLE_H

#define RT_DRIVER_TABLE(D, S)                                                                                          \
    D(Init, 2000)                                                                                                      \
    D(DeviceGet, 2000)                                                                                                 \
    D(DeviceGetCount, 2000)                                                                                            \
    D(DeviceGetName, 2000)                                                                                             \
    D(DeviceTotalMem, 3020)                                                                                            \
    D(DeviceGetAttribute, 2000)                                                                                        \
    D(DeviceGetP2PAttribute, 8000)                                                                                     \
    D(DriverGetVersion, 2020)                                                                                          \
    D(DeviceGetByPCIBusId, 4010)                                                                                       \
    D(DeviceGetPCIBusId, 4010)                                                                                         \
    D(DeviceGetUuid, 9020)                                                                                             \
    D(DeviceGetDefaultMemPool, 11020)                                                                                  \
    D(DeviceSetMemPool, 11020)                                                                                         \
    D(DeviceGetMemPool, 11020)                                                                                         \
    D(DevicePrimaryCtxRetain, 7000)                                                                                    \
    D(DevicePrimaryCtxSetFlags, 11000)                                                                                 \
    D(DevicePrimaryCtxGetState, 7000)                                                                                  \
    D(DevicePrimaryCtxReset, 7000)                                                                                     \
    D(CtxSetCurrent, 4000)                                                                                             \
    D(CtxGetCurrent, 4000)                                                                                             \
    D(CtxGetDevice, 2000)                                                                                              \
    D(CtxGetLimit, 3010)                                                                                               \
    D(CtxSetLimit, 3010)                                                                                               \
    D(CtxGetStreamPriorityRange, 5050)                                                                                 \
    D(CtxSynchronize, 2000)                                                                                            \
    D(MemGetInfo, 3020)                                                                                                \
    D(MemAllocManaged, 6000)                                                                                           \
    D(MemAlloc, 3020)                                                                                                  \
    D(MemAllocPitch, 3020)                                                                                             \
    D(MemFree, 3020)                                                                                                   \
    D(MemFreeHost, 2000)                                                                                               \
    D(MemHostAlloc, 2020)                                                                                              \
    D(MemHostGetDevicePointer, 3020)                                                                                   \
    D(MemHostGetFlags, 2030)                                                                                           \
    D(MemHostRegister, 6050)                                                                                           \
    D(MemHostUnregister, 4000)                                                                                         \
    D(PointerGetAttributes, 7000)                                                                                      \
    S(MemAllocAsync, 11020, 11020)                                                                                     \
    S(MemAllocFromPoolAsync, 11020, 11020)                                                                             \
    S(MemFreeAsync, 11020, 11020)                                                                                      \
    D(MemPoolCreate, 11020)                                                                                            \
    D(MemPoolDestroy, 11020)                                                                                           \
    D(MemPoolSetAccess, 11020)                                                                                         \
    D(MemPoolTrimTo, 11020)                                                                                            \
    D(MemPoolSetAttribute, 11020)                                                                                      \
    D(MemPoolGetAttribute, 11020)                                                                                      \
    S(Memcpy, 4000, 7000)                                                                                              \
    S(MemcpyAsync, 4000, 7000)                                                                                         \
    S(MemcpyPeer, 4000, 7000)                                                                                          \
    S(MemcpyPeerAsync, 4000, 7000)                                                                                     \
    S(MemcpyHtoD, 3020, 7000)                                                                                          \
    S(MemcpyHtoDAsync, 3020, 7000)                                                                                     \
    S(MemcpyDtoH, 3020, 7000)                                                                                          \
    S(MemcpyDtoHAsync, 3020, 7000)                                                                                     \
    S(MemcpyDtoD, 3020, 7000)                                                                                          \
    S(MemcpyDtoDAsync, 3020, 7000)                                                                                     \
    S(Memcpy2DUnaligned, 3020, 7000)                                                                                   \
    S(Memcpy2DAsync, 3020, 7000)                                                                                       \
    S(MemsetD8, 3020, 7000)                                                                                            \
    S(MemsetD8Async, 3020, 7000)                                                                                       \
    S(MemsetD2D8, 3020, 7000)                                                                                          \
    S(MemsetD2D8Async, 3020, 7000)                                                                                     \
    S(LaunchHostFunc, 10000, 10000)                                                                                    \
    D(EventCreate, 2000)                                                                                               \
    S(EventRecord, 2000, 7000)                                                                                         \
    S(EventRecordWithFlags, 11010, 11010)                                                                              \
    D(EventQuery, 2000)                                                                                                \
    D(EventSynchronize, 2000)                                                                                          \
    D(EventDestroy, 4000)                                                                                              \
    D(EventElapsedTime, 12080)                                                                                         \
    D(StreamCreate, 2000)                                                                                              \
    D(StreamCreateWithPriority, 5050)                                                                                  \
    S(StreamGetPriority, 5050, 7000)                                                                                   \
    S(StreamGetDevice, 12080, 12080)                                                                                   \
    S(StreamGetFlags, 5050, 7000)                                                                                      \
    S(StreamGetId, 12000, 12000)                                                                                       \
    D(StreamDestroy, 4000)                                                                                             \
    S(StreamWaitEvent, 3020, 7000)                                                                                     \
    S(StreamAddCallback, 5000, 7000)                                                                                   \
    S(StreamSynchronize, 2000, 7000)                                                                                   \
    S(StreamQuery, 2000, 7000)                                                                                         \
    D(DeviceCanAccessPeer, 4000)                                                                                       \
    D(CtxEnablePeerAccess, 4000)                                                                                       \
    D(CtxDisablePeerAccess, 4000)                                                                                      \
    D(IpcGetEventHandle, 4010)                                                                                         \
    D(IpcOpenEventHandle, 4010)                                                                                        \
    D(IpcGetMemHandle, 4010)                                                                                           \
    D(IpcOpenMemHandle, 11000)                                                                                         \
    D(IpcCloseMemHandle, 4010)                                                                                         \
    D(ProfilerStart, 4000)                                                                                             \
    D(ProfilerStop, 4000)                                                                                              \
    D(GetErrorString, 6000)                                                                                            \
    D(GraphCreate, 10000)                                                                                              \
    D(GraphKernelNodeGetParams, 12000)                                                                                 \
    D(GraphAddMemcpyNode, 10000)                                                                                       \
    D(GraphMemcpyNodeGetParams, 10000)                                                                                 \
    D(GraphMemcpyNodeSetParams, 10000)                                                                                 \
    D(GraphAddMemsetNode, 10000)                                                                                       \
    D(GraphMemsetNodeGetParams, 10000)                                                                                 \
    D(GraphMemsetNodeSetParams, 10000)                                                                                 \
    D(GraphAddHostNode, 10000)                                                                                         \
    D(GraphHostNodeGetParams, 10000)                                                                                   \
    D(GraphHostNodeSetParams, 10000)                                                                                   \
    D(GraphAddChildGraphNode, 10000)                                                                                   \
    D(GraphChildGraphNodeGetGraph, 10000)                                                                              \
    D(GraphAddEmptyNode, 10000)                                                                                        \
    D(GraphAddEventRecordNode, 11010)                                                                                  \
    D(GraphEventRecordNodeGetEvent, 11010)                                                                             \
    D(GraphEventRecordNodeSetEvent, 11010)                                                                             \
    D(GraphAddEventWaitNode, 11010)                                                                                    \
    D(GraphEventWaitNodeGetEvent, 11010)                                                                               \
    D(GraphEventWaitNodeSetEvent, 11010)                                                                               \
    D(GraphAddMemAllocNode, 11040)                                                                                     \
    D(GraphMemAllocNodeGetParams, 11040)                                                                               \
    D(GraphAddMemFreeNode, 11040)                                                                                      \
    D(GraphMemFreeNodeGetParams, 11040)                                                                                \
    D(DeviceGraphMemTrim, 11040)                                                                                       \
    D(DeviceGetGraphMemAttribute, 11040)                                                                               \
    D(DeviceSetGraphMemAttribute, 11040)                                                                               \
    D(GraphClone, 10000)                                                                                               \
    D(GraphNodeFindInClone, 10000)                                                                                     \
    D(GraphNodeGetType, 10000)                                                                                         \
    D(GraphGetNodes, 10000)                                                                                            \
    D(GraphGetRootNodes, 10000)                                                                                        \
    D(GraphGetEdges, 12030)                                                                                            \
    D(GraphNodeGetDependencies, 12030)                                                                                 \
    D(GraphNodeGetDependentNodes, 12030)                                                                               \
    D(GraphAddDependencies, 12030)                                                                                     \
    D(GraphRemoveDependencies, 12030)                                                                                  \
    D(GraphDestroyNode, 10000)                                                                                         \
    D(GraphInstantiateWithFlags, 11040)                                                                                \
    S(GraphUpload, 11010, 11010)                                                                                       \
    S(GraphLaunch, 10000, 10000)                                                                                       \
    D(GraphExecDestroy, 10000)                                                                                         \
    D(GraphDestroy, 10000)                                                                                             \
    S(StreamBeginCapture, 10010, 10010)                                                                                \
    S(StreamBeginCaptureToGraph, 12030, 12030)                                                                         \
    S(StreamEndCapture, 10000, 10000)                                                                                  \
    S(StreamIsCapturing, 10000, 10000)                                                                                 \
    S(StreamGetCaptureInfo, 12030, 12030)                                                                              \
    S(StreamUpdateCaptureDependencies, 12030, 12030)                                                                   \
    D(GraphExecMemcpyNodeSetParams, 10020)                                                                             \
    D(GraphExecMemsetNodeSetParams, 10020)                                                                             \
    D(GraphExecHostNodeSetParams, 10020)                                                                               \
    D(GraphExecChildGraphNodeSetParams, 11010)                                                                         \
    D(GraphExecEventRecordNodeSetEvent, 11010)                                                                         \
    D(GraphExecEventWaitNodeSetEvent, 11010)                                                                           \
    D(ThreadExchangeStreamCaptureMode, 10010)                                                                          \
    D(GraphExecUpdate, 12000)                                                                                          \
    D(UserObjectCreate, 11030)                                                                                         \
    D(UserObjectRetain, 11030)                                                                                         \
    D(UserObjectRelease, 11030)                                                                                        \
    D(GraphRetainUserObject, 11030)                                                                                    \
    D(GraphReleaseUserObject, 11030)                                                                                   \
    D(GraphNodeSetEnabled, 11060)                                                                                      \
    D(GraphNodeGetEnabled, 11060)                                                                                      \
    S(GraphInstantiateWithParams, 12000, 12000)                                                                        \
    D(GraphExecGetFlags, 12000)                                                                                        \
    D(GraphAddNode, 12030)                                                                                             \
    D(GraphNodeSetParams, 12020)                                                                                       \
    D(GraphExecNodeSetParams, 12020)

#endif
