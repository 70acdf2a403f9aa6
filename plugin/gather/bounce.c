/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/bounce.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cache/blocks.h"
#include "cache/external.h"
#include "cache/handles.h"
#include "cache/retain.h"
#include "cache/virtual.h"
#include "plugin/memory/exports.h"

#define PAGE ((size_t)2 << 20)

struct slr_bounce {
    enum { BUFFER, VIRTUAL_BUFFER, STAND_IN, IMPORTED_STAND_IN } is;
    CUdeviceptr base;
    size_t bytes;
    uint64_t generation;       /* of a buffer */
    int peer;                  /* of what stands in for its memory */
    struct slr_import_key key; /* of an import */
    struct slr_bounce *next;
};

bool slr_bounce_virtual(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 0; r < c->nranks; r++)
        for (int q = 0; q < r; q++)
            if (post[q].pid == post[r].pid)
                return true;
    return false;
}

static CUresult allocate(struct slr_bounce *b, const struct slr_comm *c)
{
    const struct slr_virtual_devices here = {.on = c->shared.device, .count = 1, .device = &c->shared.device};
    if (b->is == BUFFER)
        return slr_block_alloc(&b->base, b->bytes);
    const size_t page = slr_virtual_granularity(&here);
    if (!page)
        return CUDA_ERROR_NOT_SUPPORTED;
    b->bytes = (b->bytes + page - 1) / page * page;
    return slr_virtual_make(&here, b->bytes, true, &b->base);
}

static void give_back(const struct slr_bounce *b)
{
    switch (b->is) {
    case BUFFER:
        slr_block_free(b->base);
        break;
    case VIRTUAL_BUFFER:
        slr_external_unmap_begin(b->base, b->bytes);
        slr_retain_program_begin();
        slr_virtual_free(b->base, b->bytes);
        slr_retain_program_end();
        slr_external_unmap_end(b->base, b->bytes);
        break;
    case STAND_IN:
        slr_virtual_free(b->base, b->bytes);
        break;
    case IMPORTED_STAND_IN:
        slr_import_close(&b->key);
        break;
    }
}

static CUdeviceptr add(struct slr_comm *c, struct slr_bounce *b)
{
    b->next = c->bounce;
    c->bounce = b;
    return b->base;
}

/* ---- buffers ---- */

static struct slr_bounce *make(const struct slr_comm *c, size_t bytes)
{
    struct slr_bounce *b = calloc(1, sizeof *b);
    struct slr_place place;
    if (!b)
        return NULL;
    b->is = slr_bounce_virtual(c) ? VIRTUAL_BUFFER : BUFFER;
    b->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    if (allocate(b, c) != CUDA_SUCCESS) {
        free(b);
        return NULL;
    }
    if (!(b->is == BUFFER ? slr_external_hold : slr_external_hold_own)(b->base, b->bytes, &place)) {
        give_back(b);
        free(b);
        return NULL;
    }
    b->generation = place.generation;
    slr_log(SLR_LOG_INFO, "bounce", "comm=%s crank=%d bytes=%zu msg=%s", c->name, c->rank, b->bytes,
            "captured gathers in memory that peers can not map go through a buffer that they can");
    return b;
}

CUdeviceptr slr_bounce_take(struct slr_comm *c, size_t bytes)
{
    struct slr_bounce *b = c->bounce;
    while (b && !(b->generation && b->bytes >= bytes))
        b = b->next;
    if (b)
        return b->base;
    b = make(c, bytes);
    return b ? add(c, b) : 0;
}

/* ---- what stands in for memory of a peer ---- */

/* The peer's device as this process counts it; -1: it is not visible here. */
static CUdevice device_of(const struct slr_comm *c, int peer)
{
    const CUuuid *wanted = &c->shared.control->post[peer].device_uuid;
    int n = 0;
    slr_real.cuDeviceGetCount(&n);
    for (CUdevice device = 0; device < n; device++) {
        CUuuid uuid;
        if (slr_real.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS && memcmp(&uuid, wanted, sizeof uuid) == 0)
            return device;
    }
    return -1;
}

static bool make_stand_in(struct slr_bounce *b, const struct slr_comm *c)
{
    const struct slr_virtual_devices there = {.on = device_of(c, b->peer), .count = 1, .device = &c->shared.device};
    b->is = STAND_IN;
    b->bytes = there.on >= 0 ? slr_virtual_granularity(&there) : 0;
    return b->bytes && slr_virtual_make(&there, b->bytes, false, &b->base) == CUDA_SUCCESS;
}

/* One use more of what this rank has mapped already. */
static bool import_stand_in(struct slr_bounce *b, const struct slr_comm *c, uint64_t generation,
                            const struct slr_export *export)
{
    b->is = IMPORTED_STAND_IN;
    b->bytes = export->size;
    b->key = (struct slr_import_key){
        .process = c->shared.control->post[b->peer].process, .generation = generation, .device = c->shared.device};
    return slr_import_open(&b->key, export, -1, &b->base) == SLR_IMPORT_OK;
}

CUdeviceptr slr_bounce_stand_in(struct slr_comm *c, int peer, bool wanted, size_t *bytes)
{
    struct slr_export export;
    uint64_t generation;
    struct slr_bounce *b = c->bounce;
    while (b && (b->generation || b->peer != peer))
        b = b->next;
    const bool mapped = !b && slr_exported_virtual(c, peer, &generation, &export);
    if (!b && (wanted || mapped) && (b = calloc(1, sizeof *b)) != NULL) {
        b->peer = peer;
        if (make_stand_in(b, c) || (mapped && import_stand_in(b, c, generation, &export))) {
            add(c, b);
        } else {
            free(b);
            b = NULL;
        }
    }
    *bytes = b ? b->bytes : 0;
    return b ? b->base : 0;
}

/* ---- the end ---- */

void slr_bounce_close(struct slr_comm *c, bool with_context)
{
    for (struct slr_bounce *b; (b = c->bounce) != NULL; free(b)) {
        c->bounce = b->next;
        if (b->generation)
            slr_external_release(b->generation);
        if (with_context)
            give_back(b);
    }
}
