/* SPDX-License-Identifier: Apache-2.0 */
/* slipring report: what the logs of all ranks say, as text and as a page. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "tools/common/output.h"
#include "tools/report/report.h"
#include "tools/model/input.h"

#define OPTIONS_FILE "tools/report/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

/* 0: it is no terminal, or none that tells its width. */
static unsigned terminal_width(FILE *to)
{
    struct winsize size;
    return isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static struct report_form form_of(const struct options *o, enum out_form form, FILE *to)
{
    const char *plain = getenv("NO_COLOR");
    const unsigned wide = o->width ? (unsigned)o->width : terminal_width(to);
    return (struct report_form){.form = form,
                                .bold = form == OUT_TEXT && isatty(fileno(to)) && !(plain && *plain),
                                .details = o->details,
                                .width = wide >= OUT_WIDTH_LEAST ? wide
                                         : wide                  ? OUT_WIDTH_LEAST
                                                                 : OUT_WIDTH};
}

static bool write_one(struct input *in, const struct options *o, const char *path, enum out_form form)
{
    struct report r = {.m = &in->model, .index = in->run, .run = &in->model.runs.at[in->run]};
    struct output out;
    if (!output_open(&out, path))
        return false;
    const struct report_form as = form_of(o, form, out.to);
    report_write(&r, &as, out.to);
    return output_close(&out);
}

static int report(const struct options *o, char *const *paths, size_t n)
{
    struct input in;
    int status = input_read(&in, paths, n, (unsigned)o->run);
    if (status == TOOL_GOOD) {
        bool text = *o->text || (!*o->html && !*o->json);
        bool good = !text || write_one(&in, o, *o->text ? o->text : "-", OUT_TEXT);
        good &= !*o->html || write_one(&in, o, o->html, OUT_HTML);
        good &= !*o->json || write_one(&in, o, o->json, OUT_JSON);
        status = good ? input_status(&in) : TOOL_NOTHING;
    }
    model_free(&in.model);
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    int rest = options_parse(option_rows, OPTIONS_ANYWHERE, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (o.fields) {
        log_print_interface(stdout);
        return fflush(stdout) ? TOOL_NOTHING : TOOL_GOOD;
    }
    if (rest == argc)
        return options_wrong(option_rows, "it needs a log file, or a folder with some");
    return report(&o, argv + rest, (size_t)(argc - rest));
}
