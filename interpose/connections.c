/* SPDX-License-Identifier: Apache-2.0 */
/* How many hardware queues the driver makes in a context. It reads CUDA_DEVICE_MAX_CONNECTIONS in cuInit, and nowhere
 * else; 8 is what it makes when nothing is said. A stream that waits at the head of a queue holds up whatever was
 * enqueued later on streams that share it; and when as many streams wait as there are queues, nothing begins on any
 * other one (seen on H200, driver 580). A gather that is held is three to five such streams, where NCCL's is a kernel,
 * which holds nobody: so with the driver's 8 two communicators whose peers are late could stop the whole device.
 * Megatron-LM even insists on 1, so that NCCL's kernels begin before the GEMMs that they share the device with: of calls
 * that stay with NCCL slipring keeps that order (plugin/pending/front.c); the ring needs nothing of the kind.
 *
 * So the environment says SLIPRING_CONNECTIONS during the first cuInit, if it asks for fewer before. Not where a daemon
 * of the Multi-Process Service runs, whose clients share what there is, unless the user has set it: some of them may
 * find none left. What other threads look up meanwhile is in the old list of variables or in the new one, and what they
 * change stays changed. A process that another thread starts meanwhile inherits the new one. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/settings.h"
#include "base/wait.h"
#include "interpose/hook.h"
#include "interpose/gate.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/pending/pending.h"

#define NAME "CUDA_DEVICE_MAX_CONNECTIONS"
#define DRIVERS_OWN 8ul /* without it */

static CUresult hook_cuInit(unsigned flags);

/* The environment with another number; never freed, as somebody may read it. */
struct list {
    struct list *before; /* of a cuInit that failed */
    char *entry[];
};
static struct list *more;
static char variable[64]; /* that one */

static bool shares(void)
{
    const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char pipe[4096];
    snprintf(pipe, sizeof pipe, "%s/control", given && *given ? given : "/tmp/nvidia-mps");
    return access(pipe, F_OK) == 0;
}

/* How many are asked for, if that is less than what is wanted; else 0. The driver makes its own number of "" and 0,
 * too; what is no number is its to judge. */
static unsigned long fewer(const char *text)
{
    char *end = "";
    const unsigned long n = text ? strtoul(text, &end, 10) : 0, asked = n ? n : DRIVERS_OWN;
    return *end == '\0' && asked < slr_get(SLR_S_CONNECTIONS) ? asked : 0;
}

static bool is_it(const char *entry)
{
    return strncmp(entry, NAME "=", sizeof NAME) == 0;
}

static bool make_more(void)
{
    size_t n = 0, kept = 0;
    while (environ && environ[n])
        n++;
    struct list *list = calloc(1, sizeof *list + (n + 2) * sizeof list->entry[0]);
    if (!list)
        return false;
    snprintf(variable, sizeof variable, NAME "=%llu", (unsigned long long)slr_get(SLR_S_CONNECTIONS));
    for (size_t i = 0; i < n; i++)
        if (!is_it(environ[i]))
            list->entry[kept++] = environ[i];
    list->entry[kept] = variable;
    list->before = more;
    more = list;
    return true;
}

/* No other thread has changed a variable meanwhile, or taken one out: glibc does both in the list. */
static bool untouched(char *const *own)
{
    size_t at = 0;
    for (size_t i = 0; own && own[i]; i++)
        if (!is_it(own[i]) && more->entry[at++] != own[i])
            return false;
    return more->entry[at] == variable && !more->entry[at + 1];
}

/* If another thread has set a new variable meanwhile, the list is a third one, with ours in it, and `own` may be
 * freed. */
static void take_back(char **own, const char *before)
{
    if (environ == more->entry && untouched(own))
        environ = own;
    else if (before)
        setenv(NAME, before, 1);
    else
        unsetenv(NAME);
}

static CUresult init_with_more(unsigned flags)
{
    int saved = errno; /* the driver sees the caller's, and the caller the driver's */
    char **own = environ;
    const char *before = getenv(NAME);
    const bool may = slr_settings()->given[SLR_S_CONNECTIONS] || !shares();
    const unsigned long n = may ? fewer(before) : 0;
    const bool raised = n && make_more();
    errno = saved;
    if (!raised)
        return SLR_FOUND(cuInit)(flags);
    environ = more->entry;
    const CUresult r = SLR_FOUND(cuInit)(flags);
    saved = errno;
    take_back(own, before);
    errno = saved;
    if (r == CUDA_SUCCESS)
        slr_about_queues(n, slr_get(SLR_S_CONNECTIONS));
    if (r == CUDA_SUCCESS && n == 1)
        slr_front_on();
    return r;
}

static CUresult hook_cuInit(unsigned flags)
{
    static struct slr_once once;
    static _Thread_local bool inside
        __attribute__((tls_model("initial-exec"))); /* cuInit loads CUDA_INJECTION64_PATH */
    if (inside || !slr_once_begin(&once))
        return SLR_FOUND(cuInit)(flags);
    inside = true;
    const CUresult r = init_with_more(flags);
    inside = false;
    if (r == CUDA_SUCCESS)
        slr_once_end(&once);
    else
        atomic_store(&once.word, 0); /* the next one counts */
    return r;
}

void slr_connections_install(void)
{
    if (slr_get(SLR_S_ENABLE) && slr_gate_found[SLR_GATE_IX_cuInit])
        slr_gate_real[SLR_GATE_IX_cuInit] = (void *)hook_cuInit;
}
