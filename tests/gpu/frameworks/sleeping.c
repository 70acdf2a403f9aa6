/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory for PyTorch (torch.cuda.memory.CUDAPluggableAllocator) that can sleep, as the allocators of inference
 * and reinforcement learning frameworks have it: asleep, the addresses stay and the memory goes; awake, there is other
 * memory at the same addresses. One device, and nobody allocates while it sleeps or wakes up. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct segment {
    CUdeviceptr p;
    size_t bytes;
    struct segment *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *segments;
static CUdevice device;

static void check(CUresult r, const char *call)
{
    if (r == CUDA_SUCCESS)
        return;
    fprintf(stderr, "sleeping.c: %s: %d\n", call, (int)r);
    abort();
}
#define CALL(call) check(call, #call)

static void map(const struct segment *s)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CALL(cuMemCreate(&memory, s->bytes, &prop, 0));
    CALL(cuMemMap(s->p, s->bytes, 0, memory, 0));
    CALL(cuMemSetAccess(s->p, s->bytes, &access, 1));
    CALL(cuMemRelease(memory));
}

void *sleeping_alloc(ssize_t bytes, int of_device, CUstream stream)
{
    const size_t granularity = 2 << 20;
    struct segment *s = malloc(sizeof *s);
    (void)stream;
    if (!s || bytes <= 0)
        return NULL;
    device = of_device;
    s->bytes = ((size_t)bytes + granularity - 1) / granularity * granularity;
    CALL(cuMemAddressReserve(&s->p, s->bytes, 0, 0, 0));
    map(s);
    pthread_mutex_lock(&lock);
    s->next = segments;
    segments = s;
    pthread_mutex_unlock(&lock);
    return (void *)s->p;
}

void sleeping_free(void *p, ssize_t bytes, int of_device, CUstream stream)
{
    (void)bytes, (void)of_device, (void)stream;
    pthread_mutex_lock(&lock);
    struct segment **at = &segments;
    while (*at && (*at)->p != (CUdeviceptr)p)
        at = &(*at)->next;
    struct segment *s = *at;
    if (s)
        *at = s->next;
    pthread_mutex_unlock(&lock);
    if (!s)
        return;
    CALL(cuCtxSynchronize());
    CALL(cuMemUnmap(s->p, s->bytes));
    CALL(cuMemAddressFree(s->p, s->bytes));
    free(s);
}

/* The device is idle. */
void sleeping_sleep(void)
{
    for (const struct segment *s = segments; s; s = s->next)
        CALL(cuMemUnmap(s->p, s->bytes));
}

void sleeping_wake(void)
{
    for (const struct segment *s = segments; s; s = s->next)
        map(s);
}
