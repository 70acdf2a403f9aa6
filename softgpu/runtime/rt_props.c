/* SPDX-License-Identifier: Apache-2.0 */
/* cudaGetDeviceProperties: name, identity and sizes, then one row per field that is a device attribute. */
#include "rt.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct property {
    size_t offset;
    unsigned bytes; /* 4: int; 8: size_t */
    CUdevice_attribute attribute;
};

#define P(field, attribute)                                                                                            \
    {                                                                                                                  \
        offsetof(struct cudaDeviceProp, field), sizeof(((struct cudaDeviceProp *)0)->field),                           \
            CU_DEVICE_ATTRIBUTE_##attribute                                                                            \
    }

static const struct property properties[] = {
    P(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    P(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    P(warpSize, WARP_SIZE),
    P(memPitch, MAX_PITCH),
    P(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    P(maxThreadsDim[0], MAX_BLOCK_DIM_X),
    P(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
    P(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
    P(maxGridSize[0], MAX_GRID_DIM_X),
    P(maxGridSize[1], MAX_GRID_DIM_Y),
    P(maxGridSize[2], MAX_GRID_DIM_Z),
    P(totalConstMem, TOTAL_CONSTANT_MEMORY),
    P(major, COMPUTE_CAPABILITY_MAJOR),
    P(minor, COMPUTE_CAPABILITY_MINOR),
    P(textureAlignment, TEXTURE_ALIGNMENT),
    P(multiProcessorCount, MULTIPROCESSOR_COUNT),
    P(integrated, INTEGRATED),
    P(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    P(concurrentKernels, CONCURRENT_KERNELS),
    P(ECCEnabled, ECC_ENABLED),
    P(pciBusID, PCI_BUS_ID),
    P(pciDeviceID, PCI_DEVICE_ID),
    P(pciDomainID, PCI_DOMAIN_ID),
    P(asyncEngineCount, ASYNC_ENGINE_COUNT),
    P(unifiedAddressing, UNIFIED_ADDRESSING),
    P(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    P(l2CacheSize, L2_CACHE_SIZE),
    P(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    P(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    P(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    P(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    P(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    P(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    P(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    P(managedMemory, MANAGED_MEMORY),
    P(isMultiGpuBoard, MULTI_GPU_BOARD),
    P(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    P(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    P(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    P(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    P(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    P(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    P(cooperativeLaunch, COOPERATIVE_LAUNCH),
    P(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    P(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    P(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    P(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    P(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    P(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    P(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    P(ipcEventSupported, IPC_EVENT_SUPPORTED),
    P(clusterLaunch, CLUSTER_LAUNCH),
    P(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
#if CUDART_VERSION >= 13000
    P(hostNumaId, HOST_NUMA_ID),
#endif
};

static void fill(struct cudaDeviceProp *prop, CUdevice device)
{
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        const struct property *p = &properties[i];
        int value = 0;
        if (RT_DRIVER(rt_drv.DeviceGetAttribute, &value, p->attribute, device) != CUDA_SUCCESS)
            continue; /* the field stays 0, which says "does not have it" */
        const size_t wide = (size_t)value;
        memcpy((char *)prop + p->offset, p->bytes == sizeof(value) ? (const void *)&value : (const void *)&wide,
               p->bytes);
    }
}

RT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int ordinal)
{
    CUdevice device;
    int count = 0;
    if (!prop)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(cudaGetDeviceCount(&count));
    if (ordinal < 0 || ordinal >= count)
        return rt_fail(cudaErrorInvalidDevice);
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGet, &device, ordinal)));
    memset(prop, 0, sizeof(*prop));
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGetName, prop->name, (int)sizeof(prop->name), device)));
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGetUuid, &prop->uuid, device)));
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceTotalMem, &prop->totalGlobalMem, device)));
    fill(prop, device);
    return cudaSuccess;
}
