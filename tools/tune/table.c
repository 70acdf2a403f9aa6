/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown and what is written. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "plugin/abi/nccl_common.h"
#include "tools/tune/tune.h"

#define SIZE_TEXT 32

static const char *size_text(uint64_t n, char buf[SIZE_TEXT])
{
    static const char *const unit[] = {"", "K", "M", "G", "T"};
    int u = 0;
    while (u < 4 && n && n % 1024 == 0) {
        n /= 1024;
        u++;
    }
    snprintf(buf, SIZE_TEXT, "%llu%s", (unsigned long long)n, unit[u]);
    return buf;
}

static uint64_t class_low(int c)
{
    return c ? 1ull << c : 0;
}

static uint64_t class_high(int c)
{
    return c < 63 ? (2ull << c) - 1 : UINT64_MAX;
}

static void choice_text(const struct finding *f, char *buf, size_t size)
{
    if (f->algo < 0 && f->channels == 0)
        snprintf(buf, size, "default");
    else if (f->channels)
        snprintf(buf, size, "%s %s %d channels", slr_tune_algo_name(f->algo), slr_tune_proto_name(f->proto),
                 f->channels);
    else
        snprintf(buf, size, "%s %s", slr_tune_algo_name(f->algo), slr_tune_proto_name(f->proto));
}

static const char *const trial_word[] = {
    [NOT_TRIED] = "-", [CONFIRMED] = "yes", [REFUTED] = "no", [TOO_FEW] = "too few", [ELSEWHERE] = "not tried"};

void findings_print(const struct finding *f, size_t count, FILE *out)
{
    fprintf(out, "%-13s %8s %5s %5s %3s %11s %11s %6s  %-24s %-9s %s\n", "collective", "from", "ranks", "nodes", "reg",
            "default us", "best us", "gain", "choice", "confirmed", "samples");
    for (size_t i = 0; i < count; i++) {
        char choice[64], low[SIZE_TEXT];
        choice_text(&f[i], choice, sizeof choice);
        fprintf(out, "%-13s %8s %5d %5d %3s ", slr_tune_func_name(f[i].func),
                size_text(class_low(f[i].size_class), low), f[i].nranks, f[i].nnodes, f[i].registered ? "yes" : "no");
        bool named = f[i].better || f[i].trial != NOT_TRIED;
        if (!f[i].enough || f[i].trial == TOO_FEW) {
            fprintf(out, "%11s %11s %6s  %-24s %-9s %zu\n", "-", "-", "-", named ? choice : "too few calls",
                    trial_word[f[i].trial], f[i].samples);
            continue;
        }
        const char *unnamed = finding_told(&f[i]) ? "default" : "too few calls";
        double best = (double)f[i].best_ns / 1e3, before = (double)f[i].default_ns / 1e3;
        fprintf(out, "%11.1f %11.1f %5.1f%%  %-24s %-9s %zu\n", before, best,
                before > 0 ? 100 * (1 - best / before) : 0, named ? choice : unnamed, trial_word[f[i].trial],
                f[i].samples);
    }
}

void findings_print_few(const struct finding *f, size_t count, FILE *out)
{
    char low[SIZE_TEXT];
    for (size_t i = 0; i < count; i++)
        if (!finding_told(&f[i]))
            fprintf(out, "  %s from %s, %d ranks: %zu calls; %zu are needed, %u of each of %zu choices\n",
                    slr_tune_func_name(f[i].func), size_text(class_low(f[i].size_class), low), f[i].nranks, f[i].made,
                    f[i].needed, LEAST_SAMPLES, f[i].needed / LEAST_SAMPLES);
}

/* Keys that only differ in the size, which follow one another, and have one choice. */
static bool continues(const struct finding *a, const struct finding *b)
{
    return b->better && a->trial == b->trial && a->func == b->func && a->nranks == b->nranks &&
           a->nnodes == b->nnodes && a->registered == b->registered && a->size_class + 1 == b->size_class &&
           a->algo == b->algo && a->proto == b->proto && a->channels == b->channels;
}

static void lower(char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'Z')
            *s += 'a' - 'A';
}

static void write_rule(FILE *out, const struct finding *first, const struct finding *last)
{
    char text[512], low[SIZE_TEXT], high[SIZE_TEXT] = "", channels[16] = "default";
    if (last->size_class < 63)
        size_text(class_high(last->size_class), high);
    if (first->channels)
        snprintf(channels, sizeof channels, "%d", first->channels);
    snprintf(text, sizeof text,
             "%-13s bytes=%s..%s ranks=%d nodes=%d registered=%s : algorithm=%s protocol=%s channels=%s",
             slr_tune_func_name(first->func), size_text(class_low(first->size_class), low), high, first->nranks,
             first->nnodes, first->registered ? "yes" : "no", slr_tune_algo_name(first->algo),
             slr_tune_proto_name(first->proto), channels);
    lower(text);
    fprintf(out, "%s\n", text);
}

/* Comments must not become rules, whatever is in the texts. */
static void write_comment(FILE *out, const char *name, const char *text)
{
    fprintf(out, "# %-8s ", name);
    for (size_t n = 0; *text && n < 800; text++, n++)
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    fputc('\n', out);
}

static void write_head(FILE *out, const struct table_head *head)
{
    char date[64] = "", gain[32];
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(gain, sizeof gain, "%g %%", head->gain);
    fprintf(out, "# Measured by slipring tune " SLIPRING_VERSION
                 ". SLIPRING_TUNE_FILE names this file; the first rule that fits decides.\n");
    write_comment(out, "date", date);
    write_comment(out, "nccl", head->nccl[0] ? head->nccl : "unknown");
    write_comment(out, "device", head->device[0] ? head->device : "unknown");
    write_comment(out, "gain", gain);
    write_comment(out, "runs", head->runs);
    write_comment(out, "command", head->command);
}

static void write_why_not(FILE *out, const struct finding *f)
{
    char low[SIZE_TEXT], choice[64];
    choice_text(f, choice, sizeof choice);
    fprintf(out, "# %s from %s bytes, %d ranks: ", slr_tune_func_name(f->func),
            size_text(class_low(f->size_class), low), f->nranks);
    if (f->trial == REFUTED)
        fprintf(out, "%s not confirmed: %.1f us against %.1f us by default\n", choice, (double)f->best_ns / 1e3,
                (double)f->default_ns / 1e3);
    else if (f->trial == TOO_FEW)
        fprintf(out, "%s not confirmed: too few calls in the second run\n", choice);
    else
        fprintf(out, "%s\n", finding_told(f) ? "NCCL's default" : "too few calls to say");
}

static size_t write_all(FILE *out, const struct table_head *head, const struct finding *f, size_t count)
{
    char line[SLR_TUNE_MAX_LINE + 1];
    size_t rules = 0;
    write_head(out, head);
    for (size_t i = 0; i < count; i++) {
        size_t last = i;
        if (!f[i].better) {
            write_why_not(out, &f[i]);
            continue;
        }
        while (last + 1 < count && continues(&f[last], &f[last + 1]))
            last++;
        if (f[i].trial == ELSEWHERE)
            fprintf(out, "# not tried in a second run, as there are ranks whose logs are elsewhere:\n");
        write_rule(out, &f[i], &f[last]);
        rules++;
        i = last;
    }
    for (size_t i = 0; i < head->sites.sites; i++)
        if (slr_tune_site_write(&head->sites.site[i], line, sizeof line))
            fprintf(out, "%s\n", line);
    return rules;
}

int table_write(const char *path, const struct table_head *head, const struct finding *f, size_t count, size_t *rules)
{
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return -ENAMETOOLONG;
    int fd = mkstemp(temporary);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        int e = errno;
        if (fd >= 0)
            close(fd), unlink(temporary);
        return -e;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    *rules = write_all(out, head, f, count);
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    if (!bad && rename(temporary, path) == 0)
        return 0;
    int e = errno ? errno : EIO;
    unlink(temporary);
    return -e;
}
