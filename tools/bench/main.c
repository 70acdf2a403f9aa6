/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/bench/bench.h"
#include "tools/common/job.h"

#define OPTIONS_FILE "tools/bench/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

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
    fprintf(
        stderr,
        "slipring bench: ag_gemm was not found in %s, %s/bench or %s/../libexec/slipring; name it with --ag-gemm (the "
        "Python wheel has none, but the .deb, .rpm and .tar.gz packages and a build)\n",
        self, self, self);
    return false;
}

/* The options into `b`. 0, or an exit status. */
static int take(struct bench *b, const struct options *o, char **argv, int rest)
{
    const char *devices = o->softgpu ? o->softgpu : ""; /* NULL: given without a number */
    *b = (struct bench){.rounds = o->rounds, .with = o->with, .gpu = o->gpu};
    b->softgpu = !o->softgpu || *devices;
    b->devices = (int)strtol(devices, NULL, 10);
    b->json = *o->json ? o->json : NULL;
    b->markdown = *o->markdown ? o->markdown : NULL;
    if (argv[rest] && strcmp(argv[rest - 1], "--") != 0)
        return options_wrong(option_rows, "unexpected argument: %s; ag_gemm's options stand behind --", argv[rest]);
    if (*devices && (b->devices < 1 || devices[strspn(devices, "0123456789")]))
        return options_wrong(option_rows, "--softgpu takes a number of devices, not %s", devices);
    if (b->gpu && b->softgpu)
        return options_wrong(option_rows, "--gpu and --softgpu exclude each other");
    if (snprintf(b->ag_gemm, sizeof b->ag_gemm, "%s", o->ag_gemm) >= (int)sizeof b->ag_gemm)
        return options_wrong(option_rows, "--ag-gemm: the name is too long");
    words_add_all(&b->options, argv + rest);
    return 0;
}

/* Without --with: the launcher that started this, shown by its name. */
static int set_prefix(struct bench *b)
{
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    if (*b->with)
        return words_split(&b->prefix, b->with)
                   ? 0
                   : options_wrong(option_rows, "--with: a quote is not closed: %s", b->with);
    if (!launcher || !*launcher)
        return options_wrong(option_rows, "run this as `slipring bench`, or give --with");
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
    return options_wrong(option_rows, "%s: %s", strerror(errno), w->word[0]);
}

static int run(struct bench *b)
{
    json_t *runs[SIDES] = {NULL, NULL};
    const bool writable = (!b->json || job_can_write("slipring bench", b->json)) &&
                          (!b->markdown || job_can_write("slipring bench", b->markdown));
    int rc = writable && (*b->ag_gemm || find_ag_gemm(b)) ? set_prefix(b) : BENCH_ERROR;
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
    struct options o = {0};
    struct bench b = {0};
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv);
    int status = rest <= 0 ? -rest : take(&b, &o, argv, rest);
    if (rest > 0 && status == 0)
        status = run(&b);
    words_free(&b.device);
    words_free(&b.prefix);
    words_free(&b.options);
    return status;
}
