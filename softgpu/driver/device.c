/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: identity, attributes, visibility and what one device may do with another. */
#include "sg.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct sg_device sg_devices[SG_MAX_DEVICES];
int sg_device_count;

static const struct {
    CUdevice_attribute attr;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, SOFTGPU_MULTIPROCESSORS},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
};

/* Stable while the host is up, equal in all its processes, different on another host. */
static void make_uuid(CUuuid *uuid, int physical)
{
    char boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, boot, sizeof(boot) - 1);
    uint64_t h = 14695981039346656037ull;

    if (fd >= 0)
        close(fd);
    for (int i = 0; i < 16; i++) {
        for (ssize_t j = 0; j < n; j++)
            h = (h ^ (unsigned char)boot[j]) * 1099511628211ull;
        h = (h ^ (unsigned)(physical * 16 + i + 1)) * 1099511628211ull;
        uuid->bytes[i] = (char)(h >> 32);
    }
}

static int add_device(int physical)
{
    struct sg_device *d = &sg_devices[sg_device_count];

    for (int i = 0; i < sg_device_count; i++)
        if (sg_devices[i].physical == physical)
            return -1;
    d->physical = physical;
    make_uuid(&d->uuid, physical);
    d->link_fd = memfd_create("softgpu-link", MFD_CLOEXEC);
    if (d->link_fd < 0 || ftruncate(d->link_fd, SG_LINK_BYTES))
        return -1;
    d->link = mmap(NULL, SG_LINK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, d->link_fd, 0);
    if (d->link == MAP_FAILED)
        return -1;
    sg_device_count++;
    return 0;
}

/* An ordinal or a prefix of GPU-<uuid>; CUDA ignores everything from the first entry that names no device. */
static int physical_of(const char *item)
{
    char *end;
    long v = strtol(item, &end, 10);

    if (end != item && !*end)
        return v >= 0 && v < sg_cfg.devices ? (int)v : -1;
    for (int i = 0; i < sg_cfg.devices && !strncmp(item, "GPU-", 4); i++) {
        CUuuid u;
        char text[48] = "GPU-";
        int n = 4;
        make_uuid(&u, i);
        for (int b = 0; b < 16; b++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%02x", strchr("\4\6\10\12", b) && b ? "-" : "",
                          (unsigned char)u.bytes[b]);
        if (!strncmp(item, text, strlen(item)))
            return i;
    }
    return -1;
}

/* One memfd per allocation: the usual soft limit of 1024 descriptors is soon reached. */
static void raise_fd_limit(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

CUresult sg_devices_init(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *copy = visible ? strdup(visible) : NULL, *save = NULL;

    raise_fd_limit();
    for (int i = 0; !visible && i < sg_cfg.devices; i++)
        add_device(i);
    if (copy)
        for (char *item = strtok_r(copy, ", ", &save); item; item = strtok_r(NULL, ", ", &save))
            if (physical_of(item) < 0 || add_device(physical_of(item)))
                break;
    free(copy);
    return sg_device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

struct sg_device *sg_device(CUdevice dev)
{
    return dev >= 0 && dev < sg_device_count ? &sg_devices[dev] : NULL;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    SG_ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sg_device_count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    SG_ENTER(cuDeviceGet);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SG_ENTER(cuDeviceGetName);
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    const char *own = getenv("SOFTGPU_NAME");
    snprintf(name, (size_t)len, "%s", own && *own ? own : "softgpu");
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *uuid = sg_device(dev)->uuid;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SG_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, dev);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    SG_ENTER(cuDeviceGetUuid_v2);
    return get_uuid(uuid, dev);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    SG_ENTER(cuDeviceTotalMem_v2);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sg_cfg.mem_bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    SG_ENTER(cuDeviceGetAttribute);
    if (!pi || (int)attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *pi = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? sg_device(dev)->physical + 1 : 0;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (attributes[i].attr == attrib)
            *pi = attributes[i].value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    SG_ENTER(cuDeviceComputeCapability);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    SG_ENTER(cuDeviceGetPCIBusId);
    if (!pciBusId || len < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)sg_device(dev)->physical + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned domain, bus, slot;

    SG_ENTER(cuDeviceGetByPCIBusId);
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < sg_device_count; i++)
        if (!domain && !slot && bus == (unsigned)sg_devices[i].physical + 1) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    SG_ENTER(cuDeviceCanAccessPeer);
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev) || !sg_device(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice src, CUdevice dst)
{
    SG_ENTER(cuDeviceGetP2PAttribute);
    if (!sg_device(src) || !sg_device(dst) || src == dst)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK || (int)attrib > 6)
        return CUDA_ERROR_INVALID_VALUE;
    *value =
        attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return CUDA_SUCCESS;
}
