/* SPDX-License-Identifier: Apache-2.0 */
/* The real functions and the hooks' words; status codes, and that of a driver call; reasons. */
#include "base/status.h"

#include <stddef.h>
#include "base/log.h"

struct slr_real slr_real;
_Atomic unsigned slr_gate_word = SLR_GATE_UNRESOLVED;
_Atomic unsigned slr_gemm_watch;
_Atomic unsigned slr_graphs_held;
_Thread_local int slr_guard __attribute__((tls_model("initial-exec")));
_Thread_local int slr_guard_program __attribute__((tls_model("initial-exec")));

_Atomic unsigned slr_reach_word;
void (*_Atomic slr_reach_looks)(void);

static const char *const names[] = {
#define X(id, name, nccl) name,
    SLR_STATUSES(X)
#undef X
};
_Static_assert(sizeof names / sizeof *names == SLR_STATUS_COUNT, "one name per status");

const char *slr_status_name(enum slr_status s)
{
    return (unsigned)s < SLR_STATUS_COUNT ? names[s] : "unknown";
}

enum slr_status slr_cu_status(CUresult r, const char *call)
{
    if (r == CUDA_SUCCESS)
        return SLR_OK;
    const char *name = "?";
    if (slr_real.cuGetErrorName)
        slr_real.cuGetErrorName(r, &name);
    /* Else the process ends, and the driver is gone: no error of anybody's. */
    if (r != CUDA_ERROR_DEINITIALIZED)
        slr_log(SLR_LOG_ERROR, "cuda_error", "call=%s error=%s code=%d", call, name, (int)r);
    return r == CUDA_ERROR_OUT_OF_MEMORY ? SLR_NOMEM : SLR_CUDA;
}

static const struct {
    const char *name, *doc, *cure;
} reasons[] = {
#define X(id, name, doc, cure) {name, doc, cure},
#include "base/reasons.def"
#undef X
};
_Static_assert(sizeof reasons / sizeof *reasons == SLR_R_COUNT, "one row per reason");

const char *slr_reason_name(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? reasons[r].name : "unknown";
}

const char *slr_reason_doc(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? reasons[r].doc : "not a reason";
}

const char *slr_reason_cure(enum slr_reason r)
{
    return (unsigned)r < SLR_R_COUNT ? reasons[r].cure : NULL;
}
