/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program gives to other processes (cache/handles.h). */
#include "cache/handles.h"

#include "base/settings.h"
#include "interpose/dlsym.h"
#include "interpose/gate_table.h"
#include "interpose/install.h"

#define REAL(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

static CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
    slr_guard++;
    slr_memory_gives(p);
    slr_guard--;
    return REAL(cuIpcGetMemHandle)(out, p);
}

struct object {
    uintptr_t one, other; /* addresses */
    bool both;
};

static int has_both(struct dl_phdr_info *info, size_t size, void *what)
{
    struct object *o = what;
    (void)size;
    const bool one = slr_elf_has(info, o->one), other = slr_elf_has(info, o->other);
    o->both = one && other;
    return one || other;
}

/* NCCL exports memory of its own, also by threads of its own. */
static bool is_nccl(const void *caller)
{
    struct object o = {.one = (uintptr_t)caller, .other = (uintptr_t)slr_real.ncclGetVersion};
    dl_iterate_phdr(has_both, &o);
    return o.both;
}

static CUresult hook_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle memory,
                                                  CUmemAllocationHandleType type, unsigned long long flags)
{
    if (slr_guard == 0 && !is_nccl(__builtin_return_address(0)))
        slr_memory_gives_all();
    return REAL(cuMemExportToShareableHandle)(out, memory, type, flags);
}

#define INSTALL(sym)                                                                                                   \
    if (slr_gate_found[SLR_GATE_IX_##sym])                                                                             \
    slr_gate_real[SLR_GATE_IX_##sym] = (void *)hook_##sym

void slr_given_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    INSTALL(cuIpcGetMemHandle);
    INSTALL(cuMemExportToShareableHandle);
}
