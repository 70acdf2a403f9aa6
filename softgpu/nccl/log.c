/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's warnings: to stdout or NCCL_DEBUG_FILE when NCCL_DEBUG asks for them, and kept for ncclGetLastError. */
#include "comm.h"
#include "plugin_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char last_error[1024];
static pthread_mutex_t last_error_lock = PTHREAD_MUTEX_INITIALIZER;

static int wants_warnings(void)
{
    const char *level = getenv("NCCL_DEBUG");
    return level && (!strcasecmp(level, "WARN") || !strcasecmp(level, "INFO") || !strcasecmp(level, "ABORT") ||
                     !strcasecmp(level, "TRACE"));
}

/* NCCL_DEBUG_FILE with %h (host) and %p (process) replaced. */
static FILE *open_log(const char *host)
{
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    char path[4096];
    size_t n = 0;
    if (!pattern || !*pattern)
        return stdout;
    for (const char *p = pattern; *p && n < sizeof path - 300; p++) {
        if (p[0] == '%' && p[1] == 'h')
            n += (size_t)snprintf(path + n, sizeof path - n, "%s", host), p++;
        else if (p[0] == '%' && p[1] == 'p')
            n += (size_t)snprintf(path + n, sizeof path - n, "%d", (int)getpid()), p++;
        else
            path[n++] = *p;
    }
    path[n] = 0;
    FILE *f = fopen(path, "a");
    return f ? f : stdout;
}

/* Under the lock. */
static void write_line(const char *before, const char *what, const char *text)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    FILE *f = open_log(host);
    fprintf(f, "%s%s:%d:%d NCCL %s %s\n", before, host, (int)getpid(), (int)gettid(), what, text);
    if (f == stdout)
        fflush(f);
    else
        fclose(f);
}

static void log_text(const char text[sizeof last_error])
{
    pthread_mutex_lock(&last_error_lock);
    memcpy(last_error, text, sizeof last_error);
    if (wants_warnings())
        write_line("\n", "WARN", text);
    pthread_mutex_unlock(&last_error_lock);
}

/* The bits of NCCL_DEBUG_SUBSYS; the names that nothing here uses count as nothing. */
static unsigned long subsystems_wanted(void)
{
    static const struct {
        const char *name;
        unsigned long bit;
    } names[] = {{"INIT", SLR_NCCL_SUBSYS_INIT},       {"COLL", SLR_NCCL_SUBSYS_COLL},
                 {"TUNING", SLR_NCCL_SUBSYS_TUNING},   {"ENV", SLR_NCCL_SUBSYS_ENV},
                 {"PROFILE", SLR_NCCL_SUBSYS_PROFILE}, {"ALL", ~0ul}};
    const char *list = getenv("NCCL_DEBUG_SUBSYS");
    unsigned long bits = 0;
    if (!list)
        return SLR_NCCL_SUBSYS_INIT | SLR_NCCL_SUBSYS_ENV;
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i].name) == n && !strncasecmp(names[i].name, list, n))
                bits |= names[i].bit;
    }
    return bits;
}

int nccl_info_wanted(unsigned long subsystems)
{
    const char *level = getenv("NCCL_DEBUG");
    return level && (!strcasecmp(level, "INFO") || !strcasecmp(level, "TRACE")) && (subsystems_wanted() & subsystems);
}

static void info(unsigned long subsystems, const char *fmt, va_list ap)
{
    char text[sizeof last_error];
    if (!nccl_info_wanted(subsystems))
        return;
    vsnprintf(text, sizeof text, fmt, ap);
    pthread_mutex_lock(&last_error_lock);
    write_line("", "INFO", text);
    pthread_mutex_unlock(&last_error_lock);
}

void nccl_info(unsigned long subsystems, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    info(subsystems, fmt, ap);
    va_end(ap);
}

void nccl_plugin_log(enum slr_nccl_log_level level, unsigned long subsystems, const char *file, int line,
                     const char *fmt, ...)
{
    char text[sizeof last_error];
    va_list ap;
    (void)file, (void)line;
    va_start(ap, fmt);
    if (level == SLR_NCCL_LOG_WARN) {
        vsnprintf(text, sizeof text, fmt, ap);
        log_text(text);
    } else if (level == SLR_NCCL_LOG_INFO) {
        info(subsystems, fmt, ap);
    }
    va_end(ap);
}

ncclResult_t nccl_warn(ncclResult_t code, const char *fmt, ...)
{
    char text[sizeof last_error];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_text(text);
    return code;
}

ncclResult_t nccl_misuse(ncclResult_t code, const char *fmt, ...)
{
    const struct softdrv *drv = softdrv_get();
    char text[sizeof last_error] = "NCCL ";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + 5, sizeof text - 5, fmt, ap);
    va_end(ap);
    log_text(text);
    if (drv)
        drv->misuse(text);
    return code;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char copy[sizeof last_error];
    (void)comm; /* NCCL keeps one text for the process, too */
    pthread_mutex_lock(&last_error_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&last_error_lock);
    return copy;
}
NCCL_ALIAS(ncclGetLastError);

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}
NCCL_ALIAS(ncclGetErrorString);

/* Deprecated and without effect in NCCL 2.28, too: the environment is read at every warning here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void ncclResetDebugInit(void) {}
NCCL_ALIAS(ncclResetDebugInit);
#pragma GCC diagnostic pop
