/* SPDX-License-Identifier: Apache-2.0 */
/* Events shared between processes: two counters in a memfd page, records made and records completed. The page stays
 * mapped until the process ends, since queued operations may still refer to it when the event is destroyed. */
#include "sg.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct event_handle {
    uint32_t magic, pid;
    int32_t fd;
    uint32_t serial;
    uint64_t start;
};
_Static_assert(sizeof(struct event_handle) <= sizeof(CUipcEventHandle), "the handle fits CUDA's 64 bytes");
#define EVENT_MAGIC 0x45495047u
#define PAGE 4096

static uint32_t next_serial;

CUresult sg_event_share_locked(struct sg_event *e)
{
    int fd = memfd_create("softgpu-event", MFD_CLOEXEC);
    void *p = fd < 0 || ftruncate(fd, PAGE) ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    e->shared = p;
    e->shared->owner = (uint32_t)getpid();
    e->shared->start = sg_own_start();
    e->shared->serial = ++next_serial;
    e->shared_fd = fd;
    return CUDA_SUCCESS;
}

bool sg_event_shared_done(const struct sg_event *e)
{
    return atomic_load(&e->shared->completed) >= atomic_load(&e->shared->recorded);
}

/* Completes the record in stream order; call after the record's own operation was queued. An earlier record on another
 * stream may come later: it must not take back that the latest one is done. */
CUresult sg_event_shared_record_locked(struct sg_stream *s, struct sg_event *e)
{
    struct sg_op *op = sg_op_new(SG_OP_WRITE, "record of an interprocess event");
    uint64_t n = atomic_fetch_add(&e->shared->recorded, 1) + 1;

    op->u.memop = (struct sg_memop){.addr = (uintptr_t)&e->shared->completed, .value = n, .wide = true, .raise = true};
    op->part = true;
    return sg_submit_locked(s, op);
}

CUresult sg_event_shared_wait_locked(struct sg_stream *s, struct sg_event *e)
{
    uint64_t n = atomic_load(&e->shared->recorded);
    struct sg_op *op = sg_op_new(SG_OP_WAIT, "wait for an interprocess event");

    op->u.memop = (struct sg_memop){
        .addr = (uintptr_t)&e->shared->completed, .value = n, .flags = CU_STREAM_WAIT_VALUE_GEQ, .wide = true};
    return sg_submit_locked(s, op);
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuIpcGetEventHandle);
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, event);
    if (!e || !e->shared || e->shared_fd < 0) {
        rc = CUDA_ERROR_INVALID_HANDLE; /* only events made with CU_EVENT_INTERPROCESS, by their maker */
    } else {
        struct event_handle h = {EVENT_MAGIC, e->shared->owner, e->shared_fd, e->shared->serial, e->shared->start};
        memset(pHandle, 0, sizeof(*pHandle));
        memcpy(pHandle, &h, sizeof(h));
    }
    sg_release();
    return rc;
}

static struct sg_shared_event *map_event(const struct event_handle *h)
{
    int fd = h->magic == EVENT_MAGIC ? sg_open_peer_fd(h->pid, h->fd, PAGE) : -1;
    struct sg_shared_event *p = fd < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return NULL;
    if (p->owner == h->pid && p->start == h->start && p->serial == h->serial)
        return p;
    munmap(p, PAGE);
    return NULL;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct event_handle h;
    CUresult rc;

    SG_ENTER(cuIpcOpenEventHandle);
    memcpy(&h, &handle, sizeof(h));
    if (!phEvent || h.magic != EVENT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx && (pid_t)h.pid == getpid()) {
        sg_misuse("cuIpcOpenEventHandle of this process's own event");
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (ctx) {
        struct sg_shared_event *p = map_event(&h);
        struct sg_event *e = p ? sg_event_new_locked(ctx, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) : NULL;
        rc = e ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
        if (e) {
            e->shared = p;
            *phEvent = e->handle;
        }
    }
    sg_release();
    return rc;
}
