/* SPDX-License-Identifier: Apache-2.0 */
#include "profiler_driver.h"

#include <dlfcn.h>
#include <regex.h>
#include <stdarg.h>

const struct slr_profiler_v5 *v5;
_Atomic int logged;
static void *library;

const void *table(const char *symbol)
{
    const void *found = dlsym(library, symbol);
    if (!found)
        fprintf(stderr, "%s: not there\n", symbol);
    CHECK(found);
    CHECK(!strcmp(*(const char *const *)found, "slipring")); /* every table begins with its name */
    return found;
}

void load(const char *path)
{
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    v5 = table("ncclProfiler_v5");
}

void logger(enum slr_nccl_log_level level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    CHECK(vsnprintf(text, sizeof text, fmt, ap) < (int)sizeof text);
    va_end(ap);
    CHECK(level == SLR_NCCL_LOG_INFO && subsystems && file && line > 0 && strstr(text, "slipring"));
    logged++;
}

static int matches(FILE *f, const regex_t *regex)
{
    int n = 0;
    char line[4096];
    while (fgets(line, sizeof line, f))
        n += regexec(regex, line, 0, NULL, 0) == 0;
    return n;
}

void expect(const char *regex, int times)
{
    regex_t compiled;
    char escaped[1024], *at = escaped;
    for (const char *p = regex; *p; p++) { /* "comm":"?" is meant literally */
        if (*p == '?')
            *at++ = '\\';
        *at++ = *p;
    }
    *at = 0;
    CHECK(regcomp(&compiled, escaped, REG_EXTENDED | REG_NOSUB) == 0);
    FILE *f = fopen(getenv("SLIPRING_LOG_FILE"), "r");
    int n = f ? matches(f, &compiled) : 0;
    if (f)
        fclose(f);
    regfree(&compiled);
    if (n != times)
        fprintf(stderr, "%d lines, expected %d: %s\n", n, times, regex);
    CHECK(n == times);
}

void *comm_open(uint64_t hash, int nranks, int rank)
{
    void *c = NULL;
    int mask = 0;
    CHECK(v5->init(&c, hash, &mask, NULL, 1, nranks, rank, logger) == ncclSuccess && c && mask);
    return c;
}

void *op_start(void *comm, const char *func, unsigned channels, size_t count)
{
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_COLL};
    void *h = NULL;
    e.coll.func = func;
    e.coll.datatype = "ncclInt8";
    e.coll.count = count;
    e.coll.channels = (uint8_t)channels;
    e.coll.algo = "RING";
    e.coll.proto = "SIMPLE";
    CHECK(v5->start_event(comm, &h, &e) == ncclSuccess);
    return h;
}

void *channel_start(void *comm, void *op, int channel, uint64_t gpu_ns)
{
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_KERNEL_CH, .parent = op};
    void *h = NULL;
    e.kernel_ch.channel = (uint8_t)channel;
    e.kernel_ch.ptimer = gpu_ns;
    CHECK(v5->start_event(comm, &h, &e) == ncclSuccess);
    return h;
}

/* As NCCL: nothing is called for a handle that is NULL. */
void channel_stop(void *channel, uint64_t gpu_ns)
{
    union slr_profile_state s = {.kernel_ch.ptimer = gpu_ns};
    if (!channel)
        return;
    CHECK(v5->record_event_state(channel, SLR_PROFILE_STATE_KERNEL_CH_STOP, &s) == ncclSuccess);
    CHECK(v5->stop_event(channel) == ncclSuccess);
}

void op_whole(void *comm, const char *func, unsigned channels, size_t count)
{
    struct slr_profile_event_v5 group = {.type = SLR_PROFILE_GROUP_API}, call = {.type = SLR_PROFILE_COLL_API};
    void *g = NULL, *h = NULL, *ch[64];
    CHECK(v5->start_event(comm, &g, &group) == ncclSuccess && !g);
    call.coll_api.func = func;
    call.coll_api.datatype = "ncclInt8";
    call.coll_api.count = count;
    CHECK(v5->start_event(comm, &h, &call) == ncclSuccess && h && v5->stop_event(h) == ncclSuccess);
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_COLL, .parent = h};
    e.coll.func = func;
    e.coll.datatype = "ncclInt8";
    e.coll.count = count;
    e.coll.channels = (uint8_t)channels;
    e.coll.algo = "RING";
    e.coll.proto = "SIMPLE";
    CHECK(v5->start_event(comm, &h, &e) == ncclSuccess && h && v5->stop_event(h) == ncclSuccess);
    for (unsigned i = 0; i < channels; i++)
        ch[i] = channel_start(comm, h, (int)i, 1000);
    for (unsigned i = 0; i < channels; i++)
        channel_stop(ch[i], 1500);
}
