#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/bench/bench.h"
#include "tools/common/job.h"

static const char usage_text[] =
    "usage: slipring bench [OPTION]... [-- AG_GEMM-OPTION...]\n"
    "\n"
    "Runs ag_gemm, an ordinary NCCL and cuBLAS program whose GEMM consumes an all-gather, alternately without and "
    "with\n"
    "slipring, and prints both and their ratio: above 1 slipring is faster. Each figure is the median over the rounds "
    "of\n"
    "the worst rank's. On the GPUs when there are usable ones, else on the software GPU, and it says which.\n"
    "\n"
    "--rounds N       runs of each side [5]; 2 on the software GPU\n"
    "--with COMMAND   prefix of the second side [slipring run --]\n"
    "--gpu            on a GPU, or fail\n"
    "--softgpu        on the software GPU\n"
    "--json FILE      writes all results there\n"
    "--markdown FILE  writes the table there\n"
    "--ag-gemm FILE   that program instead of the one that came with slipring\n"
    "\n"
    "ag_gemm's options (ranks, sizes, types, ...): slipring bench -- --help. What is not given is chosen for the "
    "device.\n"
    "\n"
    "Exit status: 0 good, 2 wrong usage, 3 an error, else that of a run that failed (1: wrong results).\n";

static int wrong(const char *what, const char *which)
{
    fprintf(stderr, "slipring bench: %s%s%s (see --help)\n", what, *which ? ": " : "", which);
    return BENCH_USAGE;
}

/* ag_gemm lies beside this program when installed, and in bench/ of a build folder. */
static bool find_ag_gemm(struct bench *b)
{
    static const char *const places[] = {"/ag_gemm", "/bench/ag_gemm", "/../libexec/slipring/ag_gemm"};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places && n > 0; i++)
        if (snprintf(b->ag_gemm, sizeof b->ag_gemm, "%s%s", self, places[i]) < (int)sizeof b->ag_gemm &&
            access(b->ag_gemm, X_OK) == 0)
            return true;
    fprintf(stderr,
            "slipring bench: ag_gemm was not found in %s, %s/bench or %s/../libexec/slipring; name it with --ag-gemm\n",
            self, self, self);
    return false;
}

static int set_rounds(struct bench *b, const char *text)
{
    char *end;
    errno = 0;
    b->rounds = strtol(text, &end, 10);
    return *end || end == text || errno || b->rounds < 1 || b->rounds > 100000
               ? wrong("--rounds takes a whole number from 1 to 100000, not", text)
               : 0;
}

static int set_option(struct bench *b, const char *name, const char *value)
{
    if (!strcmp(name, "--rounds"))
        return set_rounds(b, value);
    if (!strcmp(name, "--json"))
        b->json = value;
    else if (!strcmp(name, "--markdown"))
        b->markdown = value;
    else if (!strcmp(name, "--with"))
        b->with = value;
    else if (snprintf(b->ag_gemm, sizeof b->ag_gemm, "%s", value) >= (int)sizeof b->ag_gemm)
        return wrong("--ag-gemm: the name is too long", "");
    return 0;
}

static bool takes_value(const char *name)
{
    static const char *const names[] = {"--rounds", "--json", "--markdown", "--with", "--ag-gemm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* "--name value" or "--name=value" at argv[*i], moved to the last argument used. */
static int take(struct bench *b, char **argv, int *i)
{
    char name[32];
    const char *equals = strchr(argv[*i], '=');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[*i], "="), argv[*i]);
    if (!strcmp(argv[*i], "--gpu"))
        b->gpu = true;
    else if (!strcmp(argv[*i], "--softgpu"))
        b->softgpu = true;
    else if (!takes_value(name))
        return wrong("there is no option", argv[*i]);
    else if (equals)
        return set_option(b, name, equals + 1);
    else if (!argv[*i + 1])
        return wrong("this option needs a value", name);
    else
        return set_option(b, name, argv[++*i]);
    return 0;
}

/* -1: go on; else the exit status. */
static int parse(struct bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            words_add_all(&b->options, argv + i + 1);
            break;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return fputs(usage_text, stdout) < 0 ? BENCH_ERROR : 0;
        int rc = take(b, argv, &i);
        if (rc)
            return rc;
    }
    return b->gpu && b->softgpu ? wrong("--gpu and --softgpu exclude each other", "") : -1;
}

/* Without --with: the launcher that started this, shown by its name. */
static int set_prefix(struct bench *b)
{
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    if (b->with)
        return words_split(&b->prefix, b->with) ? 0 : wrong("--with: a quote is not closed", b->with);
    if (!launcher || !*launcher)
        return wrong("run this as `slipring bench`, or give --with", "");
    b->with = "slipring run --";
    words_add(&b->prefix, launcher);
    words_add(&b->prefix, "run");
    words_add(&b->prefix, "--");
    return 0;
}

static int write_file(const char *path, const json_t *summary, bool markdown)
{
    FILE *out = path ? fopen(path, "w") : NULL;
    bool bad = path && !out;
    if (out && markdown)
        bench_markdown(out, summary);
    else if (out)
        bad = json_dumpf(summary, out, JSON_INDENT(1)) != 0 || fputc('\n', out) == EOF;
    if (out)
        bad |= ferror(out) || fclose(out) != 0;
    if (bad)
        fprintf(stderr, "slipring bench: %s can not be written: %s\n", path, strerror(errno));
    return bad ? BENCH_ERROR : 0;
}

static int report(const struct bench *b, json_t *const runs[SIDES])
{
    json_t *summary = bench_summary(b, runs);
    if (!summary) {
        fputs("slipring bench: ag_gemm's results are not as expected\n", stderr);
        return BENCH_ERROR;
    }
    bench_table(stdout, summary);
    int rc = fflush(stdout) ? BENCH_ERROR : 0;
    int json = write_file(b->json, summary, false), markdown = write_file(b->markdown, summary, true);
    json_decref(summary);
    return rc ? rc : json ? json : markdown;
}

/* ag_gemm's own help. It comes back only when it fails. */
static int help(struct bench *b)
{
    struct words *w = &b->device;
    words_add(w, b->ag_gemm);
    words_add(w, "--help");
    execvp(w->word[0], w->word);
    return wrong(strerror(errno), w->word[0]);
}

static int run(struct bench *b)
{
    json_t *runs[SIDES] = {NULL, NULL};
    int rc = *b->ag_gemm || find_ag_gemm(b) ? set_prefix(b) : BENCH_ERROR;
    if (rc == 0)
        rc = bench_choose_device(b);
    if (rc == 0 && bench_has_option(b, "help"))
        return help(b);
    if (rc == 0)
        rc = bench_run(b, runs);
    if (rc == 0)
        rc = report(b, runs);
    json_decref(runs[WITHOUT]);
    json_decref(runs[WITH]);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.rounds = 0};
    int rc = parse(&b, argc, argv);
    if (rc < 0)
        rc = run(&b);
    words_free(&b.device);
    words_free(&b.prefix);
    words_free(&b.options);
    return rc;
}
