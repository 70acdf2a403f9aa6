/* SPDX-License-Identifier: Apache-2.0 */
/* Handles are serial numbers, so that using one after its object is gone can not reach another object by accident; but
 * for streams' where SOFTGPU_SAME_STREAM says so. */
#include "sg.h"
#include <stdlib.h>

struct slot {
    uint64_t key;
    void *obj;
};
static struct slot *slots; /* open addressing, linear probing, backward-shift deletion */
static size_t cap, used;
static uint64_t serial;
static uint64_t last_stream; /* that has been destroyed, its handle; 0: given out again, or there is none */

static const char *const kind_names[] = {
    "?",        "context",     "stream",     "event",       "graph",  "executable graph", "graph node",
    "function", "memory pool", "allocation", "user object", "module", "green context",    "resource descriptor"};

static size_t hash(uint64_t k)
{
    return (size_t)((k >> 4) * 0x9E3779B97F4A7C15ull) & (cap - 1);
}

static void put(uint64_t key, void *obj)
{
    size_t i = hash(key);
    while (slots[i].key)
        i = (i + 1) & (cap - 1);
    slots[i] = (struct slot){key, obj};
}

static void grow(void)
{
    struct slot *old = slots;
    size_t n = cap;
    cap = cap ? cap * 2 : 1024;
    slots = calloc(cap, sizeof(*slots));
    if (!slots)
        abort();
    for (size_t i = 0; i < n; i++)
        if (old[i].key)
            put(old[i].key, old[i].obj);
    free(old);
}

static struct slot *find(const void *handle)
{
    uint64_t key = (uint64_t)(uintptr_t)handle;
    for (size_t i = cap ? hash(key) : 0; cap && slots[i].key; i = (i + 1) & (cap - 1))
        if (slots[i].key == key)
            return &slots[i];
    return NULL;
}

void *sg_handle_new_locked(enum sg_kind kind, void *obj)
{
    if (used * 2 >= cap)
        grow();
    /* The top byte keeps handles apart from addresses of this process; the kind is part of the number. */
    uint64_t key = 0x5A00000000000000ull | (uint64_t)kind << 48 | ++serial << 4;
    if (kind == SG_STREAM && last_stream && sg_cfg.same_stream) {
        key = last_stream;
        last_stream = 0;
    }
    put(key, obj);
    used++;
    return (void *)(uintptr_t)key;
}

void sg_handle_renew_locked(const void *handle, void *obj)
{
    struct slot *s = find(handle);

    if (s) {
        s->obj = obj;
        return;
    }
    if (used * 2 >= cap)
        grow();
    put((uint64_t)(uintptr_t)handle, obj);
    used++;
}

static enum sg_kind kind_of(const void *handle)
{
    return (enum sg_kind)((uint64_t)(uintptr_t)handle >> 48 & 0xff);
}

void *sg_handle_peek_locked(enum sg_kind kind, const void *handle)
{
    struct slot *s = kind_of(handle) == kind ? find(handle) : NULL;
    return s ? s->obj : NULL;
}

void *sg_handle_get_locked(enum sg_kind kind, const void *handle)
{
    void *obj = sg_handle_peek_locked(kind, handle);
    uint64_t key = (uint64_t)(uintptr_t)handle;

    if (obj)
        return obj;
    if (key >> 56 == 0x5A && kind_of(handle) == kind && (key & 0xffffffffffffull) >> 4 <= serial)
        sg_misuse("%s %p used after it was destroyed", kind_names[kind], handle);
    else
        sg_misuse("unknown %s handle %p", kind_names[kind], handle);
    return NULL;
}

void sg_handle_drop_locked(const void *handle)
{
    struct slot *s = find(handle);
    if (!s)
        return;
    size_t hole = (size_t)(s - slots);
    for (size_t i = (hole + 1) & (cap - 1); slots[i].key; i = (i + 1) & (cap - 1)) {
        size_t home = hash(slots[i].key);
        if (((i - home) & (cap - 1)) >= ((i - hole) & (cap - 1))) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole] = (struct slot){0, NULL};
    used--;
    if (kind_of(handle) == SG_STREAM)
        last_stream = (uint64_t)(uintptr_t)handle;
}
