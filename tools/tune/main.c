/* SPDX-License-Identifier: Apache-2.0 */
/* slipring tune: runs a command that tries NCCL's choices in turn, and writes the table of the
 * best. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/tuner/tune_table.h"
#include "tools/common/job.h"
#include "tools/common/progress.h"
#include "tools/log/log_tail.h"
#include "tools/tune/tune.h"

#define OPTIONS_FILE "tools/tune/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

#define MOST_ROUNDS 10000ul /* of SLIPRING_TUNE_EXPLORE */

/* What is to be measured, and how. */
struct plan {
    const struct options *options;
    const char *launcher;
    char *const *command;
};

static int check(const char *path)
{
    struct slr_tune_table table;
    struct slr_tune_error error;
    if (slr_tune_load(&table, path, &error) != 0) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        return 1;
    }
    printf("%s: %zu rules", path, table.count);
    printf(table.sites ? ", %zu for call sites\n" : "\n", table.sites);
    slr_tune_free(&table);
    return 0;
}

/* One run of the command. */
struct stage {
    const char *name;
    unsigned long rounds;
    const char *table;     /* to confirm, or to go by; "": explores */
    const char *which;     /* for messages */
    bool keeps;            /* nothing is explored: call sites add to the table what they find */
    struct log_tails logs; /* the folder is "" when there is none */
    struct samples samples;
    struct progress *progress;
};

static void tick(void *ctx)
{
    struct stage *s = ctx;
    char note[64];
    log_tails_read(&s->logs, false);
    snprintf(note, sizeof note, "%zu calls measured", s->samples.n);
    progress_at(s->progress, s->samples.n, note);
}

static int run(const struct plan *p, struct stage *stage)
{
    struct words w = {NULL, 0};
    words_add(&w, p->launcher);
    words_add(&w, "run");
    words_add_all(&w, p->options->lib.word);
    words_add_all(&w, p->options->softgpu.word);
    words_add_all(&w, p->options->set.word);
    words_addf(&w, "--set=TUNE_EXPLORE=%lu", stage->rounds);
    words_addf(&w, "--set=TUNE_FILE=%s", stage->table); /* the user's would not let the first run explore */
    words_addf(&w, "--set=TUNE_KEEP=%s", stage->keeps ? "on" : "off");
    words_add(&w, "--set=LOG=info");
    words_add(&w, "--set=LOG_FORMAT=json");
    words_addf(&w, "--set=LOG_FILE=%s/%%h-%%p.json", stage->logs.folder);
    words_add(&w, "--");
    words_add_all(&w, p->command);
    stage->progress = progress_begin(stage->name, 0);
    int status = job_run(w.word, -1, -1, tick, stage);
    log_tails_read(&stage->logs, true);
    progress_end(stage->progress, status ? "the command failed" : "the command has ended");
    words_free(&w);
    return status;
}

static int nothing(const struct stage *stage)
{
    const struct samples *s = &stage->samples;
    if (!stage->logs.files.n)
        fprintf(stderr, "slipring tune: no process of COMMAND made a NCCL communicator with slipring preloaded: "
                        "nothing to measure, nothing written\n");
    else
        fprintf(stderr,
                "slipring tune: no collective was measured: those that the ring takes, in groups, in captured graphs "
                "and on non-blocking communicators can not be; nothing written%s%s\n",
                s->trouble[0] ? "\n  the log says: " : "", s->trouble);
    return 1;
}

/* Runs the command and reads what it has left. 0, or the tool's exit status. */
static int stage_run(struct stage *stage, const struct plan *p)
{
    stage->logs.fn = samples_take;
    stage->logs.ctx = &stage->samples;
    if (job_folder("slipring tune", stage->logs.folder, sizeof stage->logs.folder)) {
        stage->logs.folder[0] = '\0';
        return 1;
    }
    int status = run(p, stage);
    if (job_interrupted()) {
        fprintf(stderr, "slipring tune: interrupted; nothing written\n");
        return 128 + job_interrupted();
    }
    if (status) {
        fprintf(stderr, "slipring tune: COMMAND ended with status %d%s; nothing written\n", status, stage->which);
        return status;
    }
    size_t bad = stage->samples.bad_lines + (size_t)stage->logs.unreadable;
    if (bad)
        fprintf(stderr, "slipring tune: %zu lines of the logs are not what they should be, and were left out\n", bad);
    return 0;
}

static void stage_end(struct stage *stage)
{
    vec_free(&stage->samples);
    log_tails_free(&stage->logs);
    if (stage->logs.folder[0])
        job_folder_remove(stage->logs.folder);
}

/* So many of both candidates that the second run measures as many calls as the first. */
static unsigned long second_rounds(unsigned long rounds, const struct samples *first)
{
    unsigned long most = 2;
    for (size_t i = 0; i < first->n; i++)
        if ((unsigned long)first->at[i].candidates > most)
            most = (unsigned long)first->at[i].candidates;
    rounds = most < MOST_ROUNDS ? (rounds * most + 1) / 2 : MOST_ROUNDS;
    return rounds < MOST_ROUNDS ? rounds : MOST_ROUNDS;
}

/* What was found, and for the table of it. */
struct result {
    struct finding *f;
    size_t count;
    struct table_head head;
};

static void say_unconfirmed(const struct result *r, const struct samples *second)
{
    size_t refuted = 0, few = 0;
    for (size_t i = 0; i < r->count; i++) {
        refuted += r->f[i].trial == REFUTED;
        few += r->f[i].trial == TOO_FEW;
    }
    if (refuted)
        fprintf(stderr, "slipring tune: %zu of the choices were not faster in the second run: NCCL's default there\n",
                refuted);
    if (few)
        fprintf(stderr,
                "slipring tune: %zu of the choices came too rarely in the second run: NCCL's default there%s%s\n", few,
                second->trouble[0] ? "\n  the log says: " : "", second->trouble);
}

/* The second run. 0, or the tool's exit status. */
static int confirm(const struct plan *p, const struct stage *first, struct result *r)
{
    char table[PATH_MAX + 16];
    size_t rules;
    struct stage second = {.name = "tune, second run (confirming)", .table = table, .which = " in the second run"};
    struct finding *tried = calloc(r->count, sizeof *tried);
    if (!tried) {
        fprintf(stderr, "slipring tune: no memory; nothing written\n");
        return 1;
    }
    size_t to_try = findings_to_try(r->f, r->count, tried);
    snprintf(table, sizeof table, "%s/confirm.tune", first->logs.folder);
    int rc = to_try ? table_write(table, &r->head, tried, r->count, &rules) : 0, status = 0;
    free(tried);
    if (!to_try)
        return 0;
    if (rc) {
        fprintf(stderr, "slipring tune: %s can not be written: %s; nothing written\n", table, strerror(-rc));
        return 1;
    }
    second.rounds = second_rounds((unsigned long)p->options->rounds, &first->samples);
    status = stage_run(&second, p);
    if (!status) {
        findings_confirm(r->f, r->count, &second.samples, p->options->gain);
        r->head.runs = "2; the rules are what the second run confirmed";
        say_unconfirmed(r, &second.samples);
    }
    stage_end(&second);
    return status;
}

/* The last run, by the table that has been found: what call sites find with it goes into the table as
 * well. 0, or the tool's exit status. */
static int find_sites(const struct plan *p, const struct stage *first, struct result *r)
{
    char table[PATH_MAX + 16];
    size_t rules;
    struct slr_tune_error error = {0};
    struct stage last = {
        .name = "tune, last run (call sites)", .table = table, .which = " in the last run", .keeps = true};
    snprintf(table, sizeof table, "%s/sites.tune", first->logs.folder);
    int rc = table_write(table, &r->head, r->f, r->count, &rules);
    int status = rc ? 0 : stage_run(&last, p);
    if (!rc && !status)
        rc = slr_tune_load(&r->head.sites, table, &error);
    if (rc) {
        fprintf(stderr, "slipring tune: %s: %s; nothing written\n", table, error.text[0] ? error.text : strerror(-rc));
        status = 1;
    }
    stage_end(&last);
    return status;
}

static void say_elsewhere(const struct result *r)
{
    size_t elsewhere = 0;
    for (size_t i = 0; i < r->count; i++)
        elsewhere += r->f[i].trial == ELSEWHERE;
    if (elsewhere)
        fprintf(stderr,
                "slipring tune: %zu of the choices were not tried again: they are of several hosts, and the others' "
                "logs are not here\n",
                elsewhere);
}

/* Kinds of calls of which it can be said what is best. */
static size_t count_known(const struct result *r)
{
    size_t known = 0;
    for (size_t i = 0; i < r->count; i++)
        known += finding_told(&r->f[i]) && r->f[i].trial != TOO_FEW;
    return known;
}

static void say_few(const struct result *r)
{
    size_t few = 0;
    for (size_t i = 0; i < r->count; i++)
        few += !finding_told(&r->f[i]);
    if (!few)
        return;
    fprintf(stderr, "slipring tune: of %zu of %zu kinds of calls there were too few to tell what is best:\n", few,
            r->count);
    findings_print_few(r->f, r->count, stderr);
    fputs("  let COMMAND run longer\n", stderr);
}

static const char *without_rules(const struct result *r)
{
    size_t known = count_known(r);
    return known == r->count ? ": NCCL's defaults are best"
           : known           ? ": NCCL's defaults are best where there were enough calls to tell"
                             : ": too few calls to tell what is best";
}

static int publish(const struct options *o, const struct result *r)
{
    size_t rules = 0;
    findings_print(r->f, r->count, stdout);
    int rc = table_write(o->_o, &r->head, r->f, r->count, &rules);
    if (rc)
        fprintf(stderr, "slipring tune: %s can not be written: %s\n", o->_o, strerror(-rc));
    else
        printf("%s: %zu rule%s%s\n", o->_o, rules, rules == 1 ? "" : "s", rules ? "" : without_rules(r));
    if (!rc && !o->no_sites)
        printf("%s: %zu rule%s for call sites\n", o->_o, r->head.sites.sites, r->head.sites.sites == 1 ? "" : "s");
    say_few(r);
    say_elsewhere(r);
    return rc ? 1 : count_known(r) ? 0 : TUNE_TOO_FEW;
}

static int conclude(const struct plan *p, struct stage *first)
{
    const struct options *o = p->options;
    const struct samples *s = &first->samples;
    struct words words = {NULL, 0};
    words_add_all(&words, p->command);
    char *command = words_join(&words);
    struct result r = {.head = {.nccl = s->nccl, .device = s->device, .command = command, .gain = o->gain}};
    int status = 0;
    r.head.runs = o->no_confirm ? "1; not confirmed by a second" : "1; there was nothing to confirm";
    r.f = findings_make(&first->samples, o->gain, &r.count);
    if (!r.f)
        status = nothing(first);
    else if (!o->no_confirm)
        status = confirm(p, first, &r);
    if (!status && !o->no_sites)
        status = find_sites(p, first, &r);
    if (!status)
        status = publish(o, &r);
    slr_tune_free(&r.head.sites);
    words_free(&words);
    free(command);
    free(r.f);
    return status;
}

static int measure(const struct plan *p)
{
    struct stage first = {.name = p->options->no_confirm ? "tune" : "tune, first run (exploring)",
                          .rounds = (unsigned long)p->options->rounds,
                          .table = "",
                          .which = ""};
    int status = stage_run(&first, p);
    if (!status)
        status = conclude(p, &first);
    stage_end(&first);
    return status;
}

static int tune(const struct options *o, char *const *rest)
{
    struct plan p = {o, getenv("SLIPRING_LAUNCHER"), rest};
    if (*o->check)
        return *rest ? options_wrong(option_rows, "--check takes one file") : check(o->check);
    if (!*rest)
        return options_wrong(option_rows, "there is no command");
    if (!p.launcher || !*p.launcher)
        return options_wrong(option_rows, "run this as `slipring tune`: it runs COMMAND by the launcher");
    return job_can_write("slipring tune", o->_o) ? measure(&p) : 1;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv);
    int status = rest > 0 ? tune(&o, argv + rest) : -rest;
    options_free(option_rows, &o);
    return status;
}
