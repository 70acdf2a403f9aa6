/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include <dlfcn.h>
#include "base/real.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "plugin/comm/stream.h"
#include "plugin/passed/turn.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/product.h"

/* cuda.h turns them into the second forms. */
#undef cuCtxDestroy
#undef cuStreamDestroy

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
    CUresult r = SLR_FOUND(cuIpcGetEventHandle)(out, event);
    if (r == CUDA_SUCCESS)
        share(event);
    return r;
}

static CUresult hook_cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    CUresult r = SLR_FOUND(cuIpcOpenEventHandle)(out, handle);
    if (r == CUDA_SUCCESS)
        share(*out);
    return r;
}

static CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
    slr_guard++;
    slr_memory_gives(p);
    slr_guard--;
    return SLR_FOUND(cuIpcGetMemHandle)(out, p);
}

/* NCCL exports memory of its own, also by threads of its own. */
static bool is_nccl(const void *caller)
{
    Dl_info own, nccl;
    return slr_real.ncclGetVersion && dladdr(caller, &own) && dladdr((const void *)slr_real.ncclGetVersion, &nccl) &&
           own.dli_fbase == nccl.dli_fbase;
}

static CUresult hook_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle memory,
                                                  CUmemAllocationHandleType type, unsigned long long flags)
{
    if (slr_guard == 0 && !is_nccl(__builtin_return_address(0)))
        slr_memory_gives_all();
    return SLR_FOUND(cuMemExportToShareableHandle)(out, memory, type, flags);
}

/* Contexts with their streams, whose handles others may get. */
#define ENDS(sym, type, note)                                                                                          \
    static CUresult hook_##sym(type what)                                                                              \
    {                                                                                                                  \
        note;                                                                                                          \
        return SLR_FOUND(sym)(what);                                                                                   \
    }
#define STREAM_ENDS (slr_block_stream_ends(what), slr_late_stream_end(what), slr_order_stream_end(what))
ENDS(cuStreamDestroy, CUstream, STREAM_ENDS)
ENDS(cuStreamDestroy_v2, CUstream, STREAM_ENDS)
ENDS(cuCtxDestroy, CUcontext, slr_stream_ends())
ENDS(cuCtxDestroy_v2, CUcontext, slr_stream_ends())
ENDS(cuGreenCtxDestroy, void *, slr_stream_ends())

void slr_event_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    SLR_INSTALL(cuStreamDestroy);
    SLR_INSTALL(cuStreamDestroy_v2);
    SLR_INSTALL(cuCtxDestroy);
    SLR_INSTALL(cuCtxDestroy_v2);
    SLR_INSTALL(cuGreenCtxDestroy);
    SLR_INSTALL(cuIpcGetMemHandle);
    SLR_INSTALL(cuMemExportToShareableHandle);
    /* Without it no event carries a gather, so none has to be watched. */
    if (!slr_real.cuStreamGetCtx)
        return;
    SLR_INSTALL(cuIpcGetEventHandle);
    SLR_INSTALL(cuIpcOpenEventHandle);
}
