/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/wait.h"
#include "tools/common/output.h"
#include "tools/top/top.h"

#define OPTIONS_FILE "tools/top/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { GOOD, NONE, USAGE, UNWRITTEN }; /* exit status */
#define LOOKS_MS 500

static void say_problems(const struct top *t)
{
    for (size_t i = 0; i < t->blocks.n; i++) {
        const struct top_block *b = &t->blocks.at[i];
        const struct top_process *p = &t->processes.at[b->holders.at[0]];
        if (b->problem)
            fprintf(stderr, "slipring top: process %d (%s): a communicator is not shown: %s\n", (int)p->pid, p->name,
                    b->problem);
    }
}

static bool any_read(const struct top *t)
{
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].control)
            return true;
    return false;
}

/* False: it could not be written. */
static bool write_tables(const struct top *t, const struct options *o)
{
    if (!*o->prometheus) {
        if (!o->json && !o->once && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout); /* the one before goes */
        (o->json ? top_write_json : top_write_text)(stdout, t);
        if (!o->json && !o->once)
            putchar('\n');
        return fflush(stdout) == 0;
    }
    struct output f;
    if (!output_open(&f, o->prometheus))
        return false;
    top_write_metrics(f.to, t);
    return output_end(&f, true);
}

/* One table. Metrics are written where there is no job, too: then they have no samples. */
static int show(const struct options *o, const pid_t *pids, size_t n)
{
    struct top t = {0};
    int status = top_find(&t, pids, n) && any_read(&t) ? GOOD : NONE;
    say_problems(&t);
    if (status == GOOD)
        top_look(&t, LOOKS_MS);
    if ((status == GOOD || *o->prometheus) && !write_tables(&t, o))
        status = UNWRITTEN;
    top_free(&t);
    return status;
}

static int show_again(const struct options *o, const pid_t *pids, size_t n)
{
    const uint64_t interval = (uint64_t)(o->interval * 1000);
    for (;;) {
        const uint64_t begun = slr_now_ms();
        const int status = show(o, pids, n);
        if (status == UNWRITTEN || o->once || (status == NONE && n))
            return status;
        const uint64_t passed = slr_now_ms() - begun;
        if (passed < interval)
            slr_sleep_ms((unsigned)(interval - passed));
    }
}

/* 0: it is none. */
static pid_t pid_of(const char *word)
{
    char *end;
    errno = 0;
    const long n = strtol(word, &end, 10);
    return errno || *end || n <= 0 || n > INT32_MAX ? 0 : (pid_t)n;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    const int rest = options_parse(option_rows, OPTIONS_ANYWHERE, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    const size_t n = (size_t)(argc - rest);
    if (o.json && *o.prometheus)
        return options_wrong(option_rows, "--json and --prometheus are two forms of the same; it writes one");
    pid_t *pids = tool_alloc(n + 1, sizeof *pids);
    int status = USAGE;
    size_t i = 0;
    while (i < n && (pids[i] = pid_of(argv[rest + (int)i])) != 0)
        i++;
    if (i < n)
        options_wrong(option_rows, "a process is a number, not \"%s\"", argv[rest + (int)i]);
    else
        status = show_again(&o, pids, n);
    free(pids);
    return status;
}
