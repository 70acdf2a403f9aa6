/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
#include "base/counters.h"
#include "base/status.h"
#include "cache/block_impl.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "cache/virtual.h"

/* ---- exports ---- */

static bool copy_of_block(uint64_t generation, struct slr_block *out)
{
    slr_block_lock();
    const struct slr_block *b = slr_block_ours() ? slr_table_by_generation(generation) : NULL;
    if (b)
        *out = *b;
    slr_block_unlock();
    return b != NULL;
}

static void remember(uint64_t generation, const struct slr_block *now)
{
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b) {
        b->handle_state = now->handle_state;
        b->handle = now->handle;
    }
    slr_block_unlock();
}

static void make_handle(struct slr_block *b)
{
    int legacy = 0;
    b->handle_state = SLR_HANDLE_REFUSED;
    if (slr_real.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, b->base) ==
            CUDA_SUCCESS &&
        legacy && slr_real.cuIpcGetMemHandle(&b->handle, b->base) == CUDA_SUCCESS) {
        b->handle_state = SLR_HANDLE_MADE;
        atomic_fetch_add(&slr_counters.exports, 1);
    } else {
        slr_not_shared("the driver does not export it");
    }
}

bool slr_export_block(uint64_t generation, int device, struct slr_export *out)
{
    struct slr_block b;
    if (!copy_of_block(generation, &b) || b.device != device)
        return false;
    *out = (struct slr_export){.base = b.base, .size = b.size, .kind = SLR_EXPORT_DESCRIPTORS};
    if (b.kind == SLR_BLOCK_VIRTUAL)
        return true;
    /* Without the lock, as it is the driver's call; only one thread exports (handles.h). */
    if (b.handle_state == SLR_HANDLE_UNKNOWN) {
        make_handle(&b);
        remember(generation, &b);
    }
    out->kind = SLR_EXPORT_HANDLE;
    out->handle = b.handle;
    return b.handle_state == SLR_HANDLE_MADE;
}

bool slr_export_virtual(uint64_t generation)
{
    struct slr_block b;
    return copy_of_block(generation, &b) && b.kind == SLR_BLOCK_VIRTUAL;
}

void slr_pieces_close(struct slr_pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->count; i++)
        close(pieces->fd[i]);
    pieces->count = 0;
}

/* The block's generation ends before any of its memory is unmapped (external.c). So when it still lives
 * after the driver has said what is mapped at its address, that is the block's memory. */
static enum slr_export_result export_piece(uint64_t generation, CUdeviceptr base, int *fd)
{
    CUmemGenericAllocationHandle memory;
    const enum slr_retain_result retained = slr_retain(base, &memory);
    if (retained != SLR_RETAINED)
        return retained == SLR_RETAIN_LATER ? SLR_EXPORT_LATER : SLR_EXPORT_REFUSED;
    const bool made =
        slr_block_lives(generation) &&
        slr_real.cuMemExportToShareableHandle(fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    slr_retain_end(memory);
    if (made)
        fcntl(*fd, F_SETFD, FD_CLOEXEC); /* a child of the program must not keep the memory */
    return made ? SLR_EXPORT_MADE : SLR_EXPORT_REFUSED;
}

/* The next one of the block's pieces, `at` behind its beginning. */
static enum slr_export_result export_next(const struct slr_block *b, size_t at, struct slr_pieces *out)
{
    CUdeviceptr base;
    size_t bytes;
    if (out->count == SLR_PIECES || slr_real.cuMemGetAddressRange(&base, &bytes, b->base + at) != CUDA_SUCCESS ||
        base != b->base + at || bytes > b->size - at)
        return SLR_EXPORT_REFUSED;
    const enum slr_export_result made = export_piece(b->generation, base, &out->fd[out->count]);
    if (made == SLR_EXPORT_MADE)
        out->bytes[out->count++] = bytes;
    return made;
}

enum slr_export_result slr_export_descriptors(uint64_t generation, struct slr_pieces *out)
{
    struct slr_block b;
    enum slr_export_result made = SLR_EXPORT_MADE;
    out->count = 0;
    if (!copy_of_block(generation, &b) || b.kind != SLR_BLOCK_VIRTUAL)
        return SLR_EXPORT_REFUSED;
    for (size_t at = 0; at < b.size && made == SLR_EXPORT_MADE; at += out->bytes[out->count - 1])
        if ((made = export_next(&b, at, out)) != SLR_EXPORT_MADE)
            break;
    if (made == SLR_EXPORT_MADE)
        atomic_fetch_add(&slr_counters.exports, 1);
    else
        slr_pieces_close(out);
    return made;
}

/* ---- imports ---- */

enum import_state { FREE, OPENING, OPEN, CLOSING };

static struct import {
    enum import_state state;
    bool gone; /* its mapping went with the device */
    struct slr_import_key key;
    uint32_t kind, uses;
    CUdeviceptr base;
    size_t size;
} imports[SLR_IMPORTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_key(const struct slr_import_key *a, const struct slr_import_key *b)
{
    return a->generation == b->generation && a->process == b->process && a->device == b->device;
}

/* The entry of the key, or NULL; `*free_at`: an empty one, if any. */
static struct import *find_import(const struct slr_import_key *key, struct import **free_at)
{
    *free_at = NULL;
    for (int i = 0; i < SLR_IMPORTS; i++) {
        struct import *m = &imports[i];
        if (m->state == FREE)
            *free_at = m;
        else if (same_key(&m->key, key))
            return m;
    }
    return NULL;
}

static bool of_size(const struct slr_pieces *pieces, uint64_t size)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pieces->count; i++)
        sum += pieces->bytes[i];
    return sum == size;
}

/* The mapping keeps the memory; the handles are not needed any longer. */
static bool open_descriptors(struct import *m, const struct slr_pieces *pieces)
{
    struct slr_virtual_piece memory[SLR_PIECES];
    const struct slr_virtual_devices own = {.on = m->key.device, .count = 1, .device = &m->key.device};
    unsigned n = 0;
    if (!slr_virtual_supported() || !of_size(pieces, m->size))
        return false;
    while (n < pieces->count &&
           slr_real.cuMemImportFromShareableHandle(&memory[n].memory, (void *)(intptr_t)pieces->fd[n],
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS) {
        memory[n].bytes = pieces->bytes[n];
        n++;
    }
    const bool mapped = n == pieces->count && slr_virtual_map(&own, memory, n, &m->base) == CUDA_SUCCESS;
    for (unsigned i = 0; i < n; i++)
        slr_virtual_release(memory[i].memory);
    return mapped;
}

static bool open_now(struct import *m, const struct slr_export *e, const struct slr_pieces *pieces)
{
    if (m->kind == SLR_EXPORT_DESCRIPTORS)
        return open_descriptors(m, pieces);
    return slr_real.cuIpcOpenMemHandle(&m->base, e->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
}

/* Under the lock. True: the caller is to open *at, which is marked so. Else *result is the answer. */
static bool must_open(const struct slr_import_key *key, const struct slr_export *e, const struct slr_pieces *pieces,
                      struct import **at, enum slr_import_result *result)
{
    struct import *empty, *m = *at = find_import(key, &empty);
    if (m && m->state == OPEN && !m->gone) {
        m->uses++;
        atomic_fetch_add(&slr_counters.import_hits, 1);
        *result = SLR_IMPORT_OK;
        return false;
    }
    /* At work, gone with its device, or no room: whoever asks comes again, and shards are staged
     * till then. */
    *result = m || !empty ? SLR_IMPORT_LATER : SLR_IMPORT_NEEDS_DESCRIPTOR;
    if (m || !empty || (e->kind == SLR_EXPORT_DESCRIPTORS && !pieces))
        return false;
    *empty = (struct import){.state = OPENING, .key = *key, .kind = e->kind, .size = e->size, .uses = 1};
    *at = empty;
    return true;
}

enum slr_import_result slr_import_open(const struct slr_import_key *key, const struct slr_export *e,
                                       const struct slr_pieces *pieces, CUdeviceptr *base)
{
    enum slr_import_result result;
    struct import *m;
    pthread_mutex_lock(&lock);
    bool open = must_open(key, e, pieces, &m, &result);
    if (!open && result == SLR_IMPORT_OK)
        *base = m->base;
    pthread_mutex_unlock(&lock);
    if (!open)
        return result;
    bool opened = open_now(m, e, pieces); /* nobody else touches an entry in this state */
    pthread_mutex_lock(&lock);
    m->state = opened ? OPEN : FREE;
    *base = m->base;
    pthread_mutex_unlock(&lock);
    if (!opened)
        return SLR_IMPORT_FAILED;
    atomic_fetch_add(&slr_counters.imports, 1);
    return SLR_IMPORT_OK;
}

static bool close_now(const struct import *m)
{
    if (m->kind == SLR_EXPORT_HANDLE)
        return slr_cu_status(slr_real.cuIpcCloseMemHandle(m->base), "cuIpcCloseMemHandle") == SLR_OK;
    return slr_virtual_free(m->base, m->size);
}

/* Under the lock: one use less. True: it is the last, and the mapping is to be closed. */
static bool was_last(struct import *m)
{
    if (!m || m->state != OPEN)
        return false;
    if (m->uses > 1) {
        m->uses--;
        return false;
    }
    /* A mapping that went with the device is not closed: its address may be other memory's. */
    m->state = m->gone ? FREE : CLOSING;
    return m->state == CLOSING;
}

bool slr_import_close(const struct slr_import_key *key)
{
    struct import *empty;
    pthread_mutex_lock(&lock);
    struct import *m = find_import(key, &empty);
    bool last = was_last(m);
    pthread_mutex_unlock(&lock);
    if (!last)
        return true;
    bool closed = close_now(m);
    pthread_mutex_lock(&lock);
    m->state = closed || m->gone ? FREE : OPEN;
    pthread_mutex_unlock(&lock);
    if (closed)
        atomic_fetch_add(&slr_counters.import_closes, 1);
    return closed;
}

/* ---- access to other devices ---- */

static struct access {
    bool on;               /* the driver has it on: certain */
    bool used;             /* slr_access_use() has said so */
    bool hidden;           /* and the program has given it back since */
    unsigned ending, ends; /* calls that give it back: under way; times that one began or ended */
} access_of[SLR_BLOCK_DEVICES][SLR_BLOCK_DEVICES];
static pthread_mutex_t access_lock = PTHREAD_MUTEX_INITIALIZER;

static int primary_device_of(CUcontext ctx)
{
    CUcontext current;
    if (slr_real.cuCtxPushCurrent(ctx) != CUDA_SUCCESS)
        return -1;
    const int device = slr_block_device_current(&current);
    slr_real.cuCtxPopCurrent(&current);
    return device;
}

/* From the current context to the other one; NULL: one of them is no primary one. */
static struct access *access_to(CUcontext peer)
{
    CUcontext own;
    const int from = slr_block_device_current(&own), to = from < 0 ? -1 : primary_device_of(peer);
    return to < 0 ? NULL : &access_of[from][to];
}

CUresult slr_access_take(CUcontext peer, unsigned flags, slr_access_fn driver)
{
    struct access *a = access_to(peer);
    pthread_mutex_lock(&access_lock);
    const unsigned ends = a ? a->ends : 0;
    pthread_mutex_unlock(&access_lock);
    CUresult r = driver(peer, flags);
    if (!a || (r != CUDA_SUCCESS && r != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED))
        return r;
    pthread_mutex_lock(&access_lock);
    if (!a->ending && a->ends == ends) /* else it may be off again */
        a->on = true;
    if (a->hidden)
        r = CUDA_SUCCESS;
    a->hidden = false;
    pthread_mutex_unlock(&access_lock);
    return r;
}

/* What is used only disappears. *r: what the program is answered. */
static bool only_hides(struct access *a, CUresult *r)
{
    pthread_mutex_lock(&access_lock);
    const bool hides = a->on && a->used;
    *r = a->hidden ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_SUCCESS;
    a->hidden = hides;
    if (!hides) {
        a->on = false;
        a->ending++;
        a->ends++;
    }
    pthread_mutex_unlock(&access_lock);
    return hides;
}

CUresult slr_access_give_back(CUcontext peer, slr_access_end_fn driver)
{
    struct access *a = access_to(peer);
    CUresult r;
    if (a && only_hides(a, &r))
        return r;
    r = driver(peer);
    if (!a)
        return r;
    pthread_mutex_lock(&access_lock);
    a->ending--;
    a->ends++;
    pthread_mutex_unlock(&access_lock);
    return r;
}

bool slr_access_use(uint64_t generation)
{
    struct slr_block b;
    CUcontext own;
    const int from = slr_block_device_current(&own);
    if (from < 0 || !copy_of_block(generation, &b) || b.kind == SLR_BLOCK_VIRTUAL || b.device < 0)
        return false;
    struct access *a = &access_of[from][b.device];
    pthread_mutex_lock(&access_lock);
    const bool on = a->on;
    a->used |= on;
    pthread_mutex_unlock(&access_lock);
    return on;
}

/* It goes with either context. */
static void access_forget(int device)
{
    pthread_mutex_lock(&access_lock);
    for (int from = 0; from < SLR_BLOCK_DEVICES; from++)
        for (int to = 0; to < SLR_BLOCK_DEVICES; to++)
            if (device < 0 || from == device || to == device) {
                access_of[from][to].on = access_of[from][to].used = access_of[from][to].hidden = false;
                access_of[from][to].ends++;
            }
    pthread_mutex_unlock(&access_lock);
}

void slr_imports_forget(int device)
{
    access_forget(device);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLR_IMPORTS; i++)
        if (imports[i].state != FREE && (device < 0 || imports[i].key.device == device))
            imports[i].gone = true;
    pthread_mutex_unlock(&lock);
}

/* ---- given by the program ---- */

enum { MOST_GIVEN = 256 };

static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static struct {
    uintptr_t begin, end;
} given_range[MOST_GIVEN]; /* the first `ranges` do not change any more */
static _Atomic unsigned given_ranges;
static _Atomic bool all_given;

void slr_memory_gives_all(void)
{
    atomic_store(&all_given, true);
}

void slr_memory_gives_range(CUdeviceptr p, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)p;
    pthread_mutex_lock(&given_lock);
    const unsigned n = atomic_load(&given_ranges);
    bool known = false;
    for (unsigned i = 0; i < n && !known; i++)
        known = given_range[i].begin <= begin && begin + bytes <= given_range[i].end;
    if (!known && n == MOST_GIVEN)
        slr_memory_gives_all();
    if (!known && n < MOST_GIVEN) {
        given_range[n].begin = begin;
        given_range[n].end = begin + bytes;
        atomic_store(&given_ranges, n + 1);
    }
    pthread_mutex_unlock(&given_lock);
}

void slr_memory_gives(CUdeviceptr p)
{
    CUdeviceptr base;
    size_t size;
    if (slr_real.cuMemGetAddressRange && slr_real.cuMemGetAddressRange(&base, &size, p) == CUDA_SUCCESS)
        slr_memory_gives_range(base, size);
    else
        slr_memory_gives_all();
}

bool slr_memory_given(CUdeviceptr p, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)p;
    bool given = atomic_load(&all_given);
    for (unsigned i = 0; i < atomic_load(&given_ranges) && !given; i++)
        given = given_range[i].begin < begin + bytes && begin < given_range[i].end;
    return given;
}
