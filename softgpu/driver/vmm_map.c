/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management, the address side: reservations, mappings in them, and who may access what.
 *
 * A mapping is an object in the table of memory like any other allocation, so operations find, check and pin it as
 * they do those. One thing differs: mappings that lie side by side in a reservation are one buffer to the application,
 * and an operation may reach over several of them (op.c). Codes are those that a real driver (H200, CUDA 13) was seen
 * to return. */
#include "sg.h"
#include <stdlib.h>

struct reservation {
    struct reservation *next;
    uintptr_t base;
    size_t size;
};
static struct reservation *reservations;

static struct reservation *find_locked(uintptr_t p)
{
    struct reservation *r = reservations;
    while (r && p - r->base >= r->size)
        r = r->next;
    return r;
}

bool sg_vmm_reserved_locked(uintptr_t p)
{
    return find_locked(p);
}

bool sg_vmm_range_locked(uintptr_t p, uintptr_t *base, size_t *size)
{
    struct reservation *r = find_locked(p);
    if (!r)
        return false;
    *base = r->base;
    *size = r->size;
    return true;
}

/* The first memory that ends after p, if it begins before `end`. */
static struct sg_mem *first_in_locked(uintptr_t p, uintptr_t end)
{
    struct sg_mem *m = sg_mem_after_locked(p);
    return m && m->base < end ? m : NULL;
}

static bool whole_pages(uintptr_t p, size_t size)
{
    return size && p % SG_GRANULARITY == 0 && size % SG_GRANULARITY == 0 && p + size > p;
}

/* ---- reservations ---- */

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemAddressReserve);
    (void)addr; /* a hint */
    if (!ptr || flags || !whole_pages(0, size) || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *r = malloc(sizeof(*r));
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire();
    *r = (struct reservation){reservations, sg_arena_reserve_locked(size, alignment), size};
    if (r->base) {
        reservations = r;
        *ptr = r->base;
    } else {
        free(r);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_release();
    return rc;
}

static CUresult address_free_locked(uintptr_t p, size_t size)
{
    struct reservation **at = &reservations;
    char what[192];

    while (*at && (*at)->base != p)
        at = &(*at)->next;
    struct reservation *r = *at;
    if (!r || r->size != size) {
        sg_misuse("cuMemAddressFree of %zu bytes at %#lx, which is not a reservation", size, p);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sg_mem *m = first_in_locked(p, p + size);
    if (m) {
        sg_misuse("cuMemAddressFree of a reservation in which memory is mapped: %s",
                  sg_mem_describe_locked(m->base, what, sizeof(what)));
        return CUDA_ERROR_INVALID_VALUE;
    }
    *at = r->next;
    free(r);
    sg_arena_unmap_locked(p);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SG_ENTER(cuMemAddressFree);
    if (!whole_pages(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    CUresult rc = address_free_locked(ptr, size);
    sg_release();
    return rc;
}

/* ---- mappings ---- */

static CUresult map_locked(uintptr_t p, size_t size, size_t offset, struct sg_alloc *a)
{
    struct reservation *r = find_locked(p);
    char what[192];

    if (size != a->size || offset)
        return CUDA_ERROR_NOT_SUPPORTED; /* parts of an allocation */
    if (!r || size > r->size - (p - r->base)) {
        sg_misuse("cuMemMap of %zu bytes at %#lx, which no reservation holds", size, p);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sg_mem *m = first_in_locked(p, p + size);
    if (m) {
        sg_misuse("cuMemMap over memory that is mapped: %s", sg_mem_describe_locked(m->base, what, sizeof(what)));
        return CUDA_ERROR_INVALID_VALUE;
    }
    m = calloc(1, sizeof(*m));
    if (!m || !sg_arena_place_locked(a->fd, SG_HEADER, p, size)) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (struct sg_mem){.base = p,
                         .size = size,
                         .mapped = size,
                         .kind = SG_MEM_MAPPING,
                         .dev = a->dev,
                         .id = sg_mem_next_id_locked(),
                         .fd = -1,
                         .hdr = a->hdr,
                         .link = a->link,
                         .owner = (pid_t)a->hdr->owner_pid,
                         .alloc = a};
    sg_alloc_ref_map_locked(a);
    sg_mem_insert_locked(m);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    SG_ENTER(cuMemMap);
    if (flags || !whole_pages(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_alloc *a = sg_alloc_get_locked(handle);
    CUresult rc = a ? map_locked(ptr, size, offset, a) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

/* While an operation runs on it, the pages stay where they are until the addresses are used again: the application is
 * told, and not taken down by a fault of the stand-in's thread. */
void sg_vmm_destroy_locked(struct sg_mem *m)
{
    if (m->mapped)
        sg_arena_clear_locked(m->base, m->mapped);
    sg_alloc_unref_map_locked(m->alloc);
}

static bool touches(const struct sg_op *op, const struct sg_mem *m)
{
    for (unsigned i = 0; i < op->nranges; i++)
        if (op->ranges[i].ptr < m->base + m->size && m->base < op->ranges[i].ptr + op->ranges[i].bytes)
            return true;
    return false;
}

/* Unlike cuMemFree, cuMemUnmap waits for nothing: work that is not done will find no memory. */
static void report_users_locked(const struct sg_mem *m)
{
    for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
        for (struct sg_stream *s = ctx->streams; s; s = s->next)
            for (const struct sg_op *op = s->head; op; op = op->next)
                if (touches(op, m)) {
                    sg_misuse("cuMemUnmap of %#lx (%zu bytes) while stream %p of device %d has %s on it", m->base,
                              m->size, (void *)s->handle, ctx->dev, op->what);
                    return;
                }
}

static void unmap_one_locked(struct sg_mem *m)
{
    report_users_locked(m);
    if (m->alloc)
        sg_alloc_books_locked(m->alloc, "cuMemUnmap");
    if (m->pins)
        m->mapped = 0;
    sg_mem_retire_locked(m);
}

/* Gaps are allowed, as on a real driver; a range that cuts a mapping is not. */
static CUresult unmap_locked(uintptr_t p, size_t size)
{
    uintptr_t end = p + size;
    struct sg_mem *m = first_in_locked(p, end);
    char what[192];

    if (!m)
        sg_misuse("cuMemUnmap of %zu bytes where nothing is mapped: %s", size,
                  sg_mem_describe_locked(p, what, sizeof(what)));
    for (; m; m = first_in_locked(m->base + m->size, end))
        if (m->kind != SG_MEM_MAPPING || m->base < p || m->base + m->size > end) {
            sg_misuse("cuMemUnmap of %zu bytes at %#lx, which are not whole mappings: %s", size, p,
                      sg_mem_describe_locked(m->base, what, sizeof(what)));
            return CUDA_ERROR_INVALID_VALUE;
        }
    while ((m = first_in_locked(p, end)))
        unmap_one_locked(m);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SG_ENTER(cuMemUnmap);
    if (!whole_pages(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    CUresult rc = unmap_locked(ptr, size);
    sg_release();
    return rc;
}

/* ---- access ---- */

bool sg_vmm_allows(const struct sg_mem *m, CUdevice dev, bool write)
{
    return (write ? m->writers : m->readers) >> dev & 1;
}

static CUresult check_desc(const CUmemAccessDesc *d)
{
    if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (d->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && d->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return CUDA_ERROR_INVALID_VALUE;
    return sg_device(d->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void grant(struct sg_mem *m, const CUmemAccessDesc *d)
{
    uint64_t bit = 1ull << d->location.id;

    m->readers = d->flags ? m->readers | bit : m->readers & ~bit;
    m->writers = d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? m->writers | bit : m->writers & ~bit;
}

static bool fully_mapped_locked(uintptr_t p, uintptr_t end)
{
    while (p < end) {
        struct sg_mem *m = sg_mem_find_base_locked(p);
        if (!m || m->kind != SG_MEM_MAPPING)
            return false;
        p += m->size;
    }
    return p == end;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemSetAccess);
    if (!whole_pages(ptr, size) || !desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !rc; i++)
        rc = check_desc(&desc[i]);
    if (rc)
        return rc;
    sg_acquire();
    if (!fully_mapped_locked(ptr, ptr + size)) {
        sg_misuse("cuMemSetAccess of %zu bytes at %#llx, which are not whole mappings", size, ptr);
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    for (uintptr_t p = ptr; !rc && p < ptr + size;) {
        struct sg_mem *m = sg_mem_find_base_locked(p);
        for (size_t i = 0; i < count; i++)
            grant(m, &desc[i]);
        p += m->size;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    SG_ENTER(cuMemGetAccess);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked(ptr);
    if (m && m->kind != SG_MEM_MAPPING)
        m = NULL;
    if (m)
        *flags = sg_vmm_allows(m, location->id, true)    ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : sg_vmm_allows(m, location->id, false) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    sg_release();
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
