/* SPDX-License-Identifier: Apache-2.0 */
/* Launch attributes of a stream: kept, and without effect here. */
#include "sg.h"
#include <string.h>

static bool known(CUstreamAttrID attr)
{
    return attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           attr == CU_LAUNCH_ATTRIBUTE_PRIORITY || attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

static CUresult access_attribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *get,
                                 const CUstreamAttrValue *set)
{
    CUresult rc;

    if (!known(attr) || (!get && !set))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && get)
        *get = s->attrs[attr];
    else if (s)
        s->attrs[attr] = *set;
    sg_release();
    return rc;
}

static CUresult cuStreamGetAttribute_on(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
    return value ? access_attribute(hStream, attr, value, NULL) : CUDA_ERROR_INVALID_VALUE;
}
SG_PAIR(cuStreamGetAttribute, _ptsz, (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value),
        (hStream, attr, value), (SG_PT(hStream), attr, value))

static CUresult cuStreamSetAttribute_on(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    return value ? access_attribute(hStream, attr, NULL, value) : CUDA_ERROR_INVALID_VALUE;
}
SG_PAIR(cuStreamSetAttribute, _ptsz, (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
        (hStream, attr, value), (SG_PT(hStream), attr, value))

static CUresult cuStreamCopyAttributes_on(CUstream dst, CUstream src)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *d = sg_stream_get_locked(dst, &rc);
    struct sg_stream *s = d ? sg_stream_get_locked(src, &rc) : NULL;
    if (s && s != d)
        memcpy(d->attrs, s->attrs, sizeof(d->attrs));
    sg_release();
    return rc;
}
SG_PAIR(cuStreamCopyAttributes, _ptsz, (CUstream dst, CUstream src), (dst, src), (SG_PT(dst), SG_PT(src)))
