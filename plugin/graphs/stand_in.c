/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/stand_in.h"

#include <stdlib.h>
#include <string.h>
#include "cache/handles.h"
#include "cache/virtual.h"
#include "plugin/memory/exports.h"

struct slr_stood_in {
    CUdeviceptr base;
    size_t bytes;
    int peer;
    bool imported;
    struct slr_import_key key; /* of an import */
    struct slr_stood_in *next;
};

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

static bool make(struct slr_stood_in *s, const struct slr_comm *c)
{
    const struct slr_virtual_devices there = {.on = device_of(c, s->peer), .count = 1, .device = &c->shared.device};
    s->bytes = there.on >= 0 ? slr_virtual_granularity(&there) : 0;
    return s->bytes && slr_virtual_make(&there, s->bytes, false, &s->base) == CUDA_SUCCESS;
}

/* One use more of what this rank has mapped already. */
static bool import(struct slr_stood_in *s, const struct slr_comm *c, uint64_t generation,
                   const struct slr_export *export)
{
    s->imported = true;
    s->bytes = export->size;
    s->key = (struct slr_import_key){
        .process = c->shared.control->post[s->peer].process, .generation = generation, .device = c->shared.device};
    return slr_import_open(&s->key, export, -1, &s->base) == SLR_IMPORT_OK;
}

static struct slr_stood_in *add(struct slr_comm *c, int peer, bool wanted)
{
    struct slr_export export;
    uint64_t generation = 0;
    struct slr_stood_in *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->peer = peer;
    const bool made = wanted && make(s, c), mapped = !made && slr_exported_virtual(c, peer, &generation, &export);
    if (made || (mapped && (make(s, c) || import(s, c, generation, &export)))) {
        s->next = c->stood_in;
        c->stood_in = s;
        return s;
    }
    free(s);
    return NULL;
}

CUdeviceptr slr_stand_in(struct slr_comm *c, int peer, bool wanted, size_t *bytes)
{
    struct slr_stood_in *s = c->stood_in;
    while (s && s->peer != peer)
        s = s->next;
    if (!s)
        s = add(c, peer, wanted);
    *bytes = s ? s->bytes : 0;
    return s ? s->base : 0;
}

void slr_stand_ins_close(struct slr_comm *c, bool with_context)
{
    for (struct slr_stood_in *s; (s = c->stood_in) != NULL; free(s)) {
        c->stood_in = s->next;
        if (with_context && s->imported)
            slr_import_close(&s->key);
        else if (with_context)
            slr_virtual_free(s->base, s->bytes);
    }
}
