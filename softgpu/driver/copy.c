/* SPDX-License-Identifier: Apache-2.0 */
/* Linear copies. Pageable host memory is staged before a call that reads it returns, and complete after one that writes
 * it. As documented, the synchronous forms return at once when they copy between devices, and when they read pageable
 * memory as soon as the stream was idle and the data are staged: a stream that does not wait for the default one can run
 * before they are there (seen on H100). */
#include "../bulk.h"
#include "sg.h"
#include <stdlib.h>
#include <string.h>

static size_t span(size_t width, size_t rows, size_t slices, size_t pitch, size_t slice)
{
    return width && rows && slices ? (slices - 1) * slice + (rows - 1) * pitch + width : 0;
}

/* What one end of a copy is. */
enum end { END_BAD, END_DEVICE, END_PINNED, END_PAGEABLE };

static enum end classify_locked(struct sg_op *op, uintptr_t p, size_t bytes, bool must_be_device, unsigned write)
{
    struct sg_mem *m = sg_mem_find_locked(p);
    char what[192];

    if (!bytes)
        return END_PINNED;
    if (m || must_be_device) { /* an unknown one is reported by the range check */
        sg_op_range(op, p, bytes, SG_RANGE_PEER | write);
        return m && !sg_mem_is_device(m) ? END_PINNED : END_DEVICE;
    }
    if (sg_arena_holds_locked(p)) {
        sg_misuse("%s: %s", op->what, sg_mem_describe_locked(p, what, sizeof(what)));
        return END_BAD;
    }
    return END_PAGEABLE;
}

static void stage(struct sg_copy *c)
{
    char *to = malloc(c->width * c->rows * c->slices);

    if (!to)
        abort();
    for (size_t z = 0; z < c->slices; z++)
        for (size_t y = 0; y < c->rows; y++)
            bulk_copy(to + (z * c->rows + y) * c->width, (const char *)c->src + z * c->sslice + y * c->spitch,
                      c->width);
    c->staged = to;
    c->src = (uintptr_t)to;
    c->spitch = c->width;
    c->sslice = c->width * c->rows;
}

struct ends {
    enum end dst, src;
};

static CUresult make_locked(const char *what, const struct sg_copy *c, unsigned how, struct sg_op **out,
                            struct ends *ends)
{
    struct sg_op *op = sg_op_new(SG_OP_COPY, what);

    op->u.copy = *c;
    op->u.copy.implicit = (how & SG_COPY_SYNC) != 0;
    ends->dst = classify_locked(op, c->dst, span(c->width, c->rows, c->slices, c->dpitch, c->dslice),
                                how & SG_COPY_DST_DEVICE, SG_RANGE_WRITE);
    ends->src = classify_locked(op, c->src, span(c->width, c->rows, c->slices, c->spitch, c->sslice),
                                how & SG_COPY_SRC_DEVICE, 0);
    if (ends->dst == END_BAD || ends->src == END_BAD) {
        sg_op_free_locked(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = op;
    return CUDA_SUCCESS;
}

CUresult sg_copy_made_locked(const char *what, const struct sg_copy *shape, unsigned how, struct sg_op **out)
{
    struct ends ends;
    return make_locked(what, shape, how, out, &ends);
}

CUresult sg_copy(const char *what, CUstream stream, const struct sg_copy *shape, unsigned how)
{
    struct ends e = {END_BAD, END_BAD};
    struct sg_op *op = NULL;
    bool capturing, wait, from_pageable;
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(stream, &rc);
    if (s)
        rc = make_locked(what, shape, how, &op, &e);
    capturing = !rc && s->capture;
    from_pageable = !capturing && e.dst == END_DEVICE && e.src == END_PAGEABLE;
    if (!rc && from_pageable && how & SG_COPY_SYNC) {
        rc = sg_stream_sync_locked(s);
        if (rc)
            sg_op_free_locked(op);
    }
    sg_release();
    if (rc)
        return rc;
    wait = (how & SG_COPY_SYNC && (e.dst != END_DEVICE || e.src != END_DEVICE) && !from_pageable) ||
           (!capturing && e.dst == END_PAGEABLE);
    if (!wait && !capturing && e.src == END_PAGEABLE &&
        !(sg_cfg.compute_off && e.dst == END_DEVICE && shape->width > 4096))
        stage(&op->u.copy);
    return wait ? sg_submit_wait(stream, op) : sg_submit(stream, op);
}

#define DST SG_COPY_DST_DEVICE
#define SRC SG_COPY_SRC_DEVICE

static CUresult linear(const char *what, CUstream stream, uintptr_t dst, uintptr_t src, size_t n, unsigned how)
{
    const bool either = !(how & (DST | SRC)) || (how & DST && how & SRC); /* the calls that take two CUdeviceptr */
    const CUmemorytype type = either ? CU_MEMORYTYPE_UNIFIED : 0;
    struct sg_copy c = {.dst = dst, .src = src, .width = n, .rows = 1, .slices = 1, .dtype = type, .stype = type};
    return n && (!dst || !src) ? CUDA_ERROR_INVALID_VALUE : sg_copy(what, stream, &c, how);
}

/* The synchronous forms: a pair of the legacy and the per-thread default stream. */
#define SG_SYNC_COPY(symbol, label, dtype, stype, how)                                                                 \
    CUresult CUDAAPI symbol(dtype dst, stype src, size_t ByteCount)                                                    \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        return linear(label, CU_STREAM_LEGACY, (uintptr_t)dst, (uintptr_t)src, ByteCount, SG_COPY_SYNC | (how));       \
    }                                                                                                                  \
    CUresult CUDAAPI symbol##_ptds(dtype dst, stype src, size_t ByteCount)                                             \
    {                                                                                                                  \
        SG_ENTER(symbol##_ptds);                                                                                       \
        return linear(label, CU_STREAM_PER_THREAD, (uintptr_t)dst, (uintptr_t)src, ByteCount, SG_COPY_SYNC | (how));   \
    }

#define SG_ASYNC_COPY(symbol, label, dtype, stype, how)                                                                \
    static CUresult symbol##_on(dtype dst, stype src, size_t n, CUstream hStream)                                      \
    {                                                                                                                  \
        return linear(label, hStream, (uintptr_t)dst, (uintptr_t)src, n, how);                                         \
    }                                                                                                                  \
    SG_PAIR(symbol, _ptsz, (dtype dst, stype src, size_t ByteCount, CUstream hStream), (dst, src, ByteCount, hStream), \
            (dst, src, ByteCount, SG_PT(hStream)))

SG_SYNC_COPY(cuMemcpy, "cuMemcpy", CUdeviceptr, CUdeviceptr, 0)
SG_SYNC_COPY(cuMemcpyHtoD_v2, "cuMemcpyHtoD", CUdeviceptr, const void *, DST)
SG_SYNC_COPY(cuMemcpyDtoH_v2, "cuMemcpyDtoH", void *, CUdeviceptr, SRC)
SG_SYNC_COPY(cuMemcpyDtoD_v2, "cuMemcpyDtoD", CUdeviceptr, CUdeviceptr, DST | SRC)
SG_ASYNC_COPY(cuMemcpyAsync, "cuMemcpyAsync", CUdeviceptr, CUdeviceptr, 0)
SG_ASYNC_COPY(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", CUdeviceptr, const void *, DST)
SG_ASYNC_COPY(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", void *, CUdeviceptr, SRC)
SG_ASYNC_COPY(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", CUdeviceptr, CUdeviceptr, DST | SRC)

static CUresult contexts_known(CUcontext a, CUcontext b)
{
    sg_acquire();
    bool ok = sg_handle_get_locked(SG_CTX, a) && sg_handle_get_locked(SG_CTX, b);
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult peer(const char *what, const struct sg_copy *c, CUstream stream, unsigned how)
{
    CUresult rc = contexts_known(c->dctx, c->sctx);
    return rc ? rc : c->width && (!c->dst || !c->src) ? CUDA_ERROR_INVALID_VALUE : sg_copy(what, stream, c, how);
}

static CUresult cuMemcpyPeer_on(CUdeviceptr dst, CUcontext dctx, CUdeviceptr src, CUcontext sctx, size_t n, CUstream st)
{
    struct sg_copy c = {.dst = dst, .src = src, .width = n, .rows = 1, .slices = 1, .dctx = dctx, .sctx = sctx};
    return peer("cuMemcpyPeer", &c, st, DST | SRC | SG_COPY_SYNC);
}
SG_PAIR(cuMemcpyPeer, _ptds,
        (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount),
        (dstDevice, dstContext, srcDevice, srcContext, ByteCount, CU_STREAM_LEGACY),
        (dstDevice, dstContext, srcDevice, srcContext, ByteCount, CU_STREAM_PER_THREAD))

static CUresult cuMemcpyPeerAsync_on(CUdeviceptr dst, CUcontext dctx, CUdeviceptr src, CUcontext sctx, size_t n,
                                     CUstream st)
{
    struct sg_copy c = {.dst = dst, .src = src, .width = n, .rows = 1, .slices = 1, .dctx = dctx, .sctx = sctx};
    return peer("cuMemcpyPeerAsync", &c, st, DST | SRC);
}
SG_PAIR(cuMemcpyPeerAsync, _ptsz,
        (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
         CUstream hStream),
        (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream),
        (dstDevice, dstContext, srcDevice, srcContext, ByteCount, SG_PT(hStream)))

/* A batch runs in stream order here, which its contract allows. */
static CUresult copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                           CUstream stream)
{
    CUresult rc = CUDA_SUCCESS;

    if (!count || !dsts || !srcs || !sizes || !stream || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE; /* the default stream is refused by this call */
    for (size_t i = 0; i < count && !rc; i++)
        rc = linear("cuMemcpyBatchAsync", stream, dsts[i], srcs[i], sizes[i], 0);
    return rc;
}

static CUresult cuMemcpyBatchAsync_on(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                      CUmemcpyAttributes *attrs, size_t *idxs, size_t n, size_t *failIdx, CUstream st)
{
    (void)attrs;
    (void)idxs;
    (void)n;
    if (failIdx)
        *failIdx = SIZE_MAX;
    return copy_batch(dsts, srcs, sizes, count, st);
}
SG_PAIR(cuMemcpyBatchAsync, _ptsz,
        (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
         size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
        (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream),
        (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, SG_PT(hStream)))

static CUresult cuMemcpyBatchAsync_v2_on(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                         CUmemcpyAttributes *attrs, size_t *idxs, size_t n, CUstream st)
{
    (void)attrs;
    (void)idxs;
    (void)n;
    return copy_batch(dsts, srcs, sizes, count, st);
}
SG_PAIR(cuMemcpyBatchAsync_v2, _ptsz,
        (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
         size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
        (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream),
        (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, SG_PT(hStream)))
