/* SPDX-License-Identifier: Apache-2.0 */
/* The timing model: engines of a device are words that hold the time until which they are busy. A device's words live
 * in a memfd that importers of its memory map as well, so copies of several processes from one device share its egress.
 * Deadlines are absolute, so errors do not add up. */
#include "sg.h"
#include <errno.h>
#include <time.h>

void sg_sleep_until(int64_t t)
{
    struct timespec ts = {t / 1000000000, t % 1000000000};
    if (t <= sg_now()) /* a timer that has run out already costs an interrupt */
        return;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
}

/* Books [max(start, busy until), + ns) and returns when the booking begins. */
static int64_t book(_Atomic int64_t *engine, int64_t start, int64_t ns)
{
    int64_t until = atomic_load(engine), at;
    do
        at = until > start ? until : start;
    while (!atomic_compare_exchange_weak(engine, &until, at + ns));
    return at;
}

static void extend(_Atomic int64_t *engine, int64_t to)
{
    int64_t until = atomic_load(engine);
    while (until < to && !atomic_compare_exchange_weak(engine, &until, to))
        ;
}

/* A transfer between two devices holds one's egress and the other's ingress for the same time. */
static int64_t book_pair(_Atomic int64_t *from, _Atomic int64_t *to, int64_t start, int64_t ns)
{
    int64_t at = book(to, book(from, start, ns), ns);
    extend(from, at + ns);
    return at + ns;
}

static int64_t nanoseconds(double work, double giga_per_s)
{
    return giga_per_s > 0 ? (int64_t)(work / giga_per_s * sg_cfg.scale) : 0;
}

static int64_t model_copy(const struct sg_op *op, const struct sg_ctx *ctx, int64_t start)
{
    const struct sg_copy *c = &op->u.copy;
    const struct sg_mem *dst = sg_op_device_side(op, c->dst), *src = sg_op_device_side(op, c->src);
    double bytes = (double)c->width * (double)c->rows * (double)c->slices;
    struct sg_link *own = sg_devices[ctx->dev].link;
    int64_t pcie = nanoseconds(bytes, sg_cfg.pcie_gbs), link = nanoseconds(bytes, sg_cfg.link_gbs);

    if (!dst && !src)
        return start + pcie;
    if (!src)
        return book(&dst->link->pcie_in, start, pcie) + pcie;
    if (!dst)
        return book(&src->link->pcie_out, start, pcie) + pcie;
    if (dst->hdr->physical == src->hdr->physical) { /* a kernel: waits for the multiprocessors, then for the memory */
        int64_t ns = nanoseconds(2 * bytes, sg_cfg.hbm_gbs);
        return book(&own->hbm, book(&own->compute, start, ns), ns) + ns;
    }
    return book_pair(&src->link->egress, &dst->link->ingress, start, link);
}

static bool receives(const struct softgpu_kernel_desc *d)
{
    return d->link_bytes || d->net_bytes;
}

/* While it receives, a kernel keeps others from a part of the multiprocessors: they are as much later. */
static int64_t model_received(const struct softgpu_kernel_desc *d, const void *args, struct sg_link *own, int64_t start)
{
    double bytes = d->link_bytes ? d->link_bytes(args) : 0, far = d->net_bytes ? d->net_bytes(args) : 0;
    const double share = d->share ? d->share(args) : 1;
    if (sg_cfg.net_gbs <= 0) { /* no network: all is one host */
        bytes += far;
        far = 0;
    }
    const int64_t link = nanoseconds(bytes, sg_cfg.link_gbs), net = nanoseconds(far, sg_cfg.net_gbs);
    const int64_t receives = link ? book(&own->ingress, start, link) : start,
                  from = net ? book(&own->net, start, net) : start;
    const int64_t end = receives + link > from + net ? receives + link : from + net;
    if (end > start)
        book(&own->compute, link ? receives : from,
             (int64_t)((double)(link > net ? link : net) * sg_cfg.collective_share * share));
    return end;
}

/* With SOFTGPU_GEMMS_FULL one that receives begins behind those that have left no multiprocessor free. Else it ends behind
 * whatever computes. */
static int64_t model_kernel(const struct sg_op *op, const struct sg_ctx *ctx, int64_t start)
{
    const struct softgpu_kernel_desc *d = op->u.kernel.desc;
    const void *args = op->u.kernel.args;
    struct sg_link *own = sg_devices[ctx->dev].link;
    const int64_t compute = nanoseconds(d->flops ? d->flops(args) : 0, sg_cfg.tflops * 1e3);
    if (sg_cfg.gemms_full && receives(d) && !compute) {
        const int64_t full = atomic_load(&own->full);
        return model_received(d, args, own, full > start ? full : start);
    }
    const int64_t end = book(&own->compute, start, compute) + compute;
    const int64_t received = model_received(d, args, own, start);
    if (compute && !(d->leaves_room && d->leaves_room(args)))
        extend(&own->full, end);
    return received > end ? received : end;
}

int64_t sg_model(const struct sg_op *op, const struct sg_ctx *ctx, int64_t start)
{
    struct sg_link *own = sg_devices[ctx->dev].link;
    int64_t launch = (int64_t)(sg_cfg.launch_us * 1e3 * sg_cfg.scale);
    int64_t memop = (int64_t)(sg_cfg.memop_us * 1e3 * sg_cfg.scale);

    switch (op->kind) {
    case SG_OP_COPY:
        return model_copy(op, ctx, start + launch);
    case SG_OP_KERNEL:
        return model_kernel(op, ctx, start + launch);
    case SG_OP_FILL: {
        const struct sg_fill *f = &op->u.fill;
        int64_t ns = nanoseconds((double)f->width * f->elem * (double)f->rows, sg_cfg.hbm_gbs);
        return book(&own->hbm, start + launch, ns) + ns;
    }
    case SG_OP_WAIT:
    case SG_OP_WRITE:
        return start + memop;
    default:
        return start;
    }
}
