/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm.h"

static const struct {
    const char *variable, *prefix, *name;
} kinds[PLUGIN_KINDS] = {
    [PLUGIN_TUNER] = {"NCCL_TUNER_PLUGIN", "libnccl-tuner", "TUNER"},
    [PLUGIN_PROFILER] = {"NCCL_PROFILER_PLUGIN", "libnccl-profiler", "PROFILER"},
};

static struct {
    void *handle;
    const void *symbol;
    int version, users, failed;
} loaded[PLUGIN_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NAME_BYTES 255 /* NCCL cuts longer ones */

static void *open_one(enum plugin_kind kind, const char *name)
{
    int self = *name && strncasecmp(name, "STATIC_PLUGIN", strlen(name)) == 0;
    void *handle = dlopen(self ? NULL : name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        nccl_info(SLR_NCCL_SUBSYS_INIT, "%s/Plugin: %s", kinds[kind].name, dlerror());
    return handle;
}

/* A name that is neither a path nor a library's. */
static int is_short(const char *name)
{
    size_t n = strlen(name);
    return !strchr(name, '/') && (strncmp(name, "lib", 3) != 0 || n < 3 || strcmp(name + n - 3, ".so") != 0);
}

static void *open_plugin(enum plugin_kind kind)
{
    const char *value = getenv(kinds[kind].variable);
    char name[NAME_BYTES];
    if (value && !strcasecmp(value, "none"))
        return NULL;
    if (value && *value)
        snprintf(name, sizeof name, "%s", value);
    else
        snprintf(name, sizeof name, "%s.so", kinds[kind].prefix);
    void *handle = open_one(kind, name);
    if (handle || !value || !*value || !is_short(value))
        return handle;
    snprintf(name, sizeof name, "%s-%s.so", kinds[kind].prefix, value);
    return open_one(kind, name);
}

static void load(enum plugin_kind kind, const char *const *versions)
{
    void *handle = open_plugin(kind);
    loaded[kind].failed = 1;
    for (int i = 0; handle && versions[i] && loaded[kind].failed; i++) {
        const void *symbol = dlsym(handle, versions[i]);
        if (!symbol)
            continue;
        loaded[kind].handle = handle;
        loaded[kind].symbol = symbol;
        loaded[kind].version = i;
        loaded[kind].failed = 0;
        /* Every plugin interface begins with its name. */
        nccl_info(SLR_NCCL_SUBSYS_INIT | SLR_NCCL_SUBSYS_TUNING, "%s/Plugin: Using %s (%s)", kinds[kind].name,
                  *(const char *const *)symbol, strrchr(versions[i], 'v'));
    }
    if (handle && loaded[kind].failed) {
        nccl_info(SLR_NCCL_SUBSYS_INIT, "%s/Plugin: no version of the interface is supported", kinds[kind].name);
        dlclose(handle);
    }
}

const void *plugin_use(enum plugin_kind kind, const char *const *versions, int *version)
{
    const void *symbol = NULL;
    pthread_mutex_lock(&lock);
    if (!loaded[kind].handle && !loaded[kind].failed)
        load(kind, versions);
    if (loaded[kind].handle) {
        loaded[kind].users++;
        symbol = loaded[kind].symbol;
        *version = loaded[kind].version;
    }
    pthread_mutex_unlock(&lock);
    return symbol;
}

void plugin_unuse(enum plugin_kind kind)
{
    pthread_mutex_lock(&lock);
    if (--loaded[kind].users == 0) {
        nccl_info(SLR_NCCL_SUBSYS_INIT, "%s/Plugin: Closing %s", kinds[kind].name,
                  *(const char *const *)loaded[kind].symbol);
        dlclose(loaded[kind].handle);
        loaded[kind].handle = NULL;
    }
    pthread_mutex_unlock(&lock);
}
