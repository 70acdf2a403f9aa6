/* SPDX-License-Identifier: Apache-2.0 */
/* SOFTGPU_FAIL="cuMemAlloc_v2:3,cuIpcOpenMemHandle:1+=205": the n-th call (n+: from then on) fails, per process.
 * A name is an exported symbol or a base name (all its versions count together).
 * Instead of an error number: "=kill" the process is killed at that call, "=kill50" 50 ms later, "=stop" it stops,
 * "=sleep50" the call is delayed by 50 ms, "=spin50" with the thread at work. */
#include "sg.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_FAULTS 32
enum action { FAIL, KILL, STOP, SLEEP, SPIN };
static struct fault {
    char name[64];
    long n;
    bool from;
    enum action action;
    long ms;
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
    return e < SG_ENTRY_COUNT ? names[e].symbol : "a function that is not supported";
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
        {"Allocation", CUDA_ERROR_INVALID_VALUE}, /* cuMemGetAllocation..., cuMemRetainAllocation...: before "Alloc" */
        {"AddressReserve", CUDA_ERROR_OUT_OF_MEMORY},
        {"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY},
        {"Access", CUDA_ERROR_INVALID_VALUE},
        {"ShareableHandle", CUDA_ERROR_OPERATING_SYSTEM},
        {"cuMemRelease", CUDA_ERROR_INVALID_VALUE},
        {"Unmap", CUDA_ERROR_INVALID_VALUE},
        {"Alloc", CUDA_ERROR_OUT_OF_MEMORY},
        {"IpcOpen", CUDA_ERROR_MAP_FAILED},
        {"IpcGet", CUDA_ERROR_MAP_FAILED},
        {"IpcClose", CUDA_ERROR_MAP_FAILED},
        {"Create", CUDA_ERROR_OUT_OF_MEMORY},
        {"HostRegister", CUDA_ERROR_OUT_OF_MEMORY},
        {"Value", CUDA_ERROR_NOT_SUPPORTED},
        {"BatchMemOp", CUDA_ERROR_NOT_SUPPORTED},
        {"Launch", CUDA_ERROR_LAUNCH_FAILED},
        {"PeerAccess", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
        {"cuInit", CUDA_ERROR_NO_DEVICE},
        {"Memcpy", CUDA_ERROR_INVALID_VALUE},
        {"Memset", CUDA_ERROR_INVALID_VALUE},
        {"Primary", CUDA_ERROR_OUT_OF_MEMORY},
        {"Free", CUDA_ERROR_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (strstr(name, map[i].part))
            return map[i].error;
    return CUDA_ERROR_UNKNOWN;
}

static void parse_action(struct fault *f, const char *text)
{
    static const struct {
        const char *name;
        enum action action;
    } actions[] = {{"kill", KILL}, {"stop", STOP}, {"sleep", SLEEP}, {"spin", SPIN}};
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        size_t len = strlen(actions[i].name);
        if (strncmp(text, actions[i].name, len))
            continue;
        f->action = actions[i].action;
        f->ms = strtol(text + len, NULL, 10);
        f->error = CUDA_SUCCESS;
        return;
    }
    f->error = (CUresult)strtol(text, NULL, 10);
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
    f->error = default_error(f->name);
    if (*end == '=')
        parse_action(f, end + 1);
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

static void kill_in(long ms)
{
    struct sigevent at = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {ms / 1000, ms % 1000 * 1000000}};
    timer_t timer;
    if (ms == 0 || timer_create(CLOCK_MONOTONIC, &at, &timer) || timer_settime(timer, 0, &when, NULL))
        kill(getpid(), SIGKILL);
}

/* As if the thread had been held up: it is not asleep. */
static void spin(long ms)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

static CUresult strike(const struct fault *f)
{
    struct timespec ts = {f->ms / 1000, f->ms % 1000 * 1000000};
    if (f->action == KILL)
        kill_in(f->ms);
    else if (f->action == STOP)
        raise(SIGSTOP);
    else if (f->action == SLEEP)
        nanosleep(&ts, NULL);
    else if (f->action == SPIN)
        spin(f->ms);
    return f->error;
}

CUresult sg_fault(enum sg_entry e)
{
    for (unsigned i = 0; i < nfaults && e < SG_ENTRY_COUNT; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->name, names[e].symbol) && strcmp(f->name, names[e].base))
            continue;
        long call = atomic_fetch_add(&f->calls, 1) + 1;
        CUresult rc = call == f->n || (f->from && call > f->n) ? strike(f) : CUDA_SUCCESS;
        if (rc)
            return rc;
    }
    return CUDA_SUCCESS;
}
