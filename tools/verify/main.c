/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/common/job.h"
#include "tools/common/progress.h"
#include "tools/log/log_tail.h"
#include "tools/verify/verify.h"

#define OPTIONS_FILE "tools/verify/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

/* `slipring run` with settings that go before the caller's. */
static void make_command(struct words *w, const struct options *o, const char *launcher, const char *folder,
                         char *const *command)
{
    words_add(w, launcher);
    words_add(w, "run");
    words_add_all(w, o->lib.word);
    words_add_all(w, o->softgpu.word);
    words_add_all(w, o->set.word);
    words_addf(w, "--set=VERIFY=%ld", o->every);
    words_add(w, "--set=LOG=debug"); /* a line for each comparison */
    words_add(w, "--set=LOG_FORMAT=json");
    words_addf(w, "--set=LOG_FILE=%s/%%h.%%p.jsonl", folder);
    words_add(w, "--");
    words_add_all(w, command);
}

struct watching {
    struct log_tails logs;
    struct tally tally;
    struct progress *progress;
};

static void look(struct watching *w, bool last)
{
    log_tails_read(&w->logs, last);
    w->tally.logs = w->logs.files.n;
    w->tally.unreadable = w->logs.unreadable;
}

static void tick(void *ctx)
{
    struct watching *w = ctx;
    char note[128];
    const struct tally *t = &w->tally;
    look(w, false);
    snprintf(note, sizeof note, "calls compared in %llu processes, %llu differ", t->logs, tally_sum(t->differing));
    progress_at(w->progress, tally_sum(t->compared), note);
}

static int run(char *const *command, struct watching *w)
{
    w->progress = progress_begin("slipring verify", 0);
    progress_plain(w->progress); /* COMMAND writes to the same terminal */
    int status = job_run(command, -1, -1, tick, w);
    look(w, true);
    if (job_interrupted())
        status = 128 + job_interrupted();
    progress_end(w->progress, job_interrupted() ? "interrupted" : status ? "COMMAND failed" : "COMMAND has ended");
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

/* `made`: it was not there before. 0, or the exit status. */
static int choose_folder(const char *keep, char *folder, size_t size, bool *made)
{
    if (!*keep)
        return job_folder("slipring verify", folder, size) ? VERIFY_ERROR : 0;
    if (strchr(keep, '%'))
        return options_wrong(option_rows, "--keep: a name without %% is needed, not: %s", keep);
    *made = mkdir(keep, 0777) == 0;
    if (!*made && errno != EEXIST)
        return options_wrong(option_rows, "%s: %s", strerror(errno), keep);
    if (!is_empty(keep)) /* old logs would be counted as well */
        return options_wrong(option_rows, "--keep takes a new folder or an empty one, not: %s", keep);
    if (!realpath(keep, folder))
        return options_wrong(option_rows, "%s: %s", strerror(errno), keep);
    return 0;
}

static int verify(const struct options *o, const char *launcher, char *const *command)
{
    static struct watching w = {.logs = {.fn = tally_event, .ctx = &w.tally}};
    struct words words = {NULL, 0};
    bool made = false;
    int rc = choose_folder(o->keep, w.logs.folder, sizeof w.logs.folder, &made);
    if (rc)
        return rc;
    make_command(&words, o, launcher, w.logs.folder, command);
    int status = run(words.word, &w);
    rc = verify_report(stdout, &w.tally, (unsigned long long)o->every, status);
    if (made && is_empty(w.logs.folder))
        rmdir(w.logs.folder);
    else if (*o->keep)
        printf("  logs: %s\n", w.logs.folder);
    else
        job_folder_remove(w.logs.folder);
    log_tails_free(&w.logs);
    words_free(&words);
    return fflush(stdout) ? VERIFY_ERROR : rc;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv), status = -rest;
    if (rest > 0 && rest == argc)
        status = options_wrong(option_rows, "there is no command");
    else if (rest > 0 && (!launcher || !*launcher))
        status = options_wrong(option_rows, "run this as `slipring verify`");
    else if (rest > 0)
        status = verify(&o, launcher, argv + rest);
    options_free(option_rows, &o);
    return status;
}
