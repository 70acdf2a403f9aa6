/* SPDX-License-Identifier: Apache-2.0 */
/* What operations read and write, as the race oracle sees them, and its reports. */
#include "race.h"
#include "race_state.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_RANGES 512
#define REPORTS 20 /* of one process; a missing edge usually shows everywhere */

static bool is_word(uintptr_t p, size_t row, size_t rows)
{
    return rows == 1 && (row == 4 || row == 8) && p % row == 0;
}

/* `rows` runs of `row` bytes. They may reach over several mappings that lie side by side. */
static void touch(struct race_judge *j, uintptr_t p, size_t row, size_t rows, size_t pitch, uint32_t kind)
{
    struct sg_mem *m = row && rows ? sg_mem_find_locked(p) : NULL;
    size_t span = (rows - 1) * pitch + row;
    uint64_t offset;

    if (!race_memory(m, p, &j->key, &offset)) /* pageable host memory */
        return;
    if (kind & RACE_SYNC && !sg_mem_is_device(m))
        return; /* nothing else than such operations is expected there */
    j->self.kind = kind | (is_word(p, row, rows) ? RACE_WORD : 0);
    j->self.base = m->base;
    if (span <= m->size - (p - m->base)) {
        race_access(j, offset, row, rows, pitch);
    } else if (rows > 1) {
        for (size_t y = 0; y < rows; y++)
            touch(j, p + y * pitch, row, 1, row, kind);
    } else {
        size_t here = m->size - (p - m->base);
        race_access(j, offset, here, 1, here);
        touch(j, p + here, row - here, 1, row - here, kind);
    }
}

/* Where p is, if it is on a device, and how many of n bytes are. */
static size_t on_device(uintptr_t p, size_t n, struct race_key *key, uint64_t *offset)
{
    struct sg_mem *m = sg_mem_find_locked(p);
    size_t here = m ? m->size - (p - m->base) : 0;

    if (!m || !sg_mem_is_device(m) || !race_memory(m, p, key, offset))
        return 0;
    return here < n ? here : n;
}

/* A run of bytes from a device to a device, piece by piece where mappings lie side by side. Returns
 * how many bytes are done; the rest is not on a device at both ends. */
static size_t copy_run(struct race_judge *j, uintptr_t dst, uintptr_t src, size_t n)
{
    struct race_key from, to;
    uint64_t from_offset, to_offset;
    size_t at = 0, part = n;

    for (; at < n && part; at += part) {
        part = on_device(src + at, n - at, &from, &from_offset);
        part = on_device(dst + at, part, &to, &to_offset);
        race_at made = j->self.copy = part ? race_copy_new(j->clock, from_offset, to, to_offset) : 0;
        touch(j, dst + at, part, 1, part, RACE_WRITE);
        touch(j, src + at, part, 1, part, 0);
        j->self.copy = 0;
        race_copy_drop(made);
    }
    return at;
}

static void copy(struct race_judge *j, const struct sg_copy *c)
{
    bool linear = c->rows == 1 && c->slices == 1 && !c->staged;
    size_t done = linear ? copy_run(j, c->dst, c->src, c->width) : 0;

    for (size_t z = 0; z < c->slices; z++) {
        touch(j, c->dst + z * c->dslice + done, c->width - done, c->rows, c->dpitch, RACE_WRITE);
        if (!c->staged)
            touch(j, c->src + z * c->sslice + done, c->width - done, c->rows, c->spitch, 0);
    }
}

static void kernel(struct race_judge *j, const struct sg_kernel *k)
{
    struct softgpu_access list[KERNEL_RANGES];
    unsigned n = k->desc->access ? k->desc->access(k->args, list, KERNEL_RANGES) : 0;

    if (n >= KERNEL_RANGES)
        race_file->dropped++;
    for (unsigned i = 0; i < n && i < KERNEL_RANGES; i++)
        touch(j, list[i].ptr, list[i].row_bytes, list[i].rows, list[i].pitch, list[i].write ? RACE_WRITE : 0);
}

static void name(struct race_judge *j, const char *what)
{
    j->self.pid = (int32_t)getpid();
    j->self.number = race_file->ops;
    snprintf(j->self.what, sizeof(j->self.what), "%s", what);
}

static void whole(struct race_judge *j, struct sg_mem *m)
{
    touch(j, m->base, m->size, 1, m->size, RACE_WRITE | RACE_LIFE);
}

void race_op_accesses(struct race_judge *j, struct sg_stream *s, struct sg_op *op)
{
    struct sg_mem *m;

    j->self.queue = s->race_queue;
    j->self.epoch = op->clock.c[s->race_queue];
    j->self.stream = (uint64_t)(uintptr_t)s->handle;
    j->self.dev = s->ctx->dev;
    name(j, op->what);
    switch (op->kind) {
    case SG_OP_COPY:
        copy(j, &op->u.copy);
        break;
    case SG_OP_FILL:
        touch(j, op->u.fill.dst, op->u.fill.width * op->u.fill.elem, op->u.fill.rows, op->u.fill.pitch, RACE_WRITE);
        break;
    case SG_OP_KERNEL:
        kernel(j, &op->u.kernel);
        break;
    case SG_OP_WAIT:
    case SG_OP_WRITE:
        if (op->nranges)
            touch(j, op->u.memop.addr, op->u.memop.wide ? 8 : 4, 1, 0,
                  RACE_SYNC | (op->kind == SG_OP_WRITE ? RACE_WRITE : 0));
        break;
    case SG_OP_ORDER: /* memory of a pool belongs to its stream first */
        m = op->u.memop.addr ? sg_mem_find_locked(op->u.memop.addr) : NULL;
        if (m && m->id == op->u.memop.value)
            whole(j, m);
        break;
    case SG_OP_FREE:
        if (!op->u.mem->dead) {
            whole(j, op->u.mem);
            race_forget(j->key);
        }
        break;
    case SG_OP_HOST:
        break;
    }
}

void sg_race_memory_ends_locked(struct sg_mem *m)
{
    bool mapping = m->kind != SG_MEM_DEVICE && m->kind != SG_MEM_POOL && m->kind != SG_MEM_MANAGED;
    struct sg_clock k = {NULL, 0};
    struct race_judge j = {.clock = &k};
    uint64_t offset;

    if (!sg_race_on || !race_memory(m, m->base, &j.key, &offset) || !race_lock())
        return;
    race_joins_host(&k);
    name(&j, m->kind == SG_MEM_REGISTERED ? "unregistering" : mapping ? "unmapping" : "freeing");
    j.self.kind = RACE_WRITE | RACE_LIFE;
    j.self.base = m->base;
    j.self.dev = m->dev;
    j.self.hi = m->size;
    race_access_all(&j, mapping && race_is_shared(j.key));
    if (!mapping || !race_is_shared(j.key))
        race_forget(j.key);
    race_unlock();
    sg_clock_free(&k);
    race_report(&j);
}

void sg_race_forget_locked(struct sg_mem *m)
{
    struct race_key key;
    uint64_t offset;

    if (!sg_race_on || !race_memory(m, m->base, &key, &offset) || !race_lock())
        return;
    race_forget(key);
    race_unlock();
}

/* ---- reports ---- */

static const char *describe(const struct race_access *a, char *buf, size_t n)
{
    int at = snprintf(buf, n, "%s by %s (operation %lu, pid %d, device %d", a->kind & RACE_WRITE ? "write" : "read",
                      a->what, a->number, a->pid, a->dev);

    if (a->stream)
        at += snprintf(buf + at, n - (size_t)at, ", stream %#lx", a->stream);
    snprintf(buf + at, n - (size_t)at, ", bytes %lu-%lu)", a->lo, a->hi);
    return buf;
}

static const char *memory(struct race_key key, char *buf, size_t n)
{
    static const char *const kinds[] = {"?", "memory block", "shared host pages", "host memory"};
    unsigned kind = key.b & 255;

    snprintf(buf, n, "%s %lu", kinds[kind < 4 ? kind : 0], key.b >> 8);
    if (kind == 1 || kind == 3)
        snprintf(buf + strlen(buf), n - strlen(buf), " of process %lu", key.a >> 32);
    return buf;
}

/* Of a report that was held back: why it comes. */
static const char *reason(const struct race_found *f, char *buf, size_t n)
{
    char use[160];

    *buf = 0;
    if (f->use.number)
        snprintf(buf, n, "; what the copy read is used: %s", describe(&f->use, use, sizeof(use)));
    else if (f->in_place)
        snprintf(buf, n, "; what the copy read was in place when its process ended");
    return buf;
}

void race_report(const struct race_judge *j)
{
    static _Atomic unsigned count;
    char a[160], b[160], where[80], why[240];

    for (unsigned i = 0; i < j->nfound; i++) {
        const struct race_found *f = &j->found[i];
        unsigned n = ++count;
        if (n <= REPORTS)
            sg_misuse("race: %s and %s have no order but share bytes %lu-%lu of %s%s%s",
                      describe(&f->self, a, sizeof(a)), describe(&f->other, b, sizeof(b)), f->lo, f->hi,
                      memory(f->key, where, sizeof(where)), reason(f, why, sizeof(why)),
                      n == REPORTS ? "; no more races of this process are shown" : "");
    }
}
