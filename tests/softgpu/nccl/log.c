/* NCCL's warnings: to stdout or NCCL_DEBUG_FILE when NCCL_DEBUG asks for them, and kept for ncclGetLastError. */
#include "comm.h"

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

static void log_text(const char text[sizeof last_error])
{
    char host[256] = "";
    pthread_mutex_lock(&last_error_lock);
    memcpy(last_error, text, sizeof last_error);
    if (wants_warnings()) {
        gethostname(host, sizeof host - 1);
        FILE *f = open_log(host);
        fprintf(f, "\n%s:%d:%d NCCL WARN %s\n", host, (int)getpid(), (int)gettid(), text);
        if (f == stdout)
            fflush(f);
        else
            fclose(f);
    }
    pthread_mutex_unlock(&last_error_lock);
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
