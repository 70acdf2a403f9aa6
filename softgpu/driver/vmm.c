/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management, the physical side: allocations, and handing them to other processes.
 *
 * An allocation is a file without a name, as all device memory here, and the kernel's own count of who holds the file
 * is the count of who holds the memory: a descriptor that was exported, one under way in a message, an import, a
 * mapping. So it lives as long as CUDA says, whoever dies when.
 *
 * The budget of the device is charged in the process that made the allocation, until nobody has it. How that process
 * knows: what it exports is a second opening of the file (share_fd). Copies of that descriptor, imports and their
 * mappings, in any process, all keep this one opening alive, and with it the shared lock that was taken through it.
 * Once this process has let go itself, an exclusive lock on its first opening succeeds when the others have, too. */
#include "sg.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALLOC_MAGIC 0x636f6c6c61706773ull /* not a legacy IPC block's */

static struct sg_alloc *lingering; /* let go here, and may still be held by others */

static void *key_of(CUmemGenericAllocationHandle handle)
{
    return (void *)(uintptr_t)handle;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sg_device(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    SG_ENTER(cuMemGetAllocationGranularity);
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check_prop(prop);
    if (!rc)
        *granularity = SG_GRANULARITY;
    return rc;
}

/* ---- life and budget ---- */

static void destroy_locked(struct sg_alloc *a)
{
    if (!a->imported)
        sg_devices[a->dev].used -= a->size;
    if (a->imported && a->link != sg_devices[a->dev].link)
        munmap(a->link, SG_LINK_BYTES);
    if (a->hdr)
        munmap(a->hdr, SG_HEADER);
    if (a->fd >= 0)
        close(a->fd);
    free(a);
}

void sg_alloc_sweep_locked(void)
{
    for (struct sg_alloc **at = &lingering; *at;) {
        struct sg_alloc *a = *at;
        if (flock(a->fd, LOCK_EX | LOCK_NB)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        destroy_locked(a);
    }
}

static void let_go_locked(struct sg_alloc *a)
{
    if (a->refs || a->maps)
        return;
    sg_handle_drop_locked(key_of(a->handle));
    if (a->share_fd < 0) {
        destroy_locked(a);
        return;
    }
    close(a->share_fd);
    a->share_fd = -1;
    a->next = lingering;
    lingering = a;
    sg_alloc_sweep_locked();
}

void sg_alloc_ref_map_locked(struct sg_alloc *a)
{
    a->maps++;
}

void sg_alloc_unref_map_locked(struct sg_alloc *a)
{
    a->maps--;
    let_go_locked(a);
}

/* Drivers were seen to free an allocation's books twice when one thread retains it by its address and releases it again
 * while another unmaps or releases it (tests/gpu/retain_race.c), which CUDA's documentation does not say. */
void sg_alloc_books_locked(const struct sg_alloc *a, const char *call)
{
    if (sg_cfg.books && a->retained && !pthread_equal(a->retainer, pthread_self()))
        sg_misuse("%s of an allocation that another thread has retained by its address and not released yet", call);
}

struct sg_alloc *sg_alloc_get_locked(CUmemGenericAllocationHandle handle)
{
    struct sg_alloc *a = sg_handle_get_locked(SG_ALLOC, key_of(handle));

    if (a && !a->refs) {
        sg_misuse("allocation handle %#llx used after it was released; only its mappings are left", handle);
        return NULL;
    }
    return a;
}

static struct sg_alloc *enter_locked(struct sg_alloc *a, CUmemGenericAllocationHandle *out)
{
    a->refs = 1;
    a->handle = (uintptr_t)sg_handle_new_locked(SG_ALLOC, a);
    *out = a->handle;
    return a;
}

static bool map_header(struct sg_alloc *a)
{
    void *p = mmap(NULL, SG_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    a->hdr = p == MAP_FAILED ? NULL : p;
    return a->hdr;
}

static CUresult create_locked(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop)
{
    struct sg_device *d = &sg_devices[prop->location.id];
    struct sg_alloc *a;

    sg_alloc_sweep_locked();
    if (size > sg_cfg.mem_bytes - d->used || !(a = calloc(1, sizeof(*a))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *a = (struct sg_alloc){.size = size,
                           .dev = prop->location.id,
                           .prop = *prop,
                           .link = d->link,
                           .fd = sg_high_fd(memfd_create("softgpu-vmm", MFD_CLOEXEC)),
                           .share_fd = -1};
    d->used += size;
    if (a->fd < 0 || ftruncate(a->fd, (off_t)(SG_HEADER + size)) || !map_header(a)) {
        destroy_locked(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_header_fill(a->hdr, ALLOC_MAGIC, sg_mem_next_id_locked(), size, d);
    enter_locked(a, handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    SG_ENTER(cuMemCreate);
    CUresult rc = check_prop(prop);
    if (rc)
        return rc;
    if (!handle || flags || !size || size % SG_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    rc = create_locked(handle, size, prop);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemRelease);
    sg_acquire();
    struct sg_alloc *a = sg_alloc_get_locked(handle);
    if (a) {
        sg_alloc_books_locked(a, "cuMemRelease");
        if (a->retained && pthread_equal(a->retainer, pthread_self()))
            a->retained--;
        a->refs--;
        let_go_locked(a);
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemRetainAllocationHandle);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked((uintptr_t)addr);
    if (m && m->kind == SG_MEM_MAPPING) {
        m->alloc->refs++;
        m->alloc->retained++;
        m->alloc->retainer = pthread_self();
        *handle = m->alloc->handle;
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    SG_ENTER(cuMemGetAllocationPropertiesFromHandle);
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_alloc *a = sg_alloc_get_locked(handle);
    if (a)
        *prop = a->prop;
    sg_release();
    return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- between processes ---- */

static int open_shared(const struct sg_alloc *a)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd);
    int fd = sg_high_fd(open(path, O_RDWR | O_CLOEXEC));

    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB)) {
        close(fd);
        return -1;
    }
    return fd;
}

static CUresult export_locked(int *out, struct sg_alloc *a)
{
    if (!(a->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (a->share_fd < 0)
        a->share_fd = open_shared(a);
    int fd = a->share_fd < 0 ? -1 : fcntl(a->share_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *out = fd;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType, unsigned long long flags)
{
    SG_ENTER(cuMemExportToShareableHandle);
    if (!shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_alloc *a = sg_alloc_get_locked(handle);
    CUresult rc = a ? export_locked(shareableHandle, a) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

/* The descriptor is the application's and may be anything. */
static bool check_file(struct sg_alloc *a)
{
    struct stat st;

    if (fstat(a->fd, &st) || !S_ISREG(st.st_mode) || st.st_size < SG_HEADER || !map_header(a))
        return false;
    return a->hdr->magic == ALLOC_MAGIC && (off_t)(SG_HEADER + a->hdr->size) == st.st_size;
}

static CUresult import_locked(CUmemGenericAllocationHandle *handle, int fd)
{
    struct sg_alloc *a = calloc(1, sizeof(*a));

    if (!a)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *a = (struct sg_alloc){.imported = true, .link = sg_devices[0].link, .share_fd = -1};
    a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 1024);
    if (a->fd < 0)
        a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (a->fd < 0 || !check_file(a)) {
        destroy_locked(a);
        return CUDA_ERROR_INVALID_VALUE;
    }
    a->size = a->hdr->size;
    a->dev = sg_device_of_uuid(&a->hdr->uuid, 0);
    struct sg_link *link =
        (pid_t)a->hdr->owner_pid == getpid() ? NULL : sg_link_map(a->hdr->owner_pid, a->hdr->link_fd);
    a->link = link ? link : sg_devices[a->dev].link; /* the owner may be gone */
    a->prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = a->dev}};
    enter_locked(a, handle);
    return CUDA_SUCCESS;
}

/* The caller keeps its descriptor. An import can not be exported again: a real driver, too, lists no handle type for
 * it. */
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                                CUmemAllocationHandleType shHandleType)
{
    SG_ENTER(cuMemImportFromShareableHandle);
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    CUresult rc = import_locked(handle, (int)(intptr_t)osHandle);
    sg_release();
    return rc;
}
