/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/wait.h"

_Atomic bool slr_nvtx_attached;

#ifdef SLIPRING_NVTX
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;

void slr_nvtx_open(void)
{
    static struct slr_once once;
    if (slr_once_done(&once) || !slr_once_begin(&once))
        return;
    /* Asked here, so that without a tool NVTX is never called. */
    const char *tool = getenv("NVTX_INJECTION64_PATH");
    if (tool && *tool) {
        domain = nvtxDomainCreateA("slipring");
        atomic_store(&slr_nvtx_attached, domain != NULL);
    }
    slr_once_end(&once);
}

void slr_nvtx_push(const char *what, const char *detail, uint64_t payload)
{
    char text[96];
    snprintf(text, sizeof text, "%s%s%s", what, *detail ? " " : "", detail);
    nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                   .payload.ullValue = payload,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = text};
    nvtxDomainRangePushEx(domain, &range);
}

void slr_nvtx_pop(void)
{
    nvtxDomainRangePop(domain);
}

#else

void slr_nvtx_open(void) {}

void slr_nvtx_push(const char *what, const char *detail, uint64_t payload)
{
    (void)what, (void)detail, (void)payload;
}

void slr_nvtx_pop(void) {}

#endif
