#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/common/job.h"
#include "tools/common/progress.h"
#include "tools/verify/verify.h"

static const char usage_text[] =
    "usage: slipring verify [--every N] [--keep FOLDER] [RUN-OPTION]... [--] COMMAND [ARG]...\n"
    "\n"
    "Runs COMMAND with slipring; every N-th [1] all-gather that slipring substitutes is done by NCCL as well, and all "
    "bytes\n"
    "are compared. Then says how many were compared, which differ, and what was not substituted and why. A gather "
    "that\n"
    "differs is put right, so COMMAND goes on with NCCL's data. Each comparison synchronises its stream: times mean "
    "nothing.\n"
    "\n"
    "--every N      compare one in N\n"
    "--keep FOLDER  leave the ranks' logs there\n"
    "RUN-OPTION     --set, --lib, --softgpu as of `slipring run`\n"
    "\n"
    "Exit status: 0 all equal, 1 differences, 2 nothing was compared, 3 wrong usage or an error of this tool; when\n"
    "COMMAND fails and nothing differs, its own (128 + signal).\n";

struct options {
    unsigned long long every;
    const char *keep;
    char *pass[64]; /* options of `slipring run` */
    int passed;
    char **command;
};

static int wrong(const char *what, const char *which)
{
    fprintf(stderr, "slipring verify: %s%s%s (see --help)\n", what, *which ? ": " : "", which);
    return VERIFY_ERROR;
}

static int set_every(struct options *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    o->every = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || o->every < 1 || o->every > UINT32_MAX)
        return wrong("--every takes a whole number from 1 to 4294967295, not", text);
    return 0;
}

static bool is_option(const char *argument, const char *name)
{
    size_t len = strlen(name);
    return strncmp(argument, name, len) == 0 && (argument[len] == '\0' || argument[len] == '=');
}

/* The option's value, from "--name=value" or the next argument, which is then used up. NULL: there is none. */
static char *value_of(char **argv, int *i)
{
    char *equals = strchr(argv[*i], '=');
    return equals ? equals + 1 : argv[*i + 1] ? argv[++*i] : NULL;
}

static int take_run_option(struct options *o, char **argv, int *i)
{
    bool alone = is_option(argv[*i], "--softgpu") || strchr(argv[*i], '=');
    if (o->passed + 2 > (int)(sizeof o->pass / sizeof *o->pass))
        return wrong("too many options", argv[*i]);
    o->pass[o->passed++] = argv[*i];
    if (alone)
        return 0;
    if (!argv[*i + 1])
        return wrong("this option needs a value", argv[*i]);
    o->pass[o->passed++] = argv[++*i];
    return 0;
}

static int take(struct options *o, char **argv, int *i)
{
    const char *name = argv[*i];
    if (is_option(name, "--set") || is_option(name, "--lib") || is_option(name, "--softgpu"))
        return take_run_option(o, argv, i);
    if (!is_option(name, "--every") && !is_option(name, "--keep"))
        return wrong("there is no option", name);
    const char *value = value_of(argv, i);
    if (!value || !*value)
        return wrong("this option needs a value", name);
    if (is_option(name, "--every"))
        return set_every(o, value);
    o->keep = value;
    return 0;
}

/* -1: go on; else the exit status. */
static int parse(struct options *o, int argc, char **argv)
{
    int i = 1;
    for (; i < argc && *argv[i] == '-' && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return fputs(usage_text, stdout) < 0 ? VERIFY_ERROR : 0;
        int rc = take(o, argv, &i);
        if (rc)
            return rc;
    }
    if (i < argc && !strcmp(argv[i], "--"))
        i++;
    o->command = argv + i;
    return i < argc ? -1 : wrong("there is no command", "");
}

/* `slipring run` with settings that go before the caller's. */
static char **command_of(const struct options *o, const char *launcher, int words, char settings[4][PATH_MAX + 64])
{
    char **argv = calloc((size_t)(words + o->passed + 16), sizeof *argv);
    int n = 0;
    if (!argv)
        return NULL;
    argv[n++] = (char *)launcher;
    argv[n++] = (char *)"run";
    for (int i = 0; i < o->passed; i++)
        argv[n++] = o->pass[i];
    for (int i = 0; i < 4; i++) {
        argv[n++] = (char *)"--set";
        argv[n++] = settings[i];
    }
    argv[n++] = (char *)"--";
    for (char **at = o->command; *at; at++)
        argv[n++] = *at;
    return argv;
}

struct watching {
    struct logs logs;
    struct progress *progress;
};

static void tick(void *ctx)
{
    struct watching *w = ctx;
    char note[128];
    const struct tally *t = &w->logs.tally;
    logs_read(&w->logs);
    snprintf(note, sizeof note, "gathers compared in %llu processes, %llu differ", t->logs, t->differing);
    progress_at(w->progress, t->compared, note);
}

static int run(const struct options *o, const char *launcher, int words, struct watching *w)
{
    char settings[4][PATH_MAX + 64];
    snprintf(settings[0], sizeof settings[0], "VERIFY=%llu", o->every);
    snprintf(settings[1], sizeof settings[1], "LOG=debug"); /* a line for each comparison */
    snprintf(settings[2], sizeof settings[2], "LOG_FORMAT=json");
    snprintf(settings[3], sizeof settings[3], "LOG_FILE=%s/%%h.%%p.jsonl", w->logs.folder);
    char **argv = command_of(o, launcher, words, settings);
    if (!argv)
        return wrong("no memory", "");
    w->progress = progress_begin("slipring verify", 0);
    progress_plain(w->progress); /* COMMAND writes to the same terminal */
    int status = job_run(argv, -1, -1, tick, w);
    logs_finish(&w->logs);
    progress_end(w->progress, status ? "COMMAND failed" : "COMMAND has ended");
    free(argv);
    return status;
}

static bool is_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    bool empty = dir != NULL;
    for (struct dirent *e; dir && (e = readdir(dir));)
        empty &= !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    if (dir)
        closedir(dir);
    return empty;
}

static int choose_folder(const struct options *o, char *folder, size_t size)
{
    if (!o->keep) {
        int rc = job_folder(folder, size);
        return rc ? wrong("no folder for the logs", strerror(-rc)) : 0;
    }
    if (strchr(o->keep, '%'))
        return wrong("--keep: a name without % is needed, not", o->keep);
    if (mkdir(o->keep, 0777) != 0 && errno != EEXIST)
        return wrong(strerror(errno), o->keep);
    if (!is_empty(o->keep)) /* old logs would be counted as well */
        return wrong("--keep takes a new folder or an empty one, not", o->keep);
    if (!realpath(o->keep, folder))
        return wrong(strerror(errno), o->keep);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.every = 1};
    static struct watching w;
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    int rc = parse(&o, argc, argv);
    if (rc >= 0)
        return rc;
    if (!launcher || !*launcher)
        return wrong("run this as `slipring verify`", "");
    rc = choose_folder(&o, w.logs.folder, sizeof w.logs.folder);
    if (rc)
        return rc;
    int status = run(&o, launcher, argc, &w);
    rc = verify_report(stdout, &w.logs.tally, o.every, status);
    if (o.keep)
        printf("  logs: %s\n", w.logs.folder);
    else
        job_folder_remove(w.logs.folder);
    logs_free(&w.logs);
    return fflush(stdout) ? VERIFY_ERROR : rc;
}
