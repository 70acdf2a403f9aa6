/* SPDX-License-Identifier: Apache-2.0 */
/* Fills. They return at once even in their synchronous form unless the target is host memory. */
#include "sg.h"

CUresult sg_fill_op(const char *what, const struct sg_fill *f, struct sg_op **out)
{
    if (!f->dst || f->dst % f->elem || (f->rows > 1 && (f->pitch < f->width * f->elem || f->pitch % f->elem)))
        return CUDA_ERROR_INVALID_VALUE;
    *out = sg_op_new(SG_OP_FILL, what);
    (*out)->u.fill = *f;
    sg_op_range(*out, f->dst, (f->rows - 1) * f->pitch + f->width * f->elem, SG_RANGE_WRITE);
    return CUDA_SUCCESS;
}

static CUresult fill(const char *what, CUstream stream, CUdeviceptr dst, uint32_t value, unsigned elem, size_t width,
                     size_t rows, size_t pitch, bool sync)
{
    struct sg_fill f = {dst, width, rows, pitch, value, elem};
    struct sg_op *op;
    bool host;

    if (!width || !rows)
        return CUDA_SUCCESS;
    if (sg_fill_op(what, &f, &op))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked(dst);
    host = m && !sg_mem_is_device(m);
    sg_release();
    return sync && host ? sg_submit_wait(stream, op) : sg_submit(stream, op);
}

#define SG_FILL(name, type, elem)                                                                                      \
    static CUresult name##_v2_on(CUdeviceptr d, type v, size_t n, CUstream stream)                                     \
    {                                                                                                                  \
        return fill(#name, stream, d, v, elem, n, 1, 0, true);                                                         \
    }                                                                                                                  \
    SG_PAIR(name##_v2, _ptds, (CUdeviceptr dstDevice, type value, size_t N), (dstDevice, value, N, CU_STREAM_LEGACY),  \
            (dstDevice, value, N, CU_STREAM_PER_THREAD))                                                               \
    static CUresult name##Async_on(CUdeviceptr d, type v, size_t n, CUstream stream)                                   \
    {                                                                                                                  \
        return fill(#name "Async", stream, d, v, elem, n, 1, 0, false);                                                \
    }                                                                                                                  \
    SG_PAIR(name##Async, _ptsz, (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),                       \
            (dstDevice, value, N, hStream), (dstDevice, value, N, SG_PT(hStream)))

SG_FILL(cuMemsetD8, unsigned char, 1)
SG_FILL(cuMemsetD16, unsigned short, 2)
SG_FILL(cuMemsetD32, unsigned int, 4)

#define SG_FILL2D(name, type, elem)                                                                                    \
    static CUresult name##_v2_on(CUdeviceptr d, size_t p, type v, size_t w, size_t h, CUstream stream)                 \
    {                                                                                                                  \
        return fill(#name, stream, d, v, elem, w, h, p, true);                                                         \
    }                                                                                                                  \
    SG_PAIR(name##_v2, _ptds, (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height),       \
            (dstDevice, dstPitch, value, Width, Height, CU_STREAM_LEGACY),                                             \
            (dstDevice, dstPitch, value, Width, Height, CU_STREAM_PER_THREAD))                                         \
    static CUresult name##Async_on(CUdeviceptr d, size_t p, type v, size_t w, size_t h, CUstream stream)               \
    {                                                                                                                  \
        return fill(#name "Async", stream, d, v, elem, w, h, p, false);                                                \
    }                                                                                                                  \
    SG_PAIR(name##Async, _ptsz,                                                                                        \
            (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height, CUstream hStream),       \
            (dstDevice, dstPitch, value, Width, Height, hStream),                                                      \
            (dstDevice, dstPitch, value, Width, Height, SG_PT(hStream)))

SG_FILL2D(cuMemsetD2D8, unsigned char, 1)
SG_FILL2D(cuMemsetD2D16, unsigned short, 2)
SG_FILL2D(cuMemsetD2D32, unsigned int, 4)
