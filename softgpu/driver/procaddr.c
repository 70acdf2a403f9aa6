/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: base name, requested version and stream flags select one symbol of the entry table. */
#include "sg.h"
#include <cudaProfiler.h>
#include <pthread.h>
#include <string.h>

enum mode { LEGACY, PTSZ };

static const struct row {
    const char *symbol, *base;
    int version;
    enum mode mode;
    void (*fn)(void);
} rows[] = {
#define SG_ENTRY(symbol, base, version, mode) {#symbol, #base, version, mode, (void (*)(void))symbol},
#include "entries.def"
#include "unsupported.def"
#undef SG_ENTRY
};

/* A program asks for some hundred of them at its start: rows by name. A chain is in the order of the table. */
enum { ROWS = sizeof(rows) / sizeof(rows[0]), BUCKETS = 1024, END = UINT16_MAX };
static uint16_t first_of[BUCKETS], next_of[ROWS];
static pthread_once_t chains_once = PTHREAD_ONCE_INIT;

static unsigned bucket(const char *base)
{
    unsigned h = 0;
    for (; *base; base++)
        h = h * 131 + (unsigned char)*base;
    return h % BUCKETS;
}

static void make_chains(void)
{
    memset(first_of, 0xff, sizeof(first_of));
    for (unsigned i = ROWS; i-- > 0;) {
        unsigned b = bucket(rows[i].base);
        next_of[i] = first_of[b];
        first_of[b] = (uint16_t)i;
    }
}

/* The newest version that the caller may use, among the legacy or the per-thread symbols. */
static const struct row *newest(const char *base, int version, enum mode mode, bool *exists)
{
    const struct row *best = NULL;

    pthread_once(&chains_once, make_chains);
    for (unsigned i = first_of[bucket(base)]; i != END; i = next_of[i]) {
        if (rows[i].mode != mode || strcmp(rows[i].base, base))
            continue;
        *exists = true;
        if (rows[i].version <= version && (!best || rows[i].version > best->version))
            best = &rows[i];
    }
    return best;
}

static CUresult lookup(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct row *row = NULL;
    bool exists = false;

    if (!symbol || !pfn || version > 13000 || flags & ~both || flags == both)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        row = newest(symbol, version, PTSZ, &exists);
    if (!row)
        row = newest(symbol, version, LEGACY, &exists);
    if (row)
        memcpy(pfn, &row->fn, sizeof(*pfn)); /* a function pointer as data: what this call is about */
    else
        *pfn = NULL;
    if (status)
        *status = row      ? CU_GET_PROC_ADDRESS_SUCCESS
                  : exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                           : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *symbolStatus)
{
    return lookup(symbol, pfn, cudaVersion, flags, symbolStatus);
}

/* The first version has no status to tell it by, so it answers with an error. */
CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult rc = lookup(symbol, pfn, cudaVersion, flags, NULL);
    return !rc && !*pfn ? CUDA_ERROR_NOT_FOUND : rc;
}

CUresult CUDAAPI cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    if (!ppExportTable || !pExportTableId)
        return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
