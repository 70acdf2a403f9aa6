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

static CUresult copy_box(const char *what, CUstream stream, const struct side *dst, const struct side *src,
                         size_t width, size_t rows, size_t slices, bool sync)
{
    struct sg_copy c = {.width = width, .rows = rows, .slices = slices, .dctx = dst->ctx, .sctx = src->ctx};
    bool ddev = false, sdev = false;
    CUresult rc;

    if (!width || !rows || !slices)
        return CUDA_SUCCESS;
    rc = resolve(dst, width, &c.dst, &c.dpitch, &c.dslice, &ddev);
    if (!rc)
        rc = resolve(src, width, &c.src, &c.spitch, &c.sslice, &sdev);
    if (rc)
        return rc;
    return sg_copy(what, stream, &c,
                   (ddev ? SG_COPY_DST_DEVICE : 0) | (sdev ? SG_COPY_SRC_DEVICE : 0) | (sync ? SG_COPY_SYNC : 0));
}

static CUresult copy2d(const char *what, const CUDA_MEMCPY2D *p, CUstream stream, bool sync)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct side dst = {
        NULL, p->dstMemoryType, (uintptr_t)p->dstHost, p->dstDevice, p->dstPitch, 0, p->dstXInBytes, p->dstY, 0};
    struct side src = {
        NULL, p->srcMemoryType, (uintptr_t)p->srcHost, p->srcDevice, p->srcPitch, 0, p->srcXInBytes, p->srcY, 0};
    return copy_box(what, stream, &dst, &src, p->WidthInBytes, p->Height, 1, sync);
}

/* CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same fields but for contexts. */
#define COPY3D(what, p, stream, sync, dctx, sctx)                                                                      \
    do {                                                                                                               \
        if (!(p))                                                                                                      \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        struct side dst = {(dctx),           (p)->dstMemoryType, (uintptr_t)(p)->dstHost,                              \
                           (p)->dstDevice,   (p)->dstPitch,      (p)->dstHeight,                                       \
                           (p)->dstXInBytes, (p)->dstY,          (p)->dstZ};                                           \
        struct side src = {(sctx),           (p)->srcMemoryType, (uintptr_t)(p)->srcHost,                              \
                           (p)->srcDevice,   (p)->srcPitch,      (p)->srcHeight,                                       \
                           (p)->srcXInBytes, (p)->srcY,          (p)->srcZ};                                           \
        dst.height = dst.height ? dst.height : (p)->Height;                                                            \
        src.height = src.height ? src.height : (p)->Height;                                                            \
        return copy_box(what, stream, &dst, &src, (p)->WidthInBytes, (p)->Height, (p)->Depth, sync);                   \
    } while (0)

static CUresult copy3d(const char *what, const CUDA_MEMCPY3D *p, CUstream stream, bool sync)
{
    COPY3D(what, p, stream, sync, NULL, NULL);
}

static CUresult copy3d_peer(const char *what, const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool sync)
{
    COPY3D(what, p, stream, sync, (p)->dstContext, (p)->srcContext);
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
