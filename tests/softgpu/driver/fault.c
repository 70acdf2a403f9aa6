/* SOFTGPU_FAIL="cuMemAlloc_v2:3,cuIpcOpenMemHandle:1+=205": the n-th call (n+: from then on) fails, per process.
 * A name is an exported symbol or a base name (all its versions count together). */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 32
static struct fault {
    char name[64];
    long n;
    bool from;
    CUresult error;
    atomic_long calls;
} faults[MAX_FAULTS];
static unsigned nfaults;

static const struct {
    const char *symbol, *base;
} names[] = {
#define SG_ENTRY(symbol, base, version, mode) {#symbol, #base},
#include "entries.def"
#undef SG_ENTRY
};

const char *sg_entry_name(enum sg_entry e)
{
    return names[e].symbol;
}

const char *sg_entry_base(enum sg_entry e)
{
    return names[e].base;
}

static CUresult default_error(const char *name)
{
    static const struct {
        const char *part;
        CUresult error;
    } map[] = {
        {"Alloc", CUDA_ERROR_OUT_OF_MEMORY},  {"IpcOpen", CUDA_ERROR_MAP_FAILED},
        {"IpcGet", CUDA_ERROR_MAP_FAILED},    {"IpcClose", CUDA_ERROR_MAP_FAILED},
        {"Create", CUDA_ERROR_OUT_OF_MEMORY}, {"HostRegister", CUDA_ERROR_OUT_OF_MEMORY},
        {"Value", CUDA_ERROR_NOT_SUPPORTED},  {"BatchMemOp", CUDA_ERROR_NOT_SUPPORTED},
        {"Launch", CUDA_ERROR_LAUNCH_FAILED}, {"PeerAccess", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
        {"cuInit", CUDA_ERROR_NO_DEVICE},     {"Memcpy", CUDA_ERROR_INVALID_VALUE},
        {"Memset", CUDA_ERROR_INVALID_VALUE}, {"Primary", CUDA_ERROR_OUT_OF_MEMORY},
        {"Free", CUDA_ERROR_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (strstr(name, map[i].part))
            return map[i].error;
    return CUDA_ERROR_UNKNOWN;
}

static void parse_one(char *item)
{
    struct fault *f = &faults[nfaults];
    char *colon = strchr(item, ':'), *end;

    if (!colon || (size_t)(colon - item) >= sizeof(f->name) || nfaults == MAX_FAULTS)
        return;
    memcpy(f->name, item, (size_t)(colon - item));
    f->n = strtol(colon + 1, &end, 10);
    f->from = *end == '+';
    end += f->from;
    f->error = *end == '=' ? (CUresult)strtol(end + 1, NULL, 10) : default_error(f->name);
    nfaults++;
}

void sg_fault_load(void)
{
    const char *env = getenv("SOFTGPU_FAIL");
    char *copy = env ? strdup(env) : NULL, *save = NULL;
    if (copy)
        for (char *item = strtok_r(copy, ", ", &save); item; item = strtok_r(NULL, ", ", &save))
            parse_one(item);
    free(copy);
}

CUresult sg_fault(enum sg_entry e)
{
    for (unsigned i = 0; i < nfaults && e < SG_ENTRY_COUNT; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->name, names[e].symbol) && strcmp(f->name, names[e].base))
            continue;
        long call = atomic_fetch_add(&f->calls, 1) + 1;
        if (call == f->n || (f->from && call > f->n))
            return f->error;
    }
    return CUDA_SUCCESS;
}
