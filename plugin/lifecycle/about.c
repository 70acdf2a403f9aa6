/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/lifecycle/about.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"

enum { COMMAND_MOST = 800, SETTINGS_MOST = 600 }; /* a line has to hold both */

/* The program and its arguments, with spaces between them. */
static void command(char *text, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    n = n < 0 ? 0 : n;
    while (n > 0 && text[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : ' ';
    text[n] = '\0';
}

/* "MIN_BYTES=0 TRIALS=1": those that the environment gives. Where the log goes is no news. */
static void settings(char *text, size_t size)
{
    size_t len = 0;
    *text = '\0';
    for (int i = 0; i < SLR_S_COUNT && len < size; i++) {
        char name[64];
        snprintf(name, sizeof name, SLR_SETTING_PREFIX "%s", slr_setting_rows[i].name);
        const char *value = slr_settings()->given[i] ? getenv(name) : NULL;
        if (value && i != SLR_S_LOG && i != SLR_S_LOG_FILE && i != SLR_S_LOG_FORMAT)
            len += (size_t)snprintf(text + len, size - len, "%s%s=%s", len ? " " : "", slr_setting_rows[i].name, value);
    }
}

static _Atomic unsigned long queues_from, queues_to;

void slr_about_queues(unsigned long from, unsigned long to)
{
    atomic_store(&queues_to, to);
    atomic_store(&queues_from, from);
}

void slr_about_log(void)
{
    static _Atomic bool told;
    char of[COMMAND_MOST], given[SETTINGS_MOST];
    int nccl = 0, cuda = 0;
    if (!slr_log_enabled(SLR_LOG_INFO) || atomic_exchange(&told, true))
        return;
    command(of, sizeof of);
    settings(given, sizeof given);
    if (slr_real.ncclGetVersion)
        slr_real.ncclGetVersion(&nccl);
    if (slr_real.cuDriverGetVersion)
        slr_real.cuDriverGetVersion(&cuda);
    slr_log(SLR_LOG_INFO, "process", "version=%s nccl=%d cuda=%d settings=%s command=%s", SLIPRING_VERSION, nccl, cuda,
            given, of);
    const unsigned long from = atomic_load(&queues_from);
    if (from)
        slr_log(SLR_LOG_INFO, "connections", "from=%lu to=%lu", from, atomic_load(&queues_to));
}
