/* SPDX-License-Identifier: Apache-2.0 */
/* What operations do, on the worker's thread and without the lock. */
#include "../bulk.h"
#include "sg.h"
#include <string.h>

#define CONTROL_BYTES 4096 /* copied even without data: small blocks carry control words */

/* A single word is copied and filled as a unit, because streams and other processes may be looking at it meanwhile: it
 * may be what a stream memory operation waits for. What was written before it is visible to who sees it. */
static bool is_word(uintptr_t p, size_t bytes)
{
    return (bytes == 4 || bytes == 8) && p % bytes == 0;
}

static void copy_word(uintptr_t dst, uintptr_t src, size_t bytes)
{
    if (bytes == 4)
        __atomic_store_n((uint32_t *)dst, __atomic_load_n((const uint32_t *)src, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)dst, __atomic_load_n((const uint64_t *)src, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void copy_rows(struct sg_op *op)
{
    const struct sg_copy *c = &op->u.copy;

    if (c->rows == 1 && c->slices == 1 && is_word(c->dst, c->width) && is_word(c->src, c->width)) {
        copy_word(c->dst, c->src, c->width);
        return;
    }
    for (size_t z = 0; z < c->slices; z++)
        for (size_t y = 0; y < c->rows; y++)
            bulk_copy((char *)c->dst + z * c->dslice + y * c->dpitch,
                      (const char *)c->src + z * c->sslice + y * c->spitch, c->width);
}

#define WRONG_BYTES 3

static bool between_devices(const struct sg_op *op)
{
    const struct sg_mem *dst = sg_op_device_side(op, op->u.copy.dst), *src = sg_op_device_side(op, op->u.copy.src);
    return dst && src && dst->hdr->physical != src->hdr->physical;
}

/* Peer-to-peer that does not work: some bytes, elsewhere each time, come out wrong. */
static void spoil(struct sg_op *op)
{
    static _Atomic uint64_t calls;
    const struct sg_copy *c = &op->u.copy;
    uint64_t x = atomic_fetch_add(&calls, 1) * WRONG_BYTES;

    for (int i = 0; i < WRONG_BYTES; i++) {
        uint64_t at = (++x * 0x9E3779B97F4A7C15ull >> 20) % (c->width * c->rows * c->slices), line = at / c->width;
        ((unsigned char *)c->dst)[line / c->rows * c->dslice + line % c->rows * c->dpitch + at % c->width] ^= 1u << i;
    }
}

static void copy_badly(struct sg_op *op)
{
    const struct sg_copy *c = &op->u.copy;

    copy_rows(op);
    if (c->width * c->rows * c->slices > 8)
        spoil(op);
}

static void fill_row(char *p, uint32_t value, unsigned elem, size_t n)
{
    if (elem == 1) {
        bulk_fill(p, (int)value, n);
    } else if (elem == 2) {
        uint16_t v = (uint16_t)value;
        for (size_t i = 0; i < n; i++)
            memcpy(p + 2 * i, &v, 2);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(p + 4 * i, &value, 4);
    }
}

static void fill_rows(struct sg_op *op)
{
    const struct sg_fill *f = &op->u.fill;

    if (f->rows == 1 && f->elem == 4 && f->width == 1) {
        __atomic_store_n((uint32_t *)f->dst, f->value, __ATOMIC_RELEASE);
        return;
    }
    for (size_t y = 0; y < f->rows; y++)
        fill_row((char *)f->dst + y * f->pitch, f->value, f->elem, f->width);
}

bool sg_op_skips_data(const struct sg_op *op)
{
    size_t bytes = 0;

    if (!sg_cfg.compute_off || op->kind == SG_OP_KERNEL)
        return false; /* kernels ask softgpuComputeOff themselves */
    if (op->kind == SG_OP_COPY)
        bytes = op->u.copy.width * op->u.copy.rows * op->u.copy.slices;
    else if (op->kind == SG_OP_FILL)
        bytes = op->u.fill.width * op->u.fill.elem * op->u.fill.rows;
    if (bytes <= CONTROL_BYTES)
        return false;
    for (unsigned i = 0; i < op->nranges; i++)
        if (op->ranges[i].mem && sg_mem_is_device(op->ranges[i].mem))
            return true;
    return false;
}

static void call_host(const struct sg_op *op)
{
    if (op->u.host.inner) {
        op->u.host.fn(op->u.host.user);
        return;
    }
    sg_kernel_begin();
    sg_forbid_calls("a host function");
    if (op->u.host.fn)
        op->u.host.fn(op->u.host.user);
    else
        op->u.host.callback(op->u.host.stream, op->ctx->sticky, op->u.host.user);
    sg_forbid_calls(NULL);
    sg_kernel_end();
}

int64_t sg_op_execute(struct sg_stream *s, struct sg_op *op, int64_t start)
{
    int64_t end = sg_cfg.timing ? sg_model(op, s->ctx, start) : 0;

    switch (op->kind) {
    case SG_OP_COPY:
        if (!sg_op_skips_data(op))
            sg_race_store(op, sg_cfg.p2p_broken && between_devices(op) ? copy_badly : copy_rows);
        break;
    case SG_OP_FILL:
        if (!sg_op_skips_data(op))
            sg_race_store(op, fill_rows);
        break;
    case SG_OP_KERNEL:
        sg_kernel_begin();
        op->u.kernel.desc->run(op->u.kernel.args);
        sg_kernel_end();
        break;
    case SG_OP_HOST:
        call_host(op);
        return sg_now();
    case SG_OP_WAIT:
        if (sg_wait_value(op) || !sg_cfg.timing)
            return sg_now();
        break;
    case SG_OP_WRITE:
        if (sg_cfg.timing)
            sg_sleep_until(end);
        sg_race_store(op, sg_write_value);
        break;
    case SG_OP_ORDER:
    case SG_OP_FREE:
        break;
    }
    if (!sg_cfg.timing)
        return sg_now();
    sg_sleep_until(end);
    return end;
}
