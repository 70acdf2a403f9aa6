/* SPDX-License-Identifier: Apache-2.0 */
/* A tool as NVTX loads it (NVTX_INJECTION64_PATH): writes the ranges of all domains to TEST_NVTX_FILE.PID, one a line:
 *
 *   begin THREAD DEPTH DOMAIN PAYLOAD MESSAGE        DEPTH from 0
 *   end THREAD DEPTH                                 of the range that ends; -1: none was open
 *   loaded                                           first of all
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *out;
static char domains[16][32];
static int domain_count;
static _Thread_local int depth;

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    int i = __atomic_fetch_add(&domain_count, 1, __ATOMIC_RELAXED) % 16;
    strncpy(domains[i], name, sizeof domains[i] - 1);
    return (nvtxDomainHandle_t)(void *)domains[i];
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a)
{
    if (a->version != NVTX_VERSION || a->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE ||
        a->payloadType != NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 || a->messageType != NVTX_MESSAGE_TYPE_ASCII)
        fprintf(out, "malformed\n");
    else
        fprintf(out, "begin %d %d %s %llu %s\n", (int)gettid(), depth, (const char *)domain,
                (unsigned long long)a->payload.ullValue, a->message.ascii);
    return depth++;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    fprintf(out, "end %d %d\n", (int)gettid(), --depth);
    return depth;
}

static void hook(const NvtxExportTableCallbacks *callbacks, unsigned which, void (*with)(void))
{
    NvtxFunctionTable table;
    unsigned size = 0;
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) && size > which)
        *table[which] = (NvtxFunctionPointer)with;
}

__attribute__((visibility("default"))) int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    char path[4096];
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    if (!callbacks || !getenv("TEST_NVTX_FILE"))
        return 0;
    snprintf(path, sizeof path, "%s.%d", getenv("TEST_NVTX_FILE"), (int)getpid());
    if (!(out = fopen(path, "w")))
        return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    fprintf(out, "loaded\n");
    hook(callbacks, NVTX_CBID_CORE2_DomainCreateA, (void (*)(void))create);
    hook(callbacks, NVTX_CBID_CORE2_DomainRangePushEx, (void (*)(void))push);
    hook(callbacks, NVTX_CBID_CORE2_DomainRangePop, (void (*)(void))pop);
    return 1;
}
