/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: one line each, to stderr and to the file that SOFTGPU_REPORT names. */
#include "sg.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_line(const char *line, size_t n)
{
    ssize_t rc = write(STDERR_FILENO, line, n);
    int fd = sg_cfg.report ? open(sg_cfg.report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        rc = write(fd, line, n); /* one write of a short line: lines of several processes do not mix */
        close(fd);
    }
    (void)rc;
}

void sg_misuse(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n = snprintf(line, sizeof(line), "softgpu: misuse: pid %d: ", (int)getpid());

    va_start(ap, fmt);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    put_line(line, (size_t)n);
    if (sg_cfg.misuse_abort)
        abort();
}

static void report_stream(const struct sg_ctx *ctx, const struct sg_stream *s)
{
    char what[256];
    unsigned n = 0;
    for (const struct sg_op *op = s->head; op; op = op->next)
        n++;
    if (n)
        sg_misuse("hang: device %d stream %p%s: %u queued, head: %s", ctx->dev, (void *)s->handle,
                  s->legacy ? " (legacy)" : "", n, sg_op_describe_locked(s->head, what, sizeof(what)));
}

/* Every queue's head, at most once per hang period: several waits usually get stuck together. */
void sg_report_hang_locked(void)
{
    static int64_t last;
    int64_t now = sg_now();
    bool stop = sg_cfg.misuse_abort;

    if (last && (double)(now - last) < sg_cfg.hang_seconds * 1e9 * 0.9)
        return;
    last = now;
    sg_cfg.misuse_abort = false; /* all lines first */
    sg_misuse("hang: a stream wait made no progress for %.1f s", sg_cfg.hang_seconds);
    for (int d = 0; d < sg_device_count; d++)
        for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
            if (ctx->dev == d)
                for (struct sg_stream *s = ctx->streams; s; s = s->next)
                    report_stream(ctx, s);
    if (stop || sg_cfg.hang_abort)
        abort();
}

void softgpuMisuse(const char *text);
__attribute__((visibility("default"))) void softgpuMisuse(const char *text)
{
    sg_misuse("%s", text);
}
