/* SPDX-License-Identifier: Apache-2.0 */
/* How many hardware queues the driver makes. It reads CUDA_DEVICE_MAX_CONNECTIONS in cuInit, and nowhere else (seen on
 * H200, driver 580); with 1, all streams share one queue, in which a stream that waits for a peer holds up whatever was
 * enqueued behind it on any other stream. Megatron-LM insists on 1, so that NCCL's kernels begin before the GEMMs that
 * they share the device with: the ring needs nothing of the kind. The program sees its own value, before and behind. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/settings.h"
#include "interpose/gate_table.h"
#include "interpose/hook.h"
#include "interpose/install.h"

#define NAME "CUDA_DEVICE_MAX_CONNECTIONS"
#define REAL(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

static _Atomic unsigned long raised_from; /* 0: it has not been */

/* What the environment says, if that is less than what is wanted; else 0. */
static unsigned long fewer(const char *text)
{
    char *end = NULL;
    const unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return text && end != text && *end == '\0' && n < slr_get(SLR_S_CONNECTIONS) ? n : 0;
}

static CUresult hook_cuInit(unsigned flags)
{
    static atomic_bool initialised;
    char more[24], own[24];
    const char *is = getenv(NAME);
    const unsigned long from = atomic_load(&initialised) ? 0 : fewer(is);
    if (!from || strlen(is) >= sizeof own)
        return REAL(cuInit)(flags);
    strcpy(own, is); /* NOLINT: it fits */
    snprintf(more, sizeof more, "%llu", (unsigned long long)slr_get(SLR_S_CONNECTIONS));
    setenv(NAME, more, 1); /* it exists, so other threads' look-ups find the one or the other */
    const CUresult r = REAL(cuInit)(flags);
    is = getenv(NAME);
    if (is && strcmp(is, more) == 0)
        setenv(NAME, own, 1);
    if (r == CUDA_SUCCESS && !atomic_exchange(&initialised, true))
        atomic_store(&raised_from, from);
    return r;
}

void slr_connections_install(void)
{
    if (slr_get(SLR_S_ENABLE) && slr_gate_found[SLR_GATE_IX_cuInit])
        slr_gate_real[SLR_GATE_IX_cuInit] = (void *)hook_cuInit;
}

void slr_connections_tell(void)
{
    if (atomic_load(&raised_from))
        slr_log(SLR_LOG_INFO, "connections", "from=%lu to=%llu", atomic_load(&raised_from),
                (unsigned long long)slr_get(SLR_S_CONNECTIONS));
}
