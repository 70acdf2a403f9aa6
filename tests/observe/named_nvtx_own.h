/* SPDX-License-Identifier: Apache-2.0 */
/* NVTX 3 as a program has it, for where its headers are not installed, and for looking at what a tool answers: one
 * instance, with the few functions that the tests call. Like the real one it loads the library that
 * NVTX_INJECTION64_PATH names at the first call, and gives up if that says no. */
#ifndef TESTS_NAMED_NVTX_OWN_H
#define TESTS_NAMED_NVTX_OWN_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include "plugin/abi/nvtx.h"

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE (sizeof(struct slr_nvtx_event))
#define NVTX_MESSAGE_TYPE_ASCII SLR_NVTX_ASCII
#define NVTX_MESSAGE_TYPE_UNICODE SLR_NVTX_UNICODE
#define NVTX_MESSAGE_TYPE_REGISTERED SLR_NVTX_REGISTERED
#define nvtxEventAttributes_t struct slr_nvtx_event
#define messageType message_type
typedef const void *nvtxDomainHandle_t, *nvtxStringHandle_t;

enum { OWN_CORE = 16, OWN_CORE2 = 16 };
static slr_nvtx_function own_core[OWN_CORE], own_core2[OWN_CORE2];
static slr_nvtx_function *own_core_table[OWN_CORE], *own_core2_table[OWN_CORE2];

static int own_module(enum slr_nvtx_module module, slr_nvtx_table *table, unsigned *n)
{
    for (int i = 1; i < OWN_CORE; i++)
        own_core_table[i] = &own_core[i], own_core2_table[i] = &own_core2[i];
    if (module != SLR_NVTX_CORE && module != SLR_NVTX_CORE2)
        return 0;
    *table = module == SLR_NVTX_CORE ? own_core_table : own_core2_table;
    *n = OWN_CORE;
    return 1;
}

static const void *own_get(uint32_t which)
{
    static const struct slr_nvtx_callbacks callbacks = {sizeof callbacks, own_module};
    return which == SLR_NVTX_TABLE_CALLBACKS ? &callbacks : NULL;
}

static void own_load(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*init)(slr_nvtx_get_table) =
        tool ? (int (*)(slr_nvtx_get_table))dlsym(tool, "InitializeInjectionNvtx2") : NULL;
    if (init && init(own_get))
        return;
    for (int i = 0; i < OWN_CORE; i++)
        own_core[i] = own_core2[i] = NULL;
}

static inline slr_nvtx_function own_at(slr_nvtx_function *functions, int i)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_load);
    return functions[i];
}

#define OWN_CALL(functions, i, type, none, args)                                                                       \
    slr_nvtx_function f = own_at(functions, i);                                                                        \
    return f ? ((type)f)args : (none)

static inline int nvtxRangePushEx(const struct slr_nvtx_event *e)
{
    OWN_CALL(own_core, SLR_NVTX_RANGE_PUSH_EX, int (*)(const struct slr_nvtx_event *), SLR_NVTX_NO_LEVEL, (e));
}

static inline int nvtxRangePushA(const char *text)
{
    OWN_CALL(own_core, SLR_NVTX_RANGE_PUSH_A, int (*)(const char *), SLR_NVTX_NO_LEVEL, (text));
}

static inline int nvtxRangePushW(const wchar_t *text)
{
    OWN_CALL(own_core, SLR_NVTX_RANGE_PUSH_W, int (*)(const wchar_t *), SLR_NVTX_NO_LEVEL, (text));
}

static inline int nvtxRangePop(void)
{
    OWN_CALL(own_core, SLR_NVTX_RANGE_POP, int (*)(void), SLR_NVTX_NO_LEVEL, ());
}

static inline int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const struct slr_nvtx_event *e)
{
    OWN_CALL(own_core2, SLR_NVTX_DOMAIN_RANGE_PUSH_EX, int (*)(const void *, const struct slr_nvtx_event *),
             SLR_NVTX_NO_LEVEL, (domain, e));
}

static inline int nvtxDomainRangePop(nvtxDomainHandle_t domain)
{
    OWN_CALL(own_core2, SLR_NVTX_DOMAIN_RANGE_POP, int (*)(const void *), SLR_NVTX_NO_LEVEL, (domain));
}

static inline nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t domain, const char *text)
{
    OWN_CALL(own_core2, SLR_NVTX_REGISTER_STRING_A, const void *(*)(const void *, const char *), NULL, (domain, text));
}

static inline nvtxStringHandle_t nvtxDomainRegisterStringW(nvtxDomainHandle_t domain, const wchar_t *text)
{
    OWN_CALL(own_core2, SLR_NVTX_REGISTER_STRING_W, const void *(*)(const void *, const wchar_t *), NULL,
             (domain, text));
}

static inline nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
    OWN_CALL(own_core2, SLR_NVTX_DOMAIN_CREATE_A, const void *(*)(const char *), NULL, (name));
}

static inline nvtxDomainHandle_t nvtxDomainCreateW(const wchar_t *name)
{
    OWN_CALL(own_core2, SLR_NVTX_DOMAIN_CREATE_W, const void *(*)(const wchar_t *), NULL, (name));
}

#endif
