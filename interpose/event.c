/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/install.h"

#include "base/real.h"
#include "base/settings.h"
#include "interpose/gate_table.h"
#include "plugin/comm/stream.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/product.h"

/* cuda.h turns them into the second forms. */
#undef cuCtxDestroy
#undef cuStreamDestroy

#define REAL(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

/* What it carries now, its next record need not. */
static void share(CUevent event)
{
    const struct slr_observed o = {.act = SLR_ACT_EVENT_END, .event = event};
    CUresult unused;
    slr_product_observe(&o);
    slr_pending_observe(&o, &unused);
    slr_event_share(event);
}

static CUresult hook_cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    CUresult r = REAL(cuIpcGetEventHandle)(out, event);
    if (r == CUDA_SUCCESS)
        share(event);
    return r;
}

static CUresult hook_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    CUresult r = REAL(cuIpcOpenEventHandle)(out, handle);
    if (r == CUDA_SUCCESS)
        share(*out);
    return r;
}

static CUresult hook_cuStreamDestroy(CUstream stream)
{
    slr_order_stream_end(stream);
    return REAL(cuStreamDestroy)(stream);
}

static CUresult hook_cuStreamDestroy_v2(CUstream stream)
{
    slr_order_stream_end(stream);
    return REAL(cuStreamDestroy_v2)(stream);
}

/* With their streams, whose handles others may get. */
#define CONTEXT_ENDS(sym, type)                                                                                        \
    static CUresult hook_##sym(type ctx)                                                                               \
    {                                                                                                                  \
        slr_stream_ends();                                                                                             \
        return REAL(sym)(ctx);                                                                                         \
    }
CONTEXT_ENDS(cuCtxDestroy, CUcontext)
CONTEXT_ENDS(cuCtxDestroy_v2, CUcontext)
CONTEXT_ENDS(cuGreenCtxDestroy, void *)

#define INSTALL(sym)                                                                                                   \
    if (slr_gate_found[SLR_GATE_IX_##sym])                                                                             \
    slr_gate_real[SLR_GATE_IX_##sym] = (void *)hook_##sym

void slr_event_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    INSTALL(cuStreamDestroy);
    INSTALL(cuStreamDestroy_v2);
    INSTALL(cuCtxDestroy);
    INSTALL(cuCtxDestroy_v2);
    INSTALL(cuGreenCtxDestroy);
    /* Without it no event carries a gather, so none has to be watched. */
    if (!slr_real.cuStreamGetCtx)
        return;
    INSTALL(cuIpcGetEventHandle);
    INSTALL(cuIpcOpenEventHandle);
}
