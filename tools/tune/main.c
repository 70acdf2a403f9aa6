/* slipring tune: runs a command that tries NCCL's choices in turn, and writes the table of the best. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/tune_table.h"
#include "tools/common/job.h"
#include "tools/common/progress.h"
#include "tools/tune/tune.h"

static const char usage[] =
    "usage: slipring tune [-o FILE] [--rounds N] [--gain PERCENT] [--no-confirm] [--set NAME=VALUE]...\n"
    "                     [--lib FILE] [--softgpu[=DEVICES]] [--] COMMAND [ARG]...\n"
    "       slipring tune --check FILE\n"
    "\n"
    "Runs COMMAND with slipring preloaded and lets NCCL make the calls of each collective and size with one\n"
    "algorithm, protocol and number of channels after the other, and measures each call on the device. Then runs\n"
    "COMMAND again, with the fastest of each and NCCL's default in turn. Those that are faster than NCCL's default on\n"
    "the slowest rank both times become a table for SLIPRING_TUNE_FILE. COMMAND has to make each call some hundred\n"
    "times: (1 + 3 x algorithms x protocols) x rounds.\n"
    "\n"
    "-o FILE         where the table goes (slipring.tune)\n"
    "--rounds N      how often each choice is tried for each size, from 3 to 10000 (5)\n"
    "--gain PERCENT  how much faster than the default it has to be, in both runs (3)\n"
    "--no-confirm    no second run: the fastest of the first becomes the table, also where that was chance\n"
    "--set, --lib, --softgpu  as slipring run takes them\n"
    "--check FILE    only reads a table, and says what is wrong with it\n"
    "\n"
    "Exit status: COMMAND's when that fails, and nothing is written; 1 when nothing could be measured; 2 for wrong "
    "use.\n";

#define MOST_ARGS 512
#define MOST_ROUNDS 10000ul /* of SLIPRING_TUNE_EXPLORE */

struct options {
    const char *out;
    unsigned long rounds;
    double gain;
    bool confirm;
    const char *pass[MOST_ARGS]; /* for slipring run */
    int passed;
    char **command;
};

static int bad(const char *what, const char *arg)
{
    fprintf(stderr, "slipring tune: %s%s\n`slipring tune --help` shows how it is called\n", what, arg);
    return 2;
}

static int check(const char *path)
{
    struct slr_tune_table table;
    struct slr_tune_error error;
    if (slr_tune_load(&table, path, &error) != 0) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        return 1;
    }
    printf("%s: %zu rules\n", path, table.count);
    slr_tune_free(&table);
    return 0;
}

static bool parse_rounds(const char *text, unsigned long *out)
{
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out >= LEAST_SAMPLES && *out <= MOST_ROUNDS;
}

static bool parse_gain(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && *out >= 0 && *out < 100;
}

/* Takes the option at argv[*i], and its value. 0, or an exit status; -1: --check or --help has done all. */
static int take_option(struct options *o, char **argv, int *i)
{
    const char *arg = argv[*i], *value = argv[*i + 1];
    bool own = !strcmp(arg, "-o") || !strcmp(arg, "--rounds") || !strcmp(arg, "--gain");
    bool paired = !strcmp(arg, "--set") || !strcmp(arg, "--lib");
    if ((own || paired) && !value)
        return bad("a value is missing behind ", arg);
    if (o->passed + 2 >= MOST_ARGS / 2)
        return bad("too many options at ", arg);
    *i += own || paired;
    if (!strcmp(arg, "-o"))
        o->out = value;
    else if (!strcmp(arg, "--rounds"))
        return parse_rounds(value, &o->rounds) ? 0 : bad("--rounds takes a whole number from 3 to 10000, not ", value);
    else if (!strcmp(arg, "--gain"))
        return parse_gain(value, &o->gain) ? 0 : bad("--gain takes a percentage from 0 to below 100, not ", value);
    else if (!strcmp(arg, "--no-confirm"))
        o->confirm = false;
    else if (paired)
        o->pass[o->passed++] = arg, o->pass[o->passed++] = value;
    else if (!strncmp(arg, "--set=", 6) || !strncmp(arg, "--lib=", 6) || !strcmp(arg, "--softgpu") ||
             !strncmp(arg, "--softgpu=", 10))
        o->pass[o->passed++] = arg;
    else
        return bad("there is no option ", arg);
    return 0;
}

static int parse(struct options *o, int argc, char **argv)
{
    int i = 1, rc = 0;
    for (; i < argc && argv[i][0] == '-' && !rc; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        rc = take_option(o, argv, &i);
    }
    o->command = argv + i;
    if (!rc && i >= argc)
        rc = bad("there is no command", "");
    return rc;
}

/* What is shown while the command runs. */
struct watch {
    struct progress *progress;
    const char *folder;
    unsigned ticks;
};

#define TICKS_PER_LOOK 10

static void tick(void *ctx)
{
    struct watch *w = ctx;
    char note[64];
    if (w->ticks++ % TICKS_PER_LOOK)
        return;
    uint64_t n = samples_count(w->folder);
    snprintf(note, sizeof note, "%llu calls measured", (unsigned long long)n);
    progress_at(w->progress, n, note);
}

/* One run of the command. */
struct stage {
    const char *name;
    unsigned long rounds;
    const char *table; /* to confirm; "": explores */
    char folder[3800]; /* of the logs; "": none */
    struct samples samples;
};

static int run(const struct options *o, const char *launcher, const struct stage *stage)
{
    char rounds[64], file[4200], table[4200];
    const char *argv[2 * MOST_ARGS];
    int n = 0;
    snprintf(rounds, sizeof rounds, "TUNE_EXPLORE=%lu", stage->rounds);
    snprintf(file, sizeof file, "LOG_FILE=%s/%%h-%%p.json", stage->folder);
    snprintf(table, sizeof table, "TUNE_FILE=%s", stage->table); /* the user's would not let the first run explore */
    const char *ours[] = {"--set",           rounds,  "--set", table, "--set", "LOG=info", "--set",
                          "LOG_FORMAT=json", "--set", file,    "--"};
    argv[n++] = launcher;
    argv[n++] = "run";
    for (int i = 0; i < o->passed; i++)
        argv[n++] = o->pass[i];
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        argv[n++] = ours[i];
    for (char **arg = o->command; *arg; arg++) {
        if (n == 2 * MOST_ARGS - 1)
            return bad("COMMAND has too many arguments, from ", *arg);
        argv[n++] = *arg;
    }
    argv[n] = NULL;
    struct watch w = {progress_begin(stage->name, 0), stage->folder, 0};
    int status = job_run((char *const *)argv, -1, -1, tick, &w);
    progress_end(w.progress, status ? "the command failed" : "the command has ended");
    return status;
}

static char *join(char **words)
{
    size_t size = 1;
    for (char **w = words; *w; w++)
        size += strlen(*w) + 1;
    char *text = calloc(1, size);
    for (char **w = words; text && *w; w++) {
        strcat(text, *w);
        if (w[1])
            strcat(text, " ");
    }
    return text;
}

static int nothing(const struct samples *s)
{
    if (!s->files)
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
static int stage_run(struct stage *stage, const struct options *o, const char *launcher)
{
    int rc = job_folder(stage->folder, sizeof stage->folder);
    if (rc) {
        stage->folder[0] = 0;
        fprintf(stderr, "slipring tune: no folder for the logs: %s\n", strerror(-rc));
        return 1;
    }
    int status = run(o, launcher, stage);
    if (job_interrupted()) {
        fprintf(stderr, "slipring tune: interrupted; nothing written\n");
        return 128 + job_interrupted();
    }
    if (status) {
        fprintf(stderr, "slipring tune: COMMAND ended with status %d%s; nothing written\n", status,
                stage->table[0] ? " in the second run" : "");
        return status;
    }
    if ((rc = samples_read(&stage->samples, stage->folder)) != 0) {
        fprintf(stderr, "slipring tune: the logs can not be read: %s\n", strerror(-rc));
        return 1;
    }
    if (stage->samples.bad_lines)
        fprintf(stderr, "slipring tune: %zu lines of the logs are not what they should be, and were left out\n",
                stage->samples.bad_lines);
    return 0;
}

static void stage_end(struct stage *stage)
{
    samples_free(&stage->samples);
    if (stage->folder[0])
        job_folder_remove(stage->folder);
}

/* So many of both candidates that the second run measures as many calls as the first. */
static unsigned long second_rounds(const struct options *o, const struct samples *first)
{
    unsigned long most = 2;
    for (size_t i = 0; i < first->count; i++)
        if ((unsigned long)first->list[i].candidates > most)
            most = (unsigned long)first->list[i].candidates;
    unsigned long rounds = most < MOST_ROUNDS ? (o->rounds * most + 1) / 2 : MOST_ROUNDS;
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
static int confirm(const struct options *o, const char *launcher, const struct stage *first, struct result *r)
{
    char table[4000];
    size_t rules;
    struct stage second = {.name = "tune, second run (confirming)", .table = table};
    struct finding *tried = calloc(r->count, sizeof *tried);
    if (!tried) {
        fprintf(stderr, "slipring tune: no memory; nothing written\n");
        return 1;
    }
    size_t to_try = findings_to_try(r->f, r->count, tried);
    snprintf(table, sizeof table, "%s/confirm.tune", first->folder);
    int rc = to_try ? table_write(table, &r->head, tried, r->count, &rules) : 0, status = 0;
    free(tried);
    if (!to_try)
        return 0;
    if (rc) {
        fprintf(stderr, "slipring tune: %s can not be written: %s; nothing written\n", table, strerror(-rc));
        return 1;
    }
    second.rounds = second_rounds(o, &first->samples);
    status = stage_run(&second, o, launcher);
    if (!status) {
        findings_confirm(r->f, r->count, &second.samples, o->gain);
        r->head.runs = "2; the rules are what the second run confirmed";
        say_unconfirmed(r, &second.samples);
    }
    stage_end(&second);
    return status;
}

static int publish(const struct options *o, const struct result *r)
{
    size_t rules = 0, few = 0, elsewhere = 0;
    for (size_t i = 0; i < r->count; i++) {
        few += !r->f[i].enough;
        elsewhere += r->f[i].trial == ELSEWHERE;
    }
    findings_print(r->f, r->count, stdout);
    int rc = table_write(o->out, &r->head, r->f, r->count, &rules);
    if (rc)
        fprintf(stderr, "slipring tune: %s can not be written: %s\n", o->out, strerror(-rc));
    else
        printf("%s: %zu rule%s%s\n", o->out, rules, rules == 1 ? "" : "s", rules ? "" : ": NCCL's defaults are best");
    if (few)
        fprintf(
            stderr,
            "slipring tune: %zu kinds of calls came too rarely to say (%u of each choice on each rank are needed)\n",
            few, LEAST_SAMPLES);
    if (elsewhere)
        fprintf(stderr,
                "slipring tune: %zu of the choices were not tried again: they are of several hosts, and the others' "
                "logs are not here\n",
                elsewhere);
    return rc ? 1 : 0;
}

static int conclude(const struct options *o, const char *launcher, struct stage *first)
{
    const struct samples *s = &first->samples;
    struct result r = {.head = {.nccl = s->nccl, .device = s->device, .gain = o->gain}};
    char *command = join(o->command);
    int status = 0;
    r.head.command = command;
    r.head.runs = o->confirm ? "1; there was nothing to confirm" : "1; not confirmed by a second";
    r.f = findings_make(&first->samples, o->gain, &r.count);
    if (!r.f || !command)
        status = nothing(s);
    else if (o->confirm)
        status = confirm(o, launcher, first, &r);
    if (!status)
        status = publish(o, &r);
    free(command);
    free(r.f);
    return status;
}

static int measure(const struct options *o, const char *launcher)
{
    struct stage first = {
        .name = o->confirm ? "tune, first run (exploring)" : "tune", .rounds = o->rounds, .table = ""};
    int status = stage_run(&first, o, launcher);
    if (!status)
        status = conclude(o, launcher, &first);
    stage_end(&first);
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {.out = "slipring.tune", .rounds = 5, .gain = 3, .confirm = true};
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "--check"))
        return argc == 3 ? check(argv[2]) : bad("--check takes one file", "");
    int rc = parse(&o, argc, argv);
    if (rc)
        return rc;
    if (!launcher || !*launcher)
        return bad("call it as slipring tune: it runs COMMAND by the launcher", "");
    return measure(&o, launcher);
}
