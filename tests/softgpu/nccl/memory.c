/* ncclMemAlloc and registration. Registration only speeds things up, so here it keeps the books and checks them. */
#include "comm.h"

#include <stdlib.h>

struct registration {
    struct registration *next;
    struct ncclComm *comm; /* not a reference: only compared */
    void *buff;
    size_t size;
};
static struct registration *registrations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The real one returns memory of the virtual-memory API, which plain cudaMalloc memory can stand for except that
 * legacy IPC would accept it. */
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx;
    CUdeviceptr mem = 0;
    if (!ptr || !size)
        return nccl_warn(ncclInvalidArgument, "MemAlloc : ptr is NULL or size is 0");
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS || drv->cuMemAlloc(&mem, size) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "MemAlloc : no memory for %zu bytes", size);
    *ptr = (void *)mem;
    return ncclSuccess;
}
NCCL_ALIAS(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr)
{
    const struct softdrv *drv = softdrv_get();
    if (!ptr)
        return ncclSuccess;
    if (!drv || drv->cuMemFree((CUdeviceptr)ptr) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "MemFree : can not free %p", ptr);
    return ncclSuccess;
}
NCCL_ALIAS(ncclMemFree);

static ncclResult_t enter(ncclComm_t comm, const char *who, void *buff, size_t size, void **handle)
{
    struct ncclComm *c;
    ncclResult_t rc = comm_get_ready(comm, who, &c);
    if (rc != ncclSuccess)
        return rc;
    comm_put(c);
    if (!handle || !buff || !size)
        return nccl_warn(ncclInvalidArgument, "%s : NULL buffer or handle, or no size", who);
    struct registration *r = malloc(sizeof *r);
    if (!r)
        return ncclSystemError;
    pthread_mutex_lock(&lock);
    *r = (struct registration){registrations, comm, buff, size};
    registrations = r;
    pthread_mutex_unlock(&lock);
    *handle = r;
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm, const char *who, void *handle)
{
    struct registration *found = NULL;
    if (!handle)
        return ncclSuccess;
    pthread_mutex_lock(&lock);
    for (struct registration **at = &registrations; *at; at = &(*at)->next)
        if (*at == handle && (*at)->comm == comm) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(found);
    return found ? ncclSuccess : nccl_warn(ncclInvalidArgument, "%s : unknown handle %p", who, handle);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return enter(comm, "CommRegister", buff, size, handle);
}
NCCL_ALIAS(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return leave(comm, "CommDeregister", handle);
}
NCCL_ALIAS(ncclCommDeregister);

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags)
{
    if (flags & ~NCCL_WIN_COLL_SYMMETRIC)
        return nccl_warn(ncclInvalidArgument, "CommWindowRegister : invalid flags %d", flags);
    return group_note_error(enter(comm, "CommWindowRegister", buff, size, (void **)win));
}
NCCL_ALIAS(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return leave(comm, "CommWindowDeregister", win);
}
NCCL_ALIAS(ncclCommWindowDeregister);
