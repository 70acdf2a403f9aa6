/* SPDX-License-Identifier: Apache-2.0 */
/* Legacy CUDA IPC: an exported block is reached through the exporter's descriptor in /proc. */
#include "sg.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct handle {
    uint32_t magic;
    uint32_t pid;
    int32_t fd, link_fd;
    uint64_t generation, size, start;
    CUuuid uuid;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "the handle fits CUDA's 64 bytes");
#define HANDLE_MAGIC 0x48495047u /* not the header's, so that neither passes for the other */

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    char what[160];
    CUresult rc;

    SG_ENTER(cuIpcGetMemHandle);
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? sg_mem_find_locked(dptr) : NULL;
    if (!rc && (!m || m->kind != SG_MEM_DEVICE || m->freeing)) {
        if (!m)
            sg_misuse("cuIpcGetMemHandle: %s", sg_mem_describe_locked(dptr, what, sizeof(what)));
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (!rc) {
        struct handle h = {HANDLE_MAGIC, (uint32_t)m->owner,  m->fd,       sg_devices[m->dev].link_fd, m->id,
                           m->size,      m->hdr->owner_start, m->hdr->uuid};
        memset(pHandle, 0, sizeof(*pHandle));
        memcpy(pHandle, &h, sizeof(h));
    }
    sg_release();
    return rc;
}

/* The number may by now belong to anything: only a regular file of the expected size is taken. */
int sg_open_peer_fd(uint32_t pid, int number, size_t bytes)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, number);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || (size_t)st.st_size < bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Notes this process in the block's list of importers, so that its owner can name us. A full list: not noted. */
static struct sg_opener *enlist(struct sg_header *hdr)
{
    uint64_t start = sg_own_start();

    for (int i = 0; i < SG_OPENERS; i++) {
        struct sg_opener *o = &hdr->openers[i];
        uint32_t pid = atomic_load(&o->pid);
        if (pid && sg_process_alive((pid_t)pid, atomic_load(&o->start)))
            continue;
        if (atomic_compare_exchange_strong(&o->pid, &pid, (uint32_t)getpid())) {
            atomic_store(&o->start, start);
            return o;
        }
    }
    return NULL;
}

struct sg_link *sg_link_map(uint32_t pid, int number)
{
    int fd = sg_open_peer_fd(pid, number, SG_LINK_BYTES);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, SG_LINK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* The ordinal that this process knows a device by; `fallback` when that one is not visible here. */
CUdevice sg_device_of_uuid(const CUuuid *uuid, CUdevice fallback)
{
    for (int i = 0; i < sg_device_count; i++)
        if (!memcmp(&sg_devices[i].uuid, uuid, sizeof(*uuid)))
            return i;
    return fallback;
}

static CUresult import_locked(const struct handle *h, struct sg_ctx *ctx, struct sg_mem **out)
{
    struct sg_mem *m = calloc(1, sizeof(*m));
    int fd = m ? sg_open_peer_fd(h->pid, h->fd, h->size) : -1;

    if (fd < 0) {
        free(m);
        return CUDA_ERROR_INVALID_VALUE; /* the exporter freed the block or is gone */
    }
    *m = (struct sg_mem){.size = h->size,
                         .kind = SG_MEM_IMPORT,
                         .dev = sg_device_of_uuid(&h->uuid, ctx->dev),
                         .ctx = sg_root(ctx),
                         .id = h->generation,
                         .refs = 1,
                         .fd = -1,
                         .owner = (pid_t)h->pid};
    if (sg_obj_map_locked(m, fd)) {
        close(fd);
        free(m);
        return CUDA_ERROR_MAP_FAILED;
    }
    if (m->hdr->magic != SG_MAGIC || m->hdr->generation != h->generation || m->hdr->owner_pid != h->pid ||
        m->hdr->owner_start != h->start || atomic_load(&m->hdr->freed)) {
        sg_obj_unmap_locked(m);
        free(m);
        return CUDA_ERROR_INVALID_VALUE;
    }
    m->link = sg_link_map(h->pid, h->link_fd);
    m->opener = enlist(m->hdr);
    sg_mem_insert_locked(m);
    *out = m;
    return CUDA_SUCCESS;
}

/* The context's open import of the same block, by identity rather than by address or descriptor. Each context has its
 * own (CUDA, cuIpcOpenMemHandle). */
static struct sg_mem *imported_locked(const struct handle *h, const struct sg_ctx *ctx)
{
    for (size_t i = 0; sg_mem_at_locked(i); i++) {
        struct sg_mem *m = sg_mem_at_locked(i);
        if (m->kind == SG_MEM_IMPORT && m->owner == (pid_t)h->pid && m->id == h->generation && m->ctx == sg_root(ctx) &&
            m->hdr->owner_start == h->start)
            return m;
    }
    return NULL;
}

static CUresult open_handle(CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned flags)
{
    struct handle h;
    CUresult rc;

    memcpy(&h, handle, sizeof(h));
    if (!pdptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.magic != HANDLE_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx && (pid_t)h.pid == getpid()) {
        sg_misuse("cuIpcOpenMemHandle of this process's own block (generation %lu)", h.generation);
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (ctx) {
        struct sg_mem *m = imported_locked(&h, ctx);
        if (m && !atomic_load(&m->hdr->freed))
            m->refs++;
        else
            rc = import_locked(&h, ctx, &m);
        if (!rc)
            *pdptr = m->base;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SG_ENTER(cuIpcOpenMemHandle);
    return open_handle(pdptr, &handle, Flags);
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SG_ENTER(cuIpcOpenMemHandle_v2);
    return open_handle(pdptr, &handle, Flags);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    char what[160];
    CUresult rc;

    SG_ENTER(cuIpcCloseMemHandle);
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? sg_mem_find_base_locked(dptr) : NULL;
    if (!rc && (!m || m->kind != SG_MEM_IMPORT)) {
        sg_misuse("cuIpcCloseMemHandle of what is not an open import: %s",
                  sg_mem_describe_locked(dptr, what, sizeof(what)));
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (!rc && m->refs == 1) {
        sg_ctx_sync_locked(m->ctx); /* unmapping waits for the work that uses the mapping */
        m = sg_mem_find_base_locked(dptr);
        if (m && m->kind == SG_MEM_IMPORT && --m->refs == 0)
            sg_mem_retire_locked(m);
    } else if (!rc) {
        m->refs--;
    }
    sg_release();
    return rc;
}
