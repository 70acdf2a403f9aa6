/* SPDX-License-Identifier: Apache-2.0 */
#include "pin.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static bool parse_core(const char **text, int *core)
{
    char *end;
    const long value = strtol(*text, &end, 10);
    if (**text < '0' || **text > '9' || value >= CPU_SETSIZE)
        return false;
    *core = (int)value;
    *text = end;
    return true;
}

/* FIRST or FIRST-LAST. */
static bool parse_run(const char **text, cpu_set_t *set)
{
    int first, last;
    if (!parse_core(text, &first))
        return false;
    last = first;
    if (**text == '-' && (++*text, !parse_core(text, &last)))
        return false;
    for (int core = first; core <= last; core++)
        CPU_SET(core, set);
    return last >= first;
}

static bool parse_one(const char **text, struct pin *pin)
{
    CPU_ZERO(&pin->rest);
    do {
        if (!parse_run(text, &pin->rest))
            return false;
    } while (**text == ',' && ++*text);
    return *(*text)++ == '/' && parse_core(text, &pin->issue);
}

bool pin_parse(const char *text, struct pin *pins, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        if ((rank && *text++ != ':') || !parse_one(&text, &pins[rank]))
            return false;
    return *text == '\0';
}

int pin_process(const struct pin *pin)
{
    return sched_setaffinity(0, sizeof pin->rest, &pin->rest) == 0 ? 0 : -errno;
}

static bool has(pid_t thread, int core)
{
    cpu_set_t set;
    return sched_getaffinity(thread, sizeof set, &set) == 0 && CPU_ISSET(core, &set);
}

/* A thread may end meanwhile. */
static void keep_others_off(const struct pin *pin, DIR *threads)
{
    for (const struct dirent *entry; (entry = readdir(threads));) {
        const pid_t thread = (pid_t)atoi(entry->d_name);
        if (thread > 0 && thread != gettid() && has(thread, pin->issue))
            sched_setaffinity(thread, sizeof pin->rest, &pin->rest);
    }
}

int pin_issuer(const struct pin *pin)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(pin->issue, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0)
        return -errno;
    DIR *threads = opendir("/proc/self/task");
    if (!threads)
        return -errno;
    keep_others_off(pin, threads);
    closedir(threads);
    return 0;
}
