/* SPDX-License-Identifier: Apache-2.0 */
/* The table of live memory, device allocation and free. */
#include "sg.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sg_mem **table; /* sorted by address, disjoint */
static size_t count, cap;
static uint64_t next_id;

/* Ranges freed last, to name a use after free. Asked only about addresses that are not allocated again; the latest
 * record of an address is the right one. */
#define HISTORY 1024
static struct {
    uintptr_t base;
    size_t size;
    uint64_t id;
    bool mapping;
} freed[HISTORY];
static unsigned freed_next;

/* Index of the first object that ends after p. */
static size_t position(uintptr_t p)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (table[mid]->base + table[mid]->size > p)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

uint64_t sg_mem_next_id_locked(void)
{
    return ++next_id;
}

struct sg_mem *sg_mem_after_locked(uintptr_t p)
{
    return sg_mem_at_locked(position(p));
}

struct sg_mem *sg_mem_find_locked(uintptr_t p)
{
    struct sg_mem *m = sg_mem_after_locked(p);
    return m && m->base <= p ? m : NULL;
}

struct sg_mem *sg_mem_find_base_locked(uintptr_t p)
{
    struct sg_mem *m = sg_mem_find_locked(p);
    return m && m->base == p ? m : NULL;
}

struct sg_mem *sg_mem_at_locked(size_t i)
{
    return i < count ? table[i] : NULL;
}

bool sg_mem_is_device(const struct sg_mem *m)
{
    return m->kind == SG_MEM_DEVICE || m->kind == SG_MEM_POOL || m->kind == SG_MEM_IMPORT || m->kind == SG_MEM_MAPPING;
}

void sg_mem_insert_locked(struct sg_mem *m)
{
    if (count == cap) {
        cap = cap ? cap * 2 : 256;
        table = realloc(table, cap * sizeof(*table));
        if (!table)
            abort();
    }
    size_t i = position(m->base);
    memmove(table + i + 1, table + i, (count - i) * sizeof(*table));
    table[i] = m;
    count++;
}

static void destroy_locked(struct sg_mem *m)
{
    if (m->kind == SG_MEM_IMPORT && m->link)
        munmap(m->link, SG_LINK_BYTES);
    if (m->kind == SG_MEM_MAPPING)
        sg_vmm_destroy_locked(m);
    else if (m->kind != SG_MEM_REGISTERED)
        sg_obj_unmap_locked(m);
    free(m);
}

void sg_mem_retire_locked(struct sg_mem *m)
{
    size_t i = position(m->base);

    sg_race_memory_ends_locked(m);
    sg_pool_memory_ends_locked(m);
    if (i < count && table[i] == m) {
        memmove(table + i, table + i + 1, (count - i - 1) * sizeof(*table));
        count--;
    }
    if (m->kind != SG_MEM_REGISTERED) /* that is the application's memory before and after */
        freed[freed_next++ % HISTORY] = (__typeof__(freed[0])){m->base, m->size, m->id, m->kind == SG_MEM_MAPPING};
    if (m->kind == SG_MEM_DEVICE || m->kind == SG_MEM_POOL || m->kind == SG_MEM_MANAGED) {
        sg_devices[m->dev].used -= m->size;
        atomic_store(&m->hdr->freed, 1);
    }
    if (m->opener) {
        atomic_store(&m->opener->start, 0);
        atomic_store(&m->opener->pid, 0);
    }
    m->dead = true;
    if (!m->pins)
        destroy_locked(m);
}

void sg_mem_pin_locked(struct sg_mem *m)
{
    m->pins++;
}

void sg_mem_unpin_locked(struct sg_mem *m)
{
    if (--m->pins == 0 && m->dead)
        destroy_locked(m);
}

void sg_mem_drop_context_locked(struct sg_ctx *ctx)
{
    for (size_t i = count; i-- > 0;)
        if (table[i]->ctx == ctx)
            sg_mem_retire_locked(table[i]);
}

const char *sg_mem_describe_locked(uintptr_t p, char *buf, size_t n)
{
    struct sg_mem *m = sg_mem_find_locked(p);

    if (m) {
        snprintf(buf, n, "%#lx is byte %zu of the %zu byte %s %#lx (generation %lu, device %d)", p, p - m->base,
                 m->size, m->kind == SG_MEM_MAPPING ? "mapping" : "allocation", m->base, m->id, m->dev);
        return buf;
    }
    for (unsigned i = 1; i <= HISTORY; i++) {
        unsigned k = (freed_next - i) % HISTORY;
        if (freed[k].size && p - freed[k].base < freed[k].size) {
            snprintf(buf, n, "%#lx lies in the %s %zu byte %s %#lx (generation %lu)", p,
                     freed[k].mapping ? "unmapped" : "freed", freed[k].size,
                     freed[k].mapping ? "mapping" : "allocation", freed[k].base, freed[k].id);
            return buf;
        }
    }
    if (sg_vmm_reserved_locked(p))
        snprintf(buf, n, "%#lx is reserved address space where nothing is mapped", p);
    else if (sg_arena_holds_locked(p))
        snprintf(buf, n, "%#lx is memory of this process's devices that is not allocated", p);
    else
        snprintf(buf, n, "%#lx is not memory of this process's devices", p);
    return buf;
}

/* Makes and enters an allocation of the current device. `ctx` owns it. */
CUresult sg_mem_new_locked(struct sg_mem **out, enum sg_mem_kind kind, struct sg_ctx *ctx, size_t size)
{
    struct sg_device *d = &sg_devices[ctx->dev];
    bool exportable = kind != SG_MEM_HOST;
    struct sg_mem *m;

    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    sg_alloc_sweep_locked();
    if (exportable && size > sg_cfg.mem_bytes - d->used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m = calloc(1, sizeof(*m));
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m = (struct sg_mem){.size = size,
                         .kind = kind,
                         .dev = ctx->dev,
                         .ctx = sg_root(ctx),
                         .id = sg_mem_next_id_locked(),
                         .fd = -1,
                         .link = d->link,
                         .owner = getpid()};
    if (!exportable)
        m->base = sg_arena_map_locked(-1, 0, size, &m->mapped);
    if (exportable ? sg_obj_create_locked(m) != 0 : !m->base) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (exportable) {
        sg_header_fill(m->hdr, SG_MAGIC, m->id, size, d);
        d->used += size;
    }
    sg_mem_insert_locked(m);
    *out = m;
    return CUDA_SUCCESS;
}

CUresult sg_mem_alloc(CUdeviceptr *dptr, enum sg_mem_kind kind, size_t size)
{
    struct sg_mem *m = NULL;
    CUresult rc;

    if (!dptr || !size)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        rc = sg_capture_unsafe_locked();
    if (!rc)
        rc = sg_mem_new_locked(&m, kind, ctx, size);
    if (!rc)
        *dptr = m->base;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    SG_ENTER(cuMemAlloc_v2);
    return sg_mem_alloc(dptr, SG_MEM_DEVICE, bytesize);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes)
{
    size_t pitch = (WidthInBytes + 511) & ~(size_t)511;

    SG_ENTER(cuMemAllocPitch_v2);
    if (!pPitch || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pPitch = pitch;
    return sg_mem_alloc(dptr, SG_MEM_DEVICE, pitch * Height);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    SG_ENTER(cuMemAllocManaged);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return sg_mem_alloc(dptr, SG_MEM_MANAGED, bytesize);
}

/* Importers that died do not count. */
static void report_openers_locked(const struct sg_mem *m)
{
    for (int i = 0; m->hdr && i < SG_OPENERS; i++) {
        pid_t pid = (pid_t)atomic_load(&m->hdr->openers[i].pid);
        if (pid && sg_process_alive(pid, atomic_load(&m->hdr->openers[i].start)))
            sg_misuse("exported block %#lx (%zu bytes, generation %lu) freed while process %d still has it open",
                      m->base, m->size, m->id, (int)pid);
    }
}

static CUresult check_free_locked(uintptr_t p, struct sg_mem *m)
{
    char what[160];

    if (!m || m->base != p) {
        sg_misuse("%s: %s", sg_arena_holds_locked(p) && !m ? "double free" : "free of what is not a base address",
                  sg_mem_describe_locked(p, what, sizeof(what)));
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (m->kind != SG_MEM_DEVICE && m->kind != SG_MEM_POOL && m->kind != SG_MEM_MANAGED) {
        sg_misuse("cuMemFree of %s memory %#lx",
                  m->kind == SG_MEM_IMPORT    ? "imported"
                  : m->kind == SG_MEM_MAPPING ? "cuMemMap's"
                                              : "host",
                  p);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sg_graph_mem_usable(m)) {
        sg_misuse("double free: no launch of its graph has allocated %#lx, or it was freed", p);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (m->freeing) {
        sg_misuse("double free: %#lx was already given to cuMemFreeAsync", p);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult sg_mem_check_free_locked(uintptr_t p)
{
    return check_free_locked(p, sg_mem_find_locked(p));
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult rc;

    SG_ENTER(cuMemFree_v2);
    if (!dptr)
        return CUDA_SUCCESS;
    sg_acquire();
    if (!sg_current_locked(&rc) || (rc = sg_capture_unsafe_locked()) || (rc = sg_mem_check_free_locked(dptr)))
        goto out;
    struct sg_mem *m = sg_mem_find_locked(dptr);
    if (m->graph) {
        sg_ctx_sync_locked(m->ctx);
        if ((m = sg_mem_find_base_locked(dptr)) && m->graph)
            sg_graph_mem_freed_locked(m);
        goto out;
    }
    sg_pool_memory_freed_locked(m);
    report_openers_locked(m);
    if (m->kind != SG_MEM_POOL)
        sg_ctx_sync_locked(m->ctx); /* a real driver waits for the device here, too */
    m = sg_mem_find_base_locked(dptr);
    if (m)
        sg_mem_retire_locked(m);
out:
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult rc;

    SG_ENTER(cuMemGetInfo_v2);
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    sg_alloc_sweep_locked();
    if (ctx && free_bytes)
        *free_bytes = sg_cfg.mem_bytes - sg_devices[ctx->dev].used;
    if (ctx && total)
        *total = sg_cfg.mem_bytes;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    CUresult rc;

    SG_ENTER(cuMemGetAddressRange_v2);
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? sg_mem_find_locked(dptr) : NULL;
    if (!rc && (!m || m->kind == SG_MEM_REGISTERED || (m->kind == SG_MEM_MAPPING && !m->readers)))
        rc = CUDA_ERROR_NOT_FOUND;
    if (!rc && pbase)
        *pbase = m->base;
    if (!rc && psize)
        *psize = m->size;
    sg_release();
    return rc;
}
