/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of rectangles and boxes. */
#include "sg.h"

struct side {
    CUcontext ctx; /* of a Peer call */
    CUmemorytype type;
    uintptr_t host;
    CUdeviceptr device;
    size_t pitch, height, x, y, z;
};

/* The address of a side's first byte; arrays are not supported. */
static CUresult resolve(const struct side *s, size_t width, uintptr_t *at, size_t *pitch, size_t *slice, bool *device)
{
    uintptr_t base = s->type == CU_MEMORYTYPE_HOST ? s->host : (uintptr_t)s->device;

    if (s->type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (s->type < CU_MEMORYTYPE_HOST || s->type > CU_MEMORYTYPE_UNIFIED || !base)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = s->pitch ? s->pitch : width;
    if (*pitch < width + s->x)
        return CUDA_ERROR_INVALID_VALUE;
    *slice = *pitch * s->height;
    *at = base + s->z * *slice + s->y * *pitch + s->x;
    *device = s->type == CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

struct box {
    struct side dst, src;
    size_t width, rows, slices;
};

/* The same as a copy, and SG_COPY_* that say which sides are on a device. */
static CUresult shape_of(const struct box *b, struct sg_copy *c, unsigned *how)
{
    bool ddev = false, sdev = false;

    *c = (struct sg_copy){.width = b->width,
                          .rows = b->rows,
                          .slices = b->slices,
                          .dctx = b->dst.ctx,
                          .sctx = b->src.ctx,
                          .dtype = b->dst.type,
                          .stype = b->src.type};
    CUresult rc = resolve(&b->dst, b->width, &c->dst, &c->dpitch, &c->dslice, &ddev);
    if (!rc)
        rc = resolve(&b->src, b->width, &c->src, &c->spitch, &c->sslice, &sdev);
    *how = (ddev ? SG_COPY_DST_DEVICE : 0) | (sdev ? SG_COPY_SRC_DEVICE : 0);
    return rc;
}

static CUresult copy_box(const char *what, CUstream stream, const struct box *b, bool sync)
{
    struct sg_copy c;
    unsigned how;

    if (!b->width || !b->rows || !b->slices)
        return CUDA_SUCCESS;
    CUresult rc = shape_of(b, &c, &how);
    return rc ? rc : sg_copy(what, stream, &c, how | (sync ? SG_COPY_SYNC : 0));
}

static CUresult copy2d(const char *what, const CUDA_MEMCPY2D *p, CUstream stream, bool sync)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct box b = {
        {NULL, p->dstMemoryType, (uintptr_t)p->dstHost, p->dstDevice, p->dstPitch, 0, p->dstXInBytes, p->dstY, 0},
        {NULL, p->srcMemoryType, (uintptr_t)p->srcHost, p->srcDevice, p->srcPitch, 0, p->srcXInBytes, p->srcY, 0},
        p->WidthInBytes,
        p->Height,
        1};
    return copy_box(what, stream, &b, sync);
}

/* CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same fields but for contexts. */
#define BOX3D(p, dctx, sctx)                                                                                           \
    {                                                                                                                  \
        {(dctx),           (p)->dstMemoryType, (uintptr_t)(p)->dstHost,                                                \
         (p)->dstDevice,   (p)->dstPitch,      (p)->dstHeight ? (p)->dstHeight : (p)->Height,                          \
         (p)->dstXInBytes, (p)->dstY,          (p)->dstZ},                                                             \
            {(sctx),           (p)->srcMemoryType, (uintptr_t)(p)->srcHost,                                            \
             (p)->srcDevice,   (p)->srcPitch,      (p)->srcHeight ? (p)->srcHeight : (p)->Height,                      \
             (p)->srcXInBytes, (p)->srcY,          (p)->srcZ},                                                         \
            (p)->WidthInBytes, (p)->Height, (p)->Depth                                                                 \
    }

static CUresult copy3d(const char *what, const CUDA_MEMCPY3D *p, CUstream stream, bool sync)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct box b = BOX3D(p, NULL, NULL);
    return copy_box(what, stream, &b, sync);
}

static CUresult copy3d_peer(const char *what, const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool sync)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct box b = BOX3D(p, p->dstContext, p->srcContext);
    return copy_box(what, stream, &b, sync);
}

CUresult sg_copy_op(const CUDA_MEMCPY3D *p, struct sg_op **out)
{
    struct box b = BOX3D(p, NULL, NULL);
    struct sg_copy c;
    unsigned how;

    if (!b.width || !b.rows || !b.slices)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = shape_of(&b, &c, &how);
    if (rc)
        return rc;
    sg_acquire();
    rc = sg_copy_made_locked("memcpy node", &c, how, out);
    sg_release();
    return rc;
}

#define SG_BOX_SYNC(symbol, type, body)                                                                                \
    static CUresult symbol##_on(const type *pCopy, CUstream stream)                                                    \
    {                                                                                                                  \
        return body(#symbol, pCopy, stream, true);                                                                     \
    }                                                                                                                  \
    SG_PAIR(symbol, _ptds, (const type *pCopy), (pCopy, CU_STREAM_LEGACY), (pCopy, CU_STREAM_PER_THREAD))

#define SG_BOX_ASYNC(symbol, type, body)                                                                               \
    static CUresult symbol##_on(const type *pCopy, CUstream stream)                                                    \
    {                                                                                                                  \
        return body(#symbol, pCopy, stream, false);                                                                    \
    }                                                                                                                  \
    SG_PAIR(symbol, _ptsz, (const type *pCopy, CUstream hStream), (pCopy, hStream), (pCopy, SG_PT(hStream)))

SG_BOX_SYNC(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy2d)
SG_BOX_SYNC(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy2d)
SG_BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy2d)
SG_BOX_SYNC(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy3d)
SG_BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy3d)
SG_BOX_SYNC(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, copy3d_peer)
SG_BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, copy3d_peer)
