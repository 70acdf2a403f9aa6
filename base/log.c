/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_internal.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

enum { FIRST_KEYS = 4096 };

static _Atomic int known_level = -1;            /* SLIPRING_LOG, once it has been asked for */
static _Atomic uint64_t first_keys[FIRST_KEYS]; /* 0: free */
static _Atomic unsigned first_used;
/* A line written while one is being written on this thread (from a signal handler, or a hook under
 * write) is dropped. */
static _Thread_local bool busy __attribute__((tls_model("initial-exec")));

/* Told by the log and not where the settings are parsed: settings know nothing of the log. */
static void tell_problems(void)
{
    const struct slr_setting_problem *p;
    for (int i = 0; (p = slr_settings_problem(i)); i++)
        if (*p->nearest)
            slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s nearest=%s msg=%s", p->name, p->value,
                    p->expected, p->nearest, "ignored");
        else
            slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s msg=%s", p->name, p->value, p->expected,
                    "ignored, the default is used");
}

/* The level is known before the problems are told, so telling them does not come back here. */
static enum slr_log_level first_level(void)
{
    static _Atomic bool told;
    enum slr_log_level level = (enum slr_log_level)slr_get(SLR_S_LOG);
    atomic_store_explicit(&known_level, (int)level, memory_order_relaxed);
    if (!atomic_exchange(&told, true))
        tell_problems();
    return level;
}

static enum slr_log_level level_now(void)
{
    int level = atomic_load_explicit(&known_level, memory_order_relaxed);
    return __builtin_expect(level >= 0, 1) ? (enum slr_log_level)level : first_level();
}

bool slr_log_enabled(enum slr_log_level level)
{
    return level != SLR_LOG_OFF && level <= level_now();
}

static void write_line(enum slr_log_level level, const char *event, const char *fmt, struct slr_args *args)
{
    char line[SLR_LOG_LINE];
    /* The line may be written inside a hook, whose caller reads the errno of the vendor's
     * function. */
    int saved = errno;
    if (busy)
        return;
    busy = true;
    size_t len = slr_line_format(line, level, event, fmt, args);
    slr_sink_write(line, len);
    busy = false;
    errno = saved;
}

void slr_log(enum slr_log_level level, const char *event, const char *fmt, ...)
{
    struct slr_args args;
    if (!slr_log_enabled(level))
        return;
    va_start(args.list, fmt);
    write_line(level, event, fmt, &args);
    va_end(args.list);
}

void slr_log_asked(const char *event, const char *fmt, ...)
{
    struct slr_args args;
    if (level_now() == SLR_LOG_OFF)
        return;
    va_start(args.list, fmt);
    write_line(SLR_LOG_INFO, event, fmt, &args);
    va_end(args.list);
}

static size_t format_told(char *line, const char *event, const char *fmt, ...)
{
    struct slr_args args;
    va_start(args.list, fmt);
    size_t len = slr_line_format(line, SLR_LOG_INFO, event, fmt, &args);
    va_end(args.list);
    return len;
}

void slr_log_tell(int fd, const char *event, const char *text)
{
    char line[SLR_LOG_LINE];
    const bool json = slr_get(SLR_S_LOG_FORMAT) == 1 && !*slr_settings()->text[SLR_S_LOG_FILE];
    if (!slr_log_enabled(SLR_LOG_WARN))
        return;
    size_t len = json ? format_told(line, event, "msg=%s", text)
                      : (size_t)snprintf(line, sizeof line, "slipring: %.*s\n", SLR_LOG_LINE - 16, text);
    slr_write_quietly(fd, line, len);
}

/* Open addressing; keys never leave, so a free slot ends the search. */
bool slr_log_first(uint64_t key)
{
    /* 0 means free; that two keys share a word is not worth a flag. */
    uint64_t word = key ? key : UINT64_MAX;
    if (atomic_load_explicit(&first_used, memory_order_relaxed) >= FIRST_KEYS)
        return false; /* full: none is new any more, and a search would be long */
    size_t slot = slr_mix(word, 0) % FIRST_KEYS;
    for (int tries = 0; tries < FIRST_KEYS; tries++, slot = (slot + 1) % FIRST_KEYS) {
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong_explicit(&first_keys[slot], &seen, word, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            atomic_fetch_add_explicit(&first_used, 1, memory_order_relaxed);
            return true;
        }
        if (seen == word)
            return false;
    }
    return false;
}

void slr_log_after_fork(void)
{
    busy = false;
    slr_sink_after_fork();
}
