/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <string.h>

enum {
    TAIL = 16 << 10,
    OUT_BYTES = 256 << 10,
    WEIGHT_BYTES = 64 << 10,
    PINNED_BYTES = 32 << 10,
    SCRATCH_BYTES = 4 << 10
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool is_small(const struct buffer *b, size_t off, size_t n)
{
    return off + n <= b->clean && b->bound <= SMALL;
}

void wrote(struct buffer *b, size_t off, size_t n, bool integers, double bound)
{
    if (!integers) {
        b->clean = least(b->clean, off);
    } else if (off == 0 && n >= b->clean) {
        b->clean = n;
        b->bound = bound;
    } else if (off <= b->clean) {
        b->clean = off + n > b->clean ? off + n : b->clean;
        b->bound = bound > b->bound ? bound : b->bound;
    }
}

/* A part of a buffer: whole elements most of the time. Rows are for copies and fills in two dimensions. */
struct part {
    size_t off, n;
};

static struct part any_part(struct prog *p, const struct buffer *a, size_t most)
{
    const size_t unit = ONE_IN(p, 6) ? 1 : 4;
    struct part part;
    most = least(a->bytes, ONE_IN(p, 3) ? most : least(most, 4096));
    part.n = (1 + draw(p, most / unit)) * unit;
    part.off = ONE_IN(p, 3) ? 0 : draw(p, (a->bytes - part.n) / unit + 1) * unit;
    return part;
}

static struct buffer *any_device(struct prog *p)
{
    struct buffer *b;
    do
        b = &p->buffer[draw(p, BUFFERS)];
    while (b->host);
    return b;
}

static void set(struct prog *p, struct buffer *b, size_t off, size_t n, int value, int stream, bool blocking)
{
    const bool bf16 = p->type == API_EX_BF16 && !b->wide && off % 2 == 0 && n % 2 == 0;
    const bool integers = off % 4 == 0 && (value == 0 || (bf16 && (value == 0x40 || value == 0xc0)));
    need(p, stream, b, true);
    note(p, "%s %s+%zu %zu bytes %#x on s%d", blocking ? "cudaMemset" : "memset", b->name, off, n, (unsigned)value,
         stream);
    if (blocking)
        CUDA(cudaMemset(b->at + off, value, n));
    else
        CUDA(cudaMemsetAsync(b->at + off, value, n, p->stream[stream].handle));
    issued(p, stream, NULL, LIST(b));
    wrote(b, off, n - n % 4, integers, 6);
    if (n % 4)
        wrote(b, off + n - n % 4, n % 4, false, 0);
}

void fill(struct prog *p, struct buffer *b, size_t off, size_t n, int stream)
{
    const size_t from = draw(p, (p->source_bytes - n) / 16 + 1) * 16;
    if (b->wide) {
        set(p, b, off, n, 0, stream, false);
        return;
    }
    need(p, stream, b, true);
    note(p, "fill %s+%zu %zu bytes on s%d", b->name, off, n, stream);
    CUDA(cudaMemcpyAsync(b->at + off, p->source + from, n, cudaMemcpyHostToDevice, p->stream[stream].handle));
    issued(p, stream, NULL, LIST(b));
    wrote(b, off, n, off % p->elem == 0 && n % p->elem == 0, 2);
}

static uint64_t hash_bytes(uint64_t h, const char *at, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, least(8, n - i));
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

/* n bytes of a device buffer to the host, in one of the ways to do that. */
static void read_back(struct prog *p, struct buffer *b, size_t off, size_t n, char *to)
{
    const bool blocking = ONE_IN(p, 3) && !p->shared;
    const int stream = blocking ? LEGACY : any_stream(p);
    need(p, stream, b, false);
    note(p, "%s %s+%zu %zu bytes to the host on s%d, and look", blocking ? "cudaMemcpy" : "copy", b->name, off, n,
         stream);
    if (blocking)
        CUDA(cudaMemcpy(to, b->at + off, n, cudaMemcpyDeviceToHost));
    else
        CUDA(cudaMemcpyAsync(to, b->at + off, n, cudaMemcpyDeviceToHost, p->stream[stream].handle));
    issued(p, stream, LIST(b), NULL);
    if (!blocking)
        CUDA(cudaStreamSynchronize(p->stream[stream].handle));
    host_saw(p, stream);
}

static void tell_part(struct prog *p, struct buffer *b, size_t off, size_t n)
{
    char *copy = malloc(n);
    if (b->host) {
        need(p, HOST, b, false);
        memcpy(copy, b->at + off, n);
    } else {
        read_back(p, b, off, n, copy);
    }
    p->hash = hash_bytes(p->hash, copy, n);
    printf("rank %d.%d step %d %s+%zu %016lx\n", p->r->rank, p->thread, p->step, b->name, off,
           (unsigned long)hash_bytes(1, copy, n));
    free(copy);
}

void tell(struct prog *p, struct buffer *b)
{
    tell_part(p, b, 0, b->bytes);
}

static void copy(struct prog *p)
{
    struct buffer *to = &p->buffer[draw(p, BUFFERS)], *from = &p->buffer[draw(p, BUFFERS)];
    const int stream = any_stream(p);
    if (to == from || (to->host && from->host))
        return;
    struct part part = any_part(p, to->bytes < from->bytes ? to : from, p->shard);
    const size_t off = ONE_IN(p, 2) ? part.off : 0;
    need(p, stream, from, false);
    need(p, stream, to, true);
    note(p, "copy %s+%zu to %s+%zu %zu bytes on s%d", from->name, part.off, to->name, off, part.n, stream);
    CUDA(cudaMemcpyAsync(to->at + off, from->at + part.off, part.n, cudaMemcpyDefault, p->stream[stream].handle));
    issued(p, stream, LIST(from), LIST(to));
    const bool integers = part.off % 4 == 0 && off % 4 == 0 && part.n % 4 == 0 && from->wide == to->wide &&
                          part.off + part.n <= from->clean;
    wrote(to, off, part.n, integers, from->bound);
}

static void copy_2d(struct prog *p)
{
    struct buffer *to = any_device(p), *from = any_device(p);
    const int stream = any_stream(p);
    const size_t width = (1 + draw(p, 100)) * 4, height = 1 + draw(p, 20), to_pitch = width + draw(p, 10) * 4,
                 from_pitch = width + draw(p, 10) * 4;
    const size_t to_span = to_pitch * (height - 1) + width, from_span = from_pitch * (height - 1) + width;
    if (to == from || to_span > to->bytes || from_span > from->bytes)
        return;
    const size_t to_off = draw(p, (to->bytes - to_span) / 4 + 1) * 4,
                 from_off = draw(p, (from->bytes - from_span) / 4 + 1) * 4;
    need(p, stream, from, false);
    need(p, stream, to, true);
    note(p, "copy 2D %s+%zu pitch %zu to %s+%zu pitch %zu, %zu x %zu bytes on s%d", from->name, from_off, from_pitch,
         to->name, to_off, to_pitch, width, height, stream);
    CUDA(cudaMemcpy2DAsync(to->at + to_off, to_pitch, from->at + from_off, from_pitch, width, height,
                           cudaMemcpyDeviceToDevice, p->stream[stream].handle));
    issued(p, stream, LIST(from), LIST(to));
    const bool integers =
        from->wide == to->wide && from_off + from_span <= from->clean && to_off + to_span <= to->clean;
    wrote(to, to_off, to_span, integers, from->bound > to->bound ? from->bound : to->bound);
}

static void set_2d(struct prog *p)
{
    struct buffer *b = any_device(p);
    const int stream = any_stream(p);
    const size_t width = (1 + draw(p, 100)) * 4, height = 1 + draw(p, 20), pitch = width + draw(p, 10) * 4;
    const size_t span = pitch * (height - 1) + width;
    if (span > b->bytes)
        return;
    const size_t off = draw(p, (b->bytes - span) / 4 + 1) * 4;
    need(p, stream, b, true);
    note(p, "memset 2D %s+%zu pitch %zu, %zu x %zu bytes on s%d", b->name, off, pitch, width, height, stream);
    CUDA(cudaMemset2DAsync(b->at + off, pitch, 0, width, height, p->stream[stream].handle));
    issued(p, stream, NULL, LIST(b));
    wrote(b, off, span, off + span <= b->clean, b->bound);
}

/* Blocking copy from memory that is not page-locked. */
static void put_blocking(struct prog *p)
{
    struct buffer *b = any_device(p);
    struct part part = any_part(p, b, 8192);
    if (b->wide || p->shared)
        return;
    char *from = malloc(part.n);
    memcpy(from, p->source + draw(p, 1000) * 16, part.n);
    need(p, LEGACY, b, true);
    note(p, "cudaMemcpy to %s+%zu %zu bytes", b->name, part.off, part.n);
    CUDA(cudaMemcpy(b->at + part.off, from, part.n, cudaMemcpyHostToDevice));
    issued(p, LEGACY, NULL, LIST(b));
    wrote(b, part.off, part.n, part.off % 4 == 0 && part.n % 4 == 0, 2);
    free(from);
}

static void host_writes(struct prog *p)
{
    struct buffer *b = &p->buffer[FIRST_PINNED + (int)draw(p, PINNEDS)];
    const struct part part = any_part(p, b, b->bytes);
    need(p, HOST, b, true);
    note(p, "host writes %s+%zu %zu bytes", b->name, part.off, part.n);
    memcpy(b->at + part.off, p->source + draw(p, 1000) * 16, part.n);
    wrote(b, part.off, part.n, part.off % 4 == 0 && part.n % 4 == 0, 2);
}

static void take(struct prog *p, struct buffer *b, bool pool)
{
    const int stream = any_stream(p);
    const size_t bytes = b->bytes + (ONE_IN(p, 3) ? draw(p, 16) * 256 : 0);
    b->pool = pool;
    b->clean = 0;
    b->k = 0;
    b->wrote = b->read = (struct seen){{0}};
    note(p, "allocate %s, %zu bytes%s", b->name, bytes, b->host ? ", page-locked" : b->pool ? ", of the pool" : "");
    if (b->host) {
        CUDA(cudaMallocHost((void **)&b->at, bytes));
        memcpy(b->at, p->source, b->bytes);
        wrote(b, 0, b->bytes, true, 2);
        return;
    }
    if (b->pool) {
        CUDA(cudaMallocAsync((void **)&b->at, bytes, p->stream[stream].handle));
        issued(p, stream, NULL, LIST(b));
    } else {
        CUDA(cudaMalloc((void **)&b->at, bytes));
    }
    fill(p, b, 0, b->bytes, stream);
}

static void give(struct prog *p, struct buffer *b)
{
    const int stream = any_stream(p);
    need(p, b->pool ? stream : HOST, b, true);
    note(p, "free %s", b->name);
    if (b->host) {
        CUDA(cudaFreeHost(b->at));
    } else if (b->pool) {
        CUDA(cudaFreeAsync(b->at, p->stream[stream].handle));
        issued(p, stream, NULL, LIST(b));
    } else {
        CUDA(cudaFree(b->at));
    }
    b->at = NULL;
}

void data_step(struct prog *p)
{
    struct buffer *b = any_device(p);
    struct part part = any_part(p, b, p->shard);
    static const int values[] = {0, 0, 0x40, 0xc0, 0x11, 0xa5};
    const int value = values[draw(p, 6)], stream = any_stream(p);
    const int what = (int)draw(p, 16);
    switch (p->pools && what % 5 ? 15 : what) { /* so that memory is freed and allocated often */
    case 0:
    case 1:
    case 2:
        fill(p, b, part.off & ~(size_t)3, part.n > 3 ? part.n & ~(size_t)3 : 4, stream);
        return;
    case 3:
    case 4:
    case 5:
    case 6:
        copy(p);
        return;
    case 7:
        copy_2d(p);
        return;
    case 8:
        set(p, b, part.off, part.n, value, stream, false);
        return;
    case 9:
        set(p, b, part.off, part.n, value, p->shared ? stream : LEGACY, !p->shared);
        return;
    case 10:
        set_2d(p);
        return;
    case 11:
        host_writes(p);
        return;
    case 12:
        put_blocking(p);
        return;
    case 13:
        tell_part(p, b, part.off, part.n);
        return;
    case 14:
        tell(p, &p->buffer[draw(p, BUFFERS)]);
        return;
    default:
        b = &p->buffer[draw(p, BUFFERS)];
        if (p->shared && !b->pool) /* cudaFree waits for the device */
            return;
        give(p, b);
        take(p, b, p->shared || (!b->host && (ONE_IN(p, 6) || p->pools)));
    }
}

static size_t size_of(const struct prog *p, int i)
{
    return i < FIRST_RECV     ? p->shard + TAIL
           : i < FIRST_OUT    ? p->shard * (size_t)p->r->nranks + TAIL
           : i < FIRST_PINNED ? OUT_BYTES
           : i == WEIGHT      ? WEIGHT_BYTES
                              : PINNED_BYTES;
}

void data_open(struct prog *p)
{
    p->source_bytes = p->shard * (size_t)p->r->nranks + TAIL + OUT_BYTES;
    CUDA(cudaMallocHost((void **)&p->source, p->source_bytes));
    for (size_t i = 0; i < p->source_bytes / p->elem; i++)
        put(p->type, p->source, i, small(p->local_key, i), false);
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *b = &p->buffer[i];
        const bool send = i < FIRST_RECV, recv = !send && i < FIRST_OUT, out = !send && !recv && i < FIRST_PINNED;
        const int at = send ? i : recv ? i - FIRST_RECV : out ? i - FIRST_OUT : i - FIRST_PINNED;
        const char *name = i == WEIGHT ? "weight" : send ? "send" : recv ? "recv" : out ? "out" : "host";
        *b = (struct buffer){.bytes = size_of(p, i), .wide = out && p->elem != 4};
        b->host = i >= FIRST_PINNED && i != WEIGHT;
        snprintf(b->name, sizeof b->name, i == WEIGHT ? "%s" : "%s%d", name, at);
        take(p, b, !b->host && (ONE_IN(p, 6) || p->pools));
    }
    p->scratch = (struct buffer){.name = "scratch", .bytes = uniform(p, 2) ? SCRATCH_BYTES : 0};
    if (p->scratch.bytes)
        take(p, &p->scratch, false);
}

void data_close(struct prog *p)
{
    for (int i = 0; i < BUFFERS; i++)
        give(p, &p->buffer[i]);
    if (p->scratch.bytes)
        give(p, &p->scratch);
    CUDA(cudaFreeHost(p->source));
}
