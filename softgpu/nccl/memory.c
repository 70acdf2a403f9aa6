/* SPDX-License-Identifier: Apache-2.0 */
/* ncclMemAlloc and registration. Registration only speeds things up, so here it keeps the books and checks them, and a
 * window is registered when all ranks have asked for it. */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* As the real one: memory of the virtual memory management unless that is switched off. */
static int plain_memory(void)
{
    const char *own = getenv("SOFTGPU_NCCL_MEM"), *cumem = getenv("NCCL_CUMEM_ENABLE");
    return (own && !strcmp(own, "legacy")) || (cumem && !strcmp(cumem, "0"));
}

/* The device of the allocation and all that reach it may use it. */
static CUresult allow_all(const struct softdrv *drv, CUdeviceptr p, size_t size, CUdevice own)
{
    int devices = 0;
    CUresult rc = drv->cuDeviceGetCount(&devices);
    for (int d = 0; d < devices && rc == CUDA_SUCCESS; d++) {
        CUmemAccessDesc desc = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        int reach = d == own;
        if (!reach)
            rc = drv->cuDeviceCanAccessPeer(&reach, d, own);
        if (rc == CUDA_SUCCESS && reach)
            rc = drv->cuMemSetAccess(p, size, &desc, 1);
    }
    return rc;
}

static CUresult map_new(const struct softdrv *drv, CUdeviceptr *out, size_t size, CUmemGenericAllocationHandle handle,
                        CUdevice dev)
{
    CUdeviceptr p;
    CUresult rc = drv->cuMemAddressReserve(&p, size, 0, 0, 0);
    if (rc != CUDA_SUCCESS)
        return rc;
    if ((rc = drv->cuMemMap(p, size, 0, handle, 0)) == CUDA_SUCCESS) {
        *out = p;
        if ((rc = allow_all(drv, p, size, dev)) == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        drv->cuMemUnmap(p, size);
    }
    drv->cuMemAddressFree(p, size);
    return rc;
}

/* The handle stays with the mapping; ncclMemFree gets it back from there. */
static CUresult vmm_alloc(const struct softdrv *drv, CUdeviceptr *out, size_t size)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    size_t unit = 0;
    CUdevice dev;
    CUresult rc = drv->cuCtxGetDevice(&dev);
    prop.location.id = dev;
    if (rc == CUDA_SUCCESS)
        rc = drv->cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (size > SIZE_MAX - unit)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size = (size + unit - 1) / unit * unit;
    if ((rc = drv->cuMemCreate(&handle, size, &prop, 0)) != CUDA_SUCCESS)
        return rc;
    if ((rc = map_new(drv, out, size, handle, dev)) != CUDA_SUCCESS)
        drv->cuMemRelease(handle);
    return rc;
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx;
    CUdeviceptr mem = 0;
    if (!ptr || !size)
        return nccl_warn(ncclInvalidArgument, "MemAlloc : ptr is NULL or size is 0");
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS ||
        (plain_memory() ? drv->cuMemAlloc(&mem, size) : vmm_alloc(drv, &mem, size)) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "MemAlloc : no memory for %zu bytes", size);
    *ptr = (void *)mem;
    return ncclSuccess;
}
NCCL_ALIAS(ncclMemAlloc);

static CUresult vmm_free(const struct softdrv *drv, CUdeviceptr p, CUmemGenericAllocationHandle retained)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult rc = drv->cuMemRelease(retained), one;
    if (rc != CUDA_SUCCESS || (rc = drv->cuMemGetAddressRange(&base, &size, p)) != CUDA_SUCCESS)
        return rc;
    if (base != p)
        return CUDA_ERROR_INVALID_VALUE;
    rc = drv->cuMemUnmap(p, size);
    if ((one = drv->cuMemRelease(retained)) != CUDA_SUCCESS)
        rc = one;
    if ((one = drv->cuMemAddressFree(p, size)) != CUDA_SUCCESS)
        rc = one;
    return rc;
}

/* ---- books of registrations ---- */

struct registration {
    struct registration *next;
    struct ncclComm *comm; /* not a reference: only compared */
    uintptr_t handle;      /* a serial number, so that one that is gone is recognised */
    int window;
    const char *buff;
    size_t size;
};
static struct registration *registrations;
static uintptr_t handles;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct registration *find_over(const char *p)
{
    struct registration *r = registrations;
    while (r && (uintptr_t)(p - r->buff) >= r->size)
        r = r->next;
    return r;
}

static void report_registered(const void *ptr)
{
    pthread_mutex_lock(&lock);
    const struct registration *r = find_over(ptr);
    pthread_mutex_unlock(&lock);
    if (r)
        nccl_misuse(ncclSuccess, "MemFree of %p, which is still registered%s", ptr, r->window ? " in a window" : "");
}

ncclResult_t ncclMemFree(void *ptr)
{
    const struct softdrv *drv = softdrv_get();
    CUmemGenericAllocationHandle handle;
    CUresult rc;
    if (!ptr)
        return ncclSuccess;
    report_registered(ptr);
    if (!drv)
        return ncclUnhandledCudaError;
    if (drv->cuMemRetainAllocationHandle(&handle, ptr) == CUDA_SUCCESS)
        rc = vmm_free(drv, (CUdeviceptr)ptr, handle);
    else
        rc = drv->cuMemFree((CUdeviceptr)ptr);
    if (rc != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "MemFree : can not free %p", ptr);
    return ncclSuccess;
}
NCCL_ALIAS(ncclMemFree);

static ncclResult_t enter(struct ncclComm *comm, void *buff, size_t size, int window, void **handle)
{
    struct registration *r = malloc(sizeof *r);
    if (!r)
        return ncclSystemError;
    pthread_mutex_lock(&lock);
    *r = (struct registration){registrations, comm, ((uintptr_t)0x5b << 56) + (++handles << 4), window, buff, size};
    registrations = r;
    pthread_mutex_unlock(&lock);
    *handle = (void *)r->handle;
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm, const char *who, const void *handle, int window)
{
    struct registration *found = NULL;
    if (!handle)
        return ncclSuccess;
    pthread_mutex_lock(&lock);
    int once = ((uintptr_t)handle & ~((uintptr_t)0xff << 56)) >> 4 <= handles && (uintptr_t)handle >> 56 == 0x5b;
    for (struct registration **at = &registrations; *at; at = &(*at)->next)
        if ((*at)->handle == (uintptr_t)handle && (*at)->comm == comm && (*at)->window == window) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(found);
    return found ? ncclSuccess
                 : nccl_misuse(ncclInvalidArgument, "%s : handle %p %s", who, handle,
                               once ? "was deregistered before, or belongs to another communicator or call"
                                    : "was never given out");
}

int registered_with(const struct ncclComm *comm, const void *p, size_t bytes)
{
    int found = !bytes;
    pthread_mutex_lock(&lock);
    for (const struct registration *r = registrations; r && !found; r = r->next) {
        size_t at = (size_t)((const char *)p - r->buff);
        found = r->comm == comm && at <= r->size && bytes <= r->size - at;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int registrations_drop(const struct ncclComm *comm)
{
    int windows = 0;
    pthread_mutex_lock(&lock);
    for (struct registration **at = &registrations; *at;) {
        struct registration *r = *at;
        if (r->comm != comm) {
            at = &r->next;
            continue;
        }
        windows += r->window;
        *at = r->next;
        free(r);
    }
    pthread_mutex_unlock(&lock);
    return windows;
}

static ncclResult_t check(ncclComm_t comm, const char *who, const void *buff, size_t size, const void *handle,
                          struct ncclComm **out)
{
    ncclResult_t rc = comm_get_ready(comm, who, out);
    if (rc != ncclSuccess || (handle && buff && size))
        return rc;
    comm_put(*out);
    return nccl_warn(ncclInvalidArgument, "%s : NULL buffer or handle, or no size", who);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    struct ncclComm *c;
    ncclResult_t rc = check(comm, "CommRegister", buff, size, handle, &c);
    if (rc != ncclSuccess)
        return rc;
    rc = enter(c, buff, size, 0, handle);
    comm_put(c);
    return rc;
}
NCCL_ALIAS(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return leave(comm, "CommDeregister", handle, 0);
}
NCCL_ALIAS(ncclCommDeregister);

/* ---- windows ---- */

static void turn_over(const struct job *job)
{
    uint64_t now = atomic_load(&job->parent->windows_met);
    while (now < job->seq && !atomic_compare_exchange_weak(&job->parent->windows_met, &now, job->seq))
        ;
}

/* Ranks meet in the order of their calls: the n-th registration of a rank waits for the n-th of every other one. Each
 * rank writes only its own count, which only grows, and a rank that has gone ends the wait. */
static ncclResult_t run_window(struct job *job)
{
    struct ncclComm *c = job->parent;
    ncclResult_t rc = ncclSuccess;
    job_wait_for_turn(job, &c->windows_met);
    atomic_store(&block_me(&c->block)->window_seq, job->seq);
    block_ring_all(&c->block);
    for (int r = 0; r < c->nranks && rc == ncclSuccess; r++)
        rc = job_wait_for_rank(job, r, &c->block.slots[r].window_seq);
    turn_over(job);
    return rc == ncclSuccess ? enter(c, job->buff, job->size, 1, (void **)job->win) : rc;
}

static ncclResult_t window_register(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags)
{
    struct ncclComm *c;
    if (flags & ~NCCL_WIN_COLL_SYMMETRIC)
        return nccl_warn(ncclInvalidArgument, "CommWindowRegister : invalid flags %d", flags);
    ncclResult_t rc = check(comm, "CommWindowRegister", buff, size, win, &c);
    if (rc != ncclSuccess)
        return rc;
    struct job *job = (uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT ? NULL : calloc(1, sizeof *job);
    if (!job) {
        comm_put(c);
        return nccl_warn(ncclInvalidArgument, "CommWindowRegister : no memory, or %p is not aligned to %d bytes", buff,
                         NCCL_WIN_REQUIRED_ALIGNMENT);
    }
    *win = NULL;
    *job = (struct job){.run = run_window, .turn_over = turn_over, .parent = c, .buff = buff, .size = size, .win = win};
    pthread_mutex_lock(&c->lock);
    job->seq = ++c->windows;
    pthread_mutex_unlock(&c->lock);
    return group_submit_job(job);
}

/* Collective: returns when every rank has called it; in a group that is ncclGroupEnd's part. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags)
{
    return group_note_error(window_register(comm, buff, size, win, flags));
}
NCCL_ALIAS(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return leave(comm, "CommWindowDeregister", win, 1);
}
NCCL_ALIAS(ncclCommWindowDeregister);
